/* Any bytes as a job file: an error that begins with the place, or a job whose printed form loads again and
 * prints the same. */
#include "pipeline/job.h"
#include "pipeline/job_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok, const char *what, const char *detail)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, detail);
        abort();
    }
}

static void print(const struct job *j, struct buf *out)
{
    struct err e = {0};
    buf_init(out, 64 << 20);
    need(job_print(j, out, &e) == 0, "does not print", e.msg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char path[] = "/fuzz/a.yaml";
    struct job a, b;
    struct err e = {0};
    struct buf first, second;
    if (job_parse(&a, (const char *)data, size, path, &e)) {
        int line = 0, column = 0, n = 0;
        sscanf(e.msg, "/fuzz/a.yaml:%d:%d: %n", &line, &column, &n);
        need(e.code == ERR_CONFIG && line > 0 && column > 0 && n > 0 && e.msg[n],
             "an error without a place", e.msg);
        return 0;
    }
    print(&a, &first);
    if (first.len <= JOB_FILE_BYTES) { /* escapes can make a text longer than a file may be */
        need(job_parse(&b, first.data, first.len, "/elsewhere/b.yaml", &e) == 0,
             "printed job does not load", e.msg);
        print(&b, &second);
        need(strcmp(first.data, second.data) == 0 && strcmp(a.name, b.name) == 0,
             "printed job differs", first.data);
        buf_release(&second);
        job_release(&b);
    }
    buf_release(&first);
    job_release(&a);
    return 0;
}

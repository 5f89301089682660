/* quire kv trace: the events of a ring, as a table or as JSON lines. The ring may belong to a run that is at
 * work: what is printed is what the file held when it was read. */
#include "pipeline/cmd_kv.h"

#include "stages/base/file.h"
#include "stages/base/mem.h"
#include "stages/kv/trace_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { WRITE_BYTES = 1 << 16 };

/* ---- input ---- */

/* A folder stands for the ring in it. */
static char *ring_path(const char *given)
{
    struct stat st;
    return stat(given, &st) == 0 && S_ISDIR(st.st_mode) ? file_join(given, KV_RING_FILE)
                                                        : mem_strdup(given);
}

static int read_ring(struct trace_ring *r, const char *given, struct err *e)
{
    struct buf bytes;
    buf_init(&bytes, TRACE_HEADER_BYTES + (size_t)TRACE_MAX_SLOTS * TRACE_SLOT_BYTES);
    char *path = ring_path(given);
    int rc = file_read(path, &bytes, e);
    if (!rc && trace_read(r, (const uint8_t *)(bytes.data ? bytes.data : ""), bytes.len, e))
        rc = err_wrap(e, "%s", path);
    buf_release(&bytes);
    free(path);
    return rc;
}

static int read_last(const struct cmd_line *l, size_t *last, struct err *e)
{
    const char *text = cmd_value(l, "--last", 0);
    *last = SIZE_MAX;
    if (!text)
        return 0;
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n == 0 || n > TRACE_MAX_SLOTS)
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "--last: \"%.40s\" is not a number from 1 to %d", text, TRACE_MAX_SLOTS);
    *last = (size_t)n;
    return 0;
}

/* ---- output ---- */

static void moment(const struct trace_ring *r, char out[32])
{
    time_t t = (time_t)(r->wall_us / 1000000);
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm))
        snprintf(out, 32, "%" PRId64 " us", r->wall_us);
}

static int head_text(const struct trace_ring *r, struct buf *out, struct err *e)
{
    char made[32];
    moment(r, made);
    int rc = buf_addf(out, e,
                      "# process %" PRIu32 ", ring made %s, %" PRIu64
                      " events, the last %" PRIu64 " kept",
                      r->pid, made, r->written, r->written < r->slots ? r->written : r->slots);
    if (!rc && r->unreadable)
        rc = buf_addf(out, e, ", %" PRIu64 " of them unreadable", r->unreadable);
    return rc ? rc
              : buf_addf(out, e, "\n# %10s %14s %-9s %-4s %8s %-16s %12s\n", "event", "seconds",
                         "operation", "tier", "page", "key", "bytes");
}

static int event_text(const struct trace_event *v, struct buf *out, struct err *e)
{
    char key[20] = "-", page[16] = "-";
    if (v->key)
        snprintf(key, sizeof(key), "%016" PRIx64, v->key);
    if (v->page >= 0)
        snprintf(page, sizeof(page), "%" PRId32, v->page);
    return buf_addf(
        out, e, "%12" PRIu64 " %7" PRIu64 ".%06" PRIu64 " %-9s %-4s %8s %-16s %12" PRIu64 "\n",
        v->number, v->time_us / 1000000, v->time_us % 1000000, kv_op_name(v->op),
        kv_tier_name(v->tier), page, key, v->bytes);
}

static int head_json(const struct trace_ring *r, struct buf *out, struct err *e)
{
    char made[32];
    moment(r, made);
    return buf_addf(out, e,
                    "{\"schema\": \"quire.kv_trace/1\", \"pid\": %" PRIu32
                    ", \"made\": \"%s\", \"made_us\": %" PRId64 ", \"events\": %" PRIu64
                    ", \"slots\": %" PRIu64 ", \"unreadable\": %" PRIu64 "}\n",
                    r->pid, made, r->wall_us, r->written, r->slots, r->unreadable);
}

static int event_json(const struct trace_event *v, struct buf *out, struct err *e)
{
    return buf_addf(out, e,
                    "{\"event\": %" PRIu64 ", \"us\": %" PRIu64
                    ", \"op\": \"%s\", \"tier\": \"%s\", \"page\": %" PRId32
                    ", \"key\": \"%016" PRIx64 "\", \"bytes\": %" PRIu64 "}\n",
                    v->number, v->time_us, kv_op_name(v->op), kv_tier_name(v->tier), v->page,
                    v->key, v->bytes);
}

static int print(const struct trace_ring *r, size_t last, bool json, struct err *e)
{
    struct buf out;
    buf_init(&out, CMD_TEXT);
    int rc = json ? head_json(r, &out, e) : head_text(r, &out, e);
    for (size_t i = r->n_events > last ? r->n_events - last : 0; !rc && i < r->n_events; i++) {
        rc = (json ? event_json : event_text)(&r->events[i], &out, e);
        if (!rc && out.len > WRITE_BYTES) {
            if (fwrite(out.data, 1, out.len, stdout) != out.len)
                rc = err_set(e, REACH_JOB, ERR_IO, "cannot write to standard output: %s",
                             strerror(errno));
            buf_clear(&out);
        }
    }
    return cmd_print(&out, rc, e);
}

int cmd_kv_trace(const struct cmd_line *l)
{
    struct err e = {0};
    struct trace_ring r = {0};
    size_t last;
    if (read_last(l, &last, &e) || read_ring(&r, l->args[1], &e))
        return cmd_fail(&e);
    int status = print(&r, last, cmd_value(l, "--json", 0) != NULL, &e);
    trace_ring_release(&r);
    return status;
}

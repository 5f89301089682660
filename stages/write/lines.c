#include "stages/write/lines.h"

#include "stages/base/buf.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 64 << 10 };

static int fail(struct err *e, const char *path)
{
    return err_set(e, REACH_JOB, ERR_IO, "cannot read \"%s\": %s", path, strerror(errno));
}

static ssize_t read_at(int fd, void *to, size_t n, uint64_t at)
{
    ssize_t got;
    do
        got = pread(fd, to, n, (off_t)at);
    while (got < 0 && errno == EINTR);
    return got;
}

/* A line as it grows; over: it is too long, and passed over. */
struct line {
    struct buf text;
    bool over;
};

static int add(struct line *l, const char *p, size_t n, struct err *e)
{
    l->over |= n > l->text.cap - l->text.len;
    if (l->over)
        return 0;
    int rc = buf_add(&l->text, p, n, e);
    if (rc)
        e->reach = REACH_JOB;
    return rc;
}

static int end(struct line *l, line_fn *fn, void *to, struct err *e)
{
    int rc = l->over ? 0 : fn(to, l->text.data ? l->text.data : "", l->text.len, e);
    buf_clear(&l->text);
    l->over = false;
    return rc;
}

int lines_read(int fd, const char *path, line_fn *fn, void *to, struct err *e)
{
    struct line l = {0};
    char block[BLOCK];
    ssize_t got;
    int rc = 0;
    buf_init(&l.text, LINE_MAX_BYTES);
    for (uint64_t at = 0; !rc && (got = read_at(fd, block, sizeof(block), at)) != 0;
         at += (uint64_t)got) {
        if (got < 0) {
            rc = fail(e, path);
            break;
        }
        for (const char *p = block, *stop = block + got; p < stop && !rc;) {
            const char *nl = memchr(p, '\n', (size_t)(stop - p));
            rc = add(&l, p, (size_t)((nl ? nl : stop) - p), e);
            if (!rc && nl)
                rc = end(&l, fn, to, e);
            p = nl ? nl + 1 : stop;
        }
    }
    buf_release(&l.text);
    return rc;
}

int lines_end(int fd, const char *path, uint64_t *out, struct err *e)
{
    struct stat st;
    char block[BLOCK];
    *out = 0;
    if (fstat(fd, &st) != 0)
        return fail(e, path);
    for (uint64_t stop = (uint64_t)st.st_size; stop > 0;) {
        uint64_t at = stop > BLOCK ? stop - BLOCK : 0;
        ssize_t got = read_at(fd, block, (size_t)(stop - at), at);
        if (got < 0)
            return fail(e, path);
        while (got > 0 && block[got - 1] != '\n')
            got--;
        if (got > 0) {
            *out = at + (uint64_t)got;
            break;
        }
        stop = at;
    }
    return 0;
}

#include "stages/ingest/stream.h"

#include "stages/base/file.h"
#include "stages/base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void stream_init(struct stream *s, const struct stream_ops *ops, void *state)
{
    *s = (struct stream){.ops = ops, .state = state, .fd = -1};
}

void stream_close(struct stream *s)
{
    if (s->ops)
        s->ops->close(s);
    s->ops = NULL;
}

static int read_layer(struct stream *s, const void **p, size_t *n, struct err *e)
{
    *n = 0;
    if (s->end)
        return 0;
    int rc = deadline_check(s->deadline, e);
    if (rc != 0)
        return rc;
    rc = s->ops->read(s, p, n, e);
    if (rc != 0 || *n == 0)
        s->end = true;
    return rc;
}

int stream_next(struct stream *s, const void **p, size_t *n, struct err *e)
{
    if (s->look_len > 0) {
        *p = s->look;
        *n = s->look_len;
        s->look_len = 0;
        return 0;
    }
    if (s->rest_len > 0) {
        *p = s->rest;
        *n = s->rest_len;
        s->rest_len = 0;
        return 0;
    }
    return read_layer(s, p, n, e);
}

int stream_look(struct stream *s, const unsigned char **p, size_t *n, struct err *e)
{
    while (s->look_len < STREAM_LOOK) {
        if (s->rest_len == 0) {
            const void *piece;
            int rc = read_layer(s, &piece, &s->rest_len, e);
            if (rc != 0)
                return rc;
            if (s->rest_len == 0)
                break;
            s->rest = piece;
        }
        size_t take = STREAM_LOOK - s->look_len;
        if (take > s->rest_len)
            take = s->rest_len;
        memcpy(s->look + s->look_len, s->rest, take);
        s->look_len += take;
        s->rest += take;
        s->rest_len -= take;
    }
    *p = s->look;
    *n = s->look_len;
    return 0;
}

/* ---- a file ---- */

struct file_state {
    atomic_llong *count;
    uint64_t at;   /* where stream_next() reads on */
    uint64_t seen; /* counted so far */
    uint64_t size;
    unsigned char piece[STREAM_PIECE];
};

static void count_to(struct file_state *f, uint64_t at)
{
    if (f->count && at > f->seen)
        atomic_fetch_add(f->count, (long long)(at - f->seen));
    if (at > f->seen)
        f->seen = at;
}

int stream_read_at(struct stream *s, uint64_t at, const void **p, size_t *n, struct err *e)
{
    struct file_state *f = s->state;
    int rc = deadline_check(s->deadline, e);
    if (rc != 0)
        return rc;
    ssize_t got;
    do
        got = pread(s->fd, f->piece, sizeof(f->piece), (off_t)at);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_set(e, REACH_DOC, ERR_IO, "cannot be read: %s", strerror(errno));
    *p = f->piece;
    *n = (size_t)got;
    count_to(f, at + *n);
    return 0;
}

void stream_rewind(struct stream *s)
{
    struct file_state *f = s->state;
    f->at = 0;
    s->look_len = s->rest_len = 0;
    s->end = false;
}

uint64_t stream_size(const struct stream *s)
{
    return ((const struct file_state *)s->state)->size;
}

static int file_read_piece(struct stream *s, const void **p, size_t *n, struct err *e)
{
    struct file_state *f = s->state;
    int rc = stream_read_at(s, f->at, p, n, e);
    f->at += *n;
    return rc;
}

static void file_close_piece(struct stream *s)
{
    struct file_state *f = s->state;
    count_to(f, f->size); /* what was skipped counts as done */
    close(s->fd);
    free(f);
}

int stream_open_fd(struct stream *s, int fd, atomic_llong *count, struct err *e)
{
    static const struct stream_ops ops = {file_read_piece, file_close_piece};
    struct file_state *f = mem_alloc(sizeof(*f));
    if (!f) {
        close(fd);
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory to read a file");
    }
    struct stat st;
    f->size = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    f->count = count;
    stream_init(s, &ops, f);
    s->fd = fd;
    return 0;
}

/* ---- spool ---- */

int stream_spool(struct stream *s, int fd, uint64_t cap, struct err *e)
{
    uint64_t total = 0;
    for (;;) {
        const void *p;
        size_t n;
        int rc = stream_next(s, &p, &n, e);
        if (rc == 0 && n > cap - total)
            rc = err_set(
                e, REACH_DOC, ERR_LIMIT,
                "an archive inside an archive is over %llu MiB, the most that is kept in a "
                "temporary file; unpack it first",
                (unsigned long long)(cap >> 20));
        if (rc == 0 && n > 0)
            rc = file_write_all(fd, p, n, "a temporary file", e);
        if (rc != 0) {
            e->reach = REACH_DOC;
            return rc;
        }
        if (n == 0)
            return 0;
        total += n;
    }
}

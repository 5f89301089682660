#include "stages/ingest/inflate.h"

#include "stages/base/mem.h"

#include <stdlib.h>
#include <zlib.h>

enum { RATIO_FROM = 1 << 20 };

struct inflate_state {
    struct stream *outer;
    z_stream z;
    int max_ratio;
    uint64_t in, out;
    bool between; /* the last member is complete */
    bool done;
    unsigned char piece[STREAM_PIECE];
};

/* More packed bytes, when the last piece is used up. Returns 1 at the end of the packed bytes. */
static int refill(struct inflate_state *st, struct err *e)
{
    if (st->z.avail_in > 0)
        return 0;
    const void *p;
    size_t n;
    int rc = stream_next(st->outer, &p, &n, e);
    if (rc != 0)
        return rc;
    /* zlib's member is not const, but inflate() only reads from it. */
    st->z.next_in = (Bytef *)(uintptr_t)p;
    st->z.avail_in = (uInt)n;
    st->in += n;
    return n == 0;
}

/* Is there another member? The two bytes of its magic may lie in two pieces; a single 0x1f at
 * the end of a piece is taken for one, and then fails as a header would. */
static int next_member(struct inflate_state *st, struct err *e)
{
    int rc = refill(st, e);
    if (rc < 0)
        return rc;
    const unsigned char *p = st->z.next_in;
    if (rc == 1 || p[0] != 0x1f || (st->z.avail_in > 1 && p[1] != 0x8b)) {
        st->done = true;
        return 0;
    }
    st->between = false;
    inflateReset(&st->z);
    return 0;
}

static int inflate_read(struct stream *s, const void **p, size_t *n, struct err *e)
{
    struct inflate_state *st = s->state;
    st->z.next_out = st->piece;
    st->z.avail_out = sizeof(st->piece);
    while (!st->done && st->z.avail_out > 0) {
        if (st->between) {
            int rc = next_member(st, e);
            if (rc != 0)
                return rc;
            continue;
        }
        int rc = refill(st, e);
        if (rc < 0)
            return rc;
        if (rc == 1) {
            s->torn = st->outer->torn ? st->outer->torn : "the gzip data end too early";
            st->done = true;
            break;
        }
        rc = inflate(&st->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END)
            st->between = true;
        else if (rc == Z_MEM_ERROR)
            return err_set(e, REACH_DOC, ERR_NOMEM, "no memory to inflate");
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return err_set(e, REACH_DOC, ERR_CORRUPT, "damaged gzip data (%s)",
                           st->z.msg ? st->z.msg : "unknown reason");
    }
    *p = st->piece;
    *n = sizeof(st->piece) - st->z.avail_out;
    st->out += *n;
    uint64_t used = st->in - st->z.avail_in;
    if (st->out > RATIO_FROM && st->out / (uint64_t)st->max_ratio > used)
        return err_set(e, REACH_DOC, ERR_LIMIT,
                       "expands more than %d to 1 (ingest.max_ratio): gzip data of a bomb?",
                       st->max_ratio);
    return 0;
}

static void inflate_close(struct stream *s)
{
    struct inflate_state *st = s->state;
    inflateEnd(&st->z);
    free(st);
}

int inflate_open(struct stream *s, struct stream *outer, int max_ratio, struct err *e)
{
    static const struct stream_ops ops = {inflate_read, inflate_close};
    struct inflate_state *st = mem_alloc(sizeof(*st));
    if (!st)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory to inflate");
    st->outer = outer;
    st->max_ratio = max_ratio;
    if (inflateInit2(&st->z, 16 + MAX_WBITS) !=
        Z_OK) { /* 16: a gzip header and trailer, nothing else */
        free(st);
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory to inflate");
    }
    stream_init(s, &ops, st);
    s->deadline = outer->deadline;
    return 0;
}

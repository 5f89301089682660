/* stages/ingest/stream.h - bytes that arrive in pieces, with a look ahead.
 *
 *     file  ->  inflate  ->  tar entry  ->  inflate  ->  document
 *
 * What:   every layer of a file (the file itself, a decompressor, an entry of an archive) is a
 *         stream over the one outside it. Nothing larger than one piece is in memory.
 * Rules:  1. A piece stays valid until the next call on the same stream.
 *         2. A source that ends too early is no error: the stream ends, and `torn` says why.
 *         3. stream_look() does not consume; stream_next() gives the same bytes again.
 *         4. stream_read_at() and stream_next() are not mixed on one stream.
 * Thread: a stream belongs to one thread.
 */
#ifndef QUIRE_INGEST_STREAM_H
#define QUIRE_INGEST_STREAM_H

#include "stages/base/buf.h"
#include "stages/ingest/deadline.h"

#include <stdatomic.h>
#include <stdint.h>

enum { STREAM_PIECE = 64 * 1024, STREAM_LOOK = 1024 };

struct stream;

struct stream_ops {
    /* The next bytes; *n = 0 at the end. */
    int (*read)(struct stream *s, const void **p, size_t *n, struct err *e);
    void (*close)(struct stream *s);
};

struct stream {
    const struct stream_ops *ops;
    void *state;      /* of the layer */
    int fd;           /* a regular file with the same bytes, for stream_read_at(), or -1 */
    const char *torn; /* why the bytes are fewer than they should be; NULL when they are not */
    const struct deadline *deadline; /* checked before every piece; may be NULL */
    unsigned char look[STREAM_LOOK];
    size_t look_len;
    const unsigned char *rest; /* of the piece that look was filled from */
    size_t rest_len;
    bool end;
};

void stream_init(struct stream *s, const struct stream_ops *ops, void *state);
void stream_close(struct stream *s); /* safe on a zeroed struct */

/* The next piece; *n = 0 at the end. Returns 0 or what the layer failed with. */
int stream_next(struct stream *s, const void **p, size_t *n, struct err *e) MUST_CHECK;

/* The first bytes, up to STREAM_LOOK, before anything was taken with stream_next(). */
int stream_look(struct stream *s, const unsigned char **p, size_t *n, struct err *e) MUST_CHECK;

/* A file that is open for reading; closes it. *count, when given, grows by the file's size in all. */
int stream_open_fd(struct stream *s, int fd, atomic_llong *count, struct err *e) MUST_CHECK;

/* The piece at an offset of a stream that has fd >= 0; *n = 0 past the end. */
int stream_read_at(struct stream *s, uint64_t at, const void **p, size_t *n,
                   struct err *e) MUST_CHECK;
/* Begins a stream with fd >= 0 anew. */
void stream_rewind(struct stream *s);
/* Size of the file behind fd. */
uint64_t stream_size(const struct stream *s);

/* Copies what is left of s into fd, for formats that must seek. -ERR_LIMIT when there is more than cap,
 * or another error. */
int stream_spool(struct stream *s, int fd, uint64_t cap, struct err *e) MUST_CHECK;

#endif

/* stages/base/buf.h - a growing byte buffer that cannot grow past its cap.
 *
 * Rules:  1. Every buffer has a cap from buf_init(); reaching it is -ERR_LIMIT, never a truncation.
 *         2. `data` is always followed by a NUL that `len` does not count (once anything was added).
 *         3. On failure the contents are unchanged.
 * Life:   buf_init() does not allocate; buf_release() is safe on a zeroed struct.
 */
#ifndef QUIRE_BASE_BUF_H
#define QUIRE_BASE_BUF_H

#include "stages/base/err.h"

#include <stddef.h>

struct buf {
    char *data; /* [cap_now], NULL while empty */
    size_t len;
    size_t cap_now; /* allocated */
    size_t cap;     /* most bytes it may ever hold */
};

void buf_init(struct buf *b, size_t cap);
void buf_release(struct buf *b);
void buf_clear(struct buf *b); /* len = 0, memory kept */

/* Append n bytes / a string / one byte / formatted text.
 * Returns 0, -ERR_LIMIT at the cap, -ERR_NOMEM; both with reach DOC. */
int buf_add(struct buf *b, const void *data, size_t n, struct err *e) MUST_CHECK;
int buf_adds(struct buf *b, const char *s, struct err *e) MUST_CHECK;
int buf_addc(struct buf *b, char c, struct err *e) MUST_CHECK;
int buf_addf(struct buf *b, struct err *e, const char *fmt, ...) PRINTF_LIKE(3, 4) MUST_CHECK;

/* Room for n more bytes: returns where they go, or NULL with e set. The caller adds to len. */
char *buf_room(struct buf *b, size_t n, struct err *e) MUST_CHECK;

/* Moves the contents out as a NUL-terminated heap string (free() it); the buffer is then empty. */
char *buf_take(struct buf *b);

#endif

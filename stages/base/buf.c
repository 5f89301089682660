#include "stages/base/buf.h"

#include "stages/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t cap)
{
    *b = (struct buf){.cap = cap};
}

void buf_release(struct buf *b)
{
    free(b->data);
    *b = (struct buf){.cap = b->cap};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

char *buf_room(struct buf *b, size_t n, struct err *e)
{
    size_t need, whole;
    if (!size_add(b->len, n, &need) || need > b->cap) {
        err_set(e, REACH_DOC, ERR_LIMIT, "over the limit of %zu bytes", b->cap);
        return NULL;
    }
    if (!size_add(need, 1, &whole)) {
        err_set(e, REACH_DOC, ERR_NOMEM, "size overflow");
        return NULL;
    }
    if (whole > b->cap_now) {
        size_t grown = b->cap_now + b->cap_now / 2;
        if (grown < whole || grown > b->cap)
            grown = whole;
        if (grown < 64)
            grown = 64;
        char *p = mem_resize(b->data, grown);
        if (!p) {
            err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %zu bytes", grown);
            return NULL;
        }
        b->data = p;
        b->cap_now = grown;
    }
    return b->data + b->len;
}

int buf_add(struct buf *b, const void *data, size_t n, struct err *e)
{
    char *p = buf_room(b, n, e);
    if (!p)
        return -(int)e->code;
    if (n)
        memcpy(p, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int buf_adds(struct buf *b, const char *s, struct err *e)
{
    return buf_add(b, s, strlen(s), e);
}

int buf_addc(struct buf *b, char c, struct err *e)
{
    return buf_add(b, &c, 1, e);
}

int buf_addf(struct buf *b, struct err *e, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    int rc = 0;
    char *p = n < 0 ? NULL : buf_room(b, (size_t)n, e);
    if (!p) {
        rc = n < 0 ? err_set(e, REACH_DOC, ERR_BUG, "bad format") : -(int)e->code;
    } else {
        vsnprintf(p, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return rc;
}

char *buf_take(struct buf *b)
{
    char *p = b->data ? b->data : mem_strdup("");
    *b = (struct buf){.cap = b->cap};
    return p;
}

#define _GNU_SOURCE /* memmem: linear in both texts */
#include "stages/model/marked.h"

#include "stages/base/utf8.h"

#include <string.h>

void marked_init(struct marked *m, size_t cap)
{
    buf_init(&m->text, cap);
    buf_init(&m->marks, cap);
}

void marked_release(struct marked *m)
{
    buf_release(&m->text);
    buf_release(&m->marks);
}

void marked_clear(struct marked *m)
{
    buf_clear(&m->text);
    buf_clear(&m->marks);
}

int marked_add(struct marked *m, const char *s, size_t n, uint8_t mark, struct err *e)
{
    if (n == 0)
        return 0;
    char *marks = buf_room(&m->marks, n, e);
    if (!marks)
        return -(int)e->code;
    int rc = buf_add(&m->text, s, n, e);
    if (rc < 0)
        return rc;
    memset(marks, mark, n);
    m->marks.len += n;
    return 0;
}

int marked_join(struct marked *m, struct mtext t, struct err *e)
{
    if (!t.marks)
        return marked_add(m, t.s, t.len, MARK_TEMPLATE, e);
    if (t.len == 0)
        return 0;
    char *marks = buf_room(&m->marks, t.len, e);
    if (!marks)
        return -(int)e->code;
    int rc = buf_add(&m->text, t.s, t.len, e);
    if (rc < 0)
        return rc;
    memcpy(marks, t.marks, t.len);
    m->marks.len += t.len;
    return 0;
}

int marked_adds(struct marked *m, const char *s, uint8_t mark, struct err *e)
{
    return marked_add(m, s, strlen(s), mark, e);
}

struct mtext marked_view(const struct marked *m)
{
    return (struct mtext){m->text.len ? m->text.data : "",
                          m->marks.len ? (const uint8_t *)m->marks.data : NULL, m->text.len};
}

struct mtext mtext_slice(struct mtext t, size_t from, size_t to)
{
    return (struct mtext){t.s + from, t.marks ? t.marks + from : NULL, to - from};
}

bool is_space_cp(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 ||
           cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

struct mtext mtext_lstrip(struct mtext t)
{
    size_t i = 0;
    while (i < t.len) {
        uint32_t cp;
        int n = utf8_decode(t.s + i, t.len - i, &cp);
        if (n <= 0 || !is_space_cp(cp))
            break;
        i += (size_t)n;
    }
    return mtext_slice(t, i, t.len);
}

struct mtext mtext_rstrip(struct mtext t)
{
    size_t end = t.len;
    while (end > 0) {
        size_t at = end - 1;
        while (at > 0 && end - at < 4 && ((unsigned char)t.s[at] & 0xc0) == 0x80)
            at--;
        uint32_t cp;
        int n = utf8_decode(t.s + at, end - at, &cp);
        if (n <= 0 || at + (size_t)n != end || !is_space_cp(cp))
            break;
        end = at;
    }
    return mtext_slice(t, 0, end);
}

struct mtext mtext_strip(struct mtext t)
{
    return mtext_rstrip(mtext_lstrip(t));
}

struct mtext mtext_of(const char *s)
{
    return (struct mtext){s, NULL, strlen(s)};
}

bool mtext_starts(struct mtext t, const char *s)
{
    size_t n = strlen(s);
    return t.len >= n && memcmp(t.s, s, n) == 0;
}

size_t mtext_find(struct mtext t, struct mtext what)
{
    if (what.len == 0)
        return 0;
    const char *p = t.len ? memmem(t.s, t.len, what.s, what.len) : NULL;
    return p ? (size_t)(p - t.s) : t.len;
}

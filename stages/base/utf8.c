#include "stages/base/utf8.h"

int utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    *cp = UTF8_REPLACEMENT;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return -1;
    int len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    /* The second byte's range excludes overlong forms, surrogates and values past U+10FFFF. */
    unsigned low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    uint32_t v = p[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n || p[i] < low || p[i] > high)
            return -i;
        v = v << 6 | (p[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *cp = v;
    return len;
}

int utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len < 0)
            return i;
        i += (size_t)len;
    }
    return n;
}

bool utf8_is_boundary(const char *s, size_t n, size_t i)
{
    return i >= n || ((unsigned char)s[i] & 0xc0) != 0x80;
}

size_t utf8_floor(const char *s, size_t n, size_t i)
{
    if (i > n)
        i = n;
    while (i > 0 && !utf8_is_boundary(s, n, i))
        i--;
    return i;
}

size_t utf8_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

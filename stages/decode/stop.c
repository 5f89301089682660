#include "stages/decode/stop.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char *find(const char *text, size_t len, const char *what, size_t n)
{
    while (len >= n && n > 0) {
        const char *hit = memchr(text, what[0], len - n + 1);
        if (!hit || memcmp(hit, what, n) == 0)
            return hit;
        len -= (size_t)(hit + 1 - text);
        text = hit + 1;
    }
    return NULL;
}

bool text_find(const char *what, const char *text, size_t len, size_t from, size_t *at)
{
    size_t n = strlen(what);
    size_t begin =
        from >= n ? from - n + 1 : 0; /* what ends up to `from` was looked at before */
    const char *hit = begin < len ? find(text + begin, len - begin, what, n) : NULL;
    if (hit)
        *at = (size_t)(hit - text);
    return hit != NULL;
}

bool stop_find(const struct opt_list *stops, const char *text, size_t len, size_t from,
               size_t *at)
{
    bool found = false;
    for (size_t i = 0; i < stops->n; i++) {
        size_t hit;
        if (text_find(stops->items[i], text, len, from, &hit) && (!found || hit < *at)) {
            *at = hit;
            found = true;
        }
    }
    return found;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool mark_in_front(const char *mark, const char *text, size_t len, bool *undecided)
{
    size_t n = strlen(mark), at = 0;
    while (at < len && is_space(text[at]))
        at++;
    size_t have = len - at < n ? len - at : n;
    bool same = memcmp(text + at, mark, have) == 0;
    *undecided = same && have < n;
    return same && have == n;
}

bool mark_at_end(const char *mark, const char *text, size_t len)
{
    size_t n = strlen(mark);
    while (len > 0 && is_space(text[len - 1]))
        len--;
    return len >= n && memcmp(text + len - n, mark, n) == 0;
}

char *answer_clean(const char *raw, size_t len, size_t *out_len)
{
    char *out = mem_alloc(3 * len + 1), *p = out; /* a bad byte becomes three */
    if (!out)
        return NULL;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int n = utf8_decode(raw + i, len - i, &cp);
        size_t used = (size_t)(n < 0 ? -n : n);
        bool cut_off = n < 0 && i + used == len && (unsigned char)raw[i] >= 0xc2 &&
                       (unsigned char)raw[i] <= 0xf4;
        if (!cut_off && cp != 0)
            p += utf8_encode(cp, p);
        i += used;
    }
    char *begin = out;
    while (begin < p && is_space(*begin))
        begin++;
    while (p > begin && is_space(p[-1]))
        p--;
    *out_len = (size_t)(p - begin);
    memmove(out, begin, *out_len);
    out[*out_len] = '\0';
    char *fit = mem_resize(out, *out_len + 1);
    return fit ? fit : out;
}

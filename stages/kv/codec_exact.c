#include "stages/kv/codec_exact.h"

#include <string.h>

enum { LANES = 16 };

/* K of a head is [4][head_dim][16]: of the positions of the last group only the first `lanes` are valid.
 * Copies the valid halves of K to or from a dense array. */
static void keys_take(uint16_t *x, const uint16_t *k, int head_dim, int n_tokens)
{
    for (int t = 0; t < n_tokens; t += LANES, k += (size_t)head_dim * LANES) {
        size_t lanes = n_tokens - t < LANES ? (size_t)(n_tokens - t) : LANES;
        if (lanes == LANES) {
            memcpy(x, k, (size_t)head_dim * LANES * sizeof(*x));
            x += (size_t)head_dim * LANES;
            continue;
        }
        for (int c = 0; c < head_dim; c++, x += lanes)
            memcpy(x, k + (size_t)c * LANES, lanes * sizeof(*x));
    }
}

static void keys_give(uint16_t *k, const uint16_t *x, int head_dim, int n_tokens)
{
    for (int t = 0; t < n_tokens; t += LANES, k += (size_t)head_dim * LANES) {
        size_t lanes = n_tokens - t < LANES ? (size_t)(n_tokens - t) : LANES;
        if (lanes == LANES) {
            memcpy(k, x, (size_t)head_dim * LANES * sizeof(*x));
            x += (size_t)head_dim * LANES;
            continue;
        }
        for (int c = 0; c < head_dim; c++, x += lanes)
            memcpy(k + (size_t)c * LANES, x, lanes * sizeof(*x));
    }
}

/* The valid halves of K, or of V, of all heads of a slice, to or from x. */
static void halves_take(uint16_t *x, const struct kv_shape *s, const uint16_t *slice,
                        bool values, int n_tokens)
{
    size_t part = PAGE_TOKENS * (size_t)s->head_dim;
    size_t n = (size_t)n_tokens * (size_t)s->head_dim;
    for (int h = 0; h < s->n_kv_head; h++, slice += 2 * part, x += n)
        if (values)
            memcpy(x, slice + part, n * sizeof(*x));
        else
            keys_take(x, slice, s->head_dim, n_tokens);
}

static void halves_give(uint16_t *slice, const uint16_t *x, const struct kv_shape *s,
                        bool values, int n_tokens)
{
    size_t part = PAGE_TOKENS * (size_t)s->head_dim;
    size_t n = (size_t)n_tokens * (size_t)s->head_dim;
    for (int h = 0; h < s->n_kv_head; h++, slice += 2 * part, x += n)
        if (values)
            memcpy(slice + part, x, n * sizeof(*x));
        else
            keys_give(slice, x, s->head_dim, n_tokens);
}

static uint8_t *raw_put(uint8_t *out, const uint16_t *x, size_t n)
{
    memcpy(out, x, n * sizeof(*x));
    return out + n * sizeof(*x);
}

static bool raw_get(struct span *in, uint16_t *x, size_t n)
{
    const uint8_t *from = span_take(in, n * sizeof(*x));
    if (from)
        memcpy(x, from, n * sizeof(*x));
    return from != NULL;
}

uint8_t *exact_put(struct frames *f, const struct exact_parts *p, const struct kv_shape *s,
                   bool split, uint8_t *out, const uint16_t *slice, int n_tokens)
{
    size_t n = exact_halves(s, n_tokens);
    halves_take(p->half, s, slice, false, n_tokens);
    out = split ? keys_put(f, p->tops, s, n_tokens, out, p->half) : raw_put(out, p->half, n);
    halves_take(p->half, s, slice, true, n_tokens);
    return split ? halves_put(f, out, p->half, n) : raw_put(out, p->half, n);
}

bool exact_get(struct frames *f, const struct exact_parts *p, const struct kv_shape *s,
               bool split, struct span *in, uint16_t *slice, int n_tokens)
{
    size_t n = exact_halves(s, n_tokens);
    if (!(split ? keys_get(f, p->tops, s, n_tokens, in, p->half) : raw_get(in, p->half, n)))
        return false;
    halves_give(slice, p->half, s, false, n_tokens);
    if (!(split ? halves_get(f, in, p->half, n) : raw_get(in, p->half, n)))
        return false;
    halves_give(slice, p->half, s, true, n_tokens);
    return true;
}

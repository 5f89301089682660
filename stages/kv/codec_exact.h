/* stages/kv/codec_exact.h - one layer of a page without loss.
 *
 * What:   K of all heads, then V of all heads, of the valid positions only; each raw, or split
 *         (codec_split.h).
 * Not:    clears nothing: positions from n_tokens on are the caller's.
 */
#ifndef QUIRE_KV_CODEC_EXACT_H
#define QUIRE_KV_CODEC_EXACT_H

#include "stages/kv/codec.h"
#include "stages/kv/codec_split.h"

/* Halves of K, or of V, of n_tokens positions of a layer. */
static inline size_t exact_halves(const struct kv_shape *s, int n_tokens)
{
    return (size_t)s->n_kv_head * (size_t)n_tokens * (size_t)s->head_dim;
}

/* Scratch of one layer. */
struct exact_parts {
    uint16_t *half; /* [exact_halves()] */
    uint8_t *tops;  /* [2 * n_kv_head * head_dim] */
};

static inline size_t exact_bound(const struct kv_shape *s)
{
    size_t n = exact_halves(s, PAGE_TOKENS);
    return keys_bound(n, exact_halves(s, 1)) + halves_bound(n);
}

/* put returns the end of what it wrote; get returns false for bytes that put does not write. */
uint8_t *exact_put(struct frames *f, const struct exact_parts *p, const struct kv_shape *s,
                   bool split, uint8_t *out, const uint16_t *slice, int n_tokens);
bool exact_get(struct frames *f, const struct exact_parts *p, const struct kv_shape *s,
               bool split, struct span *in, uint16_t *slice, int n_tokens);

#endif

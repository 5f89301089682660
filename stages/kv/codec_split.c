#include "stages/kv/codec_split.h"

#include <string.h>

enum { LANES = 16 };

/* One group of tokens; inline, so that the loop over a whole group has a constant length.
 * tops: largest magnitudes so far; minus: negative keys so far, at most 64. */
static inline void see_group(uint8_t *restrict tops, uint8_t *restrict minus,
                             const uint8_t *restrict high, int head_dim, int lanes)
{
    for (int c = 0; c < head_dim; c++, high += lanes) {
        uint8_t top = tops[c], n = minus[c];
        for (int i = 0; i < lanes; i++) {
            uint8_t magnitude = high[i] & 0x7f;
            top = magnitude > top ? magnitude : top;
            n = (uint8_t)(n + (high[i] >> 7));
        }
        tops[c] = top;
        minus[c] = n;
    }
}

/* Its own inverse; bytes that put does not write wrap around. */
static inline void turn_group(uint8_t *restrict high, const uint8_t *restrict tops,
                              int head_dim, int lanes)
{
    for (int c = 0; c < head_dim; c++, high += lanes)
        for (int i = 0; i < lanes; i++)
            high[i] = (uint8_t)(((tops[c] - high[i]) & 0x7f) | ((tops[c] ^ high[i]) & 0x80));
}

static void find_tops(uint8_t *tops, const uint8_t *high, const struct kv_shape *s,
                      int n_tokens)
{
    size_t n_tops = (size_t)s->n_kv_head * (size_t)s->head_dim;
    uint8_t *minus = tops + n_tops;
    memset(tops, 0, 2 * n_tops);
    for (int h = 0; h < s->n_kv_head; h++)
        for (int t = 0, at = h * s->head_dim; t < n_tokens; t += LANES) {
            int lanes = n_tokens - t < LANES ? n_tokens - t : LANES;
            if (lanes == LANES)
                see_group(tops + at, minus + at, high, s->head_dim, LANES);
            else
                see_group(tops + at, minus + at, high, s->head_dim, lanes);
            high += (size_t)s->head_dim * (size_t)lanes;
        }
    for (size_t i = 0; i < n_tops; i++)
        tops[i] = (uint8_t)(tops[i] | 3 | (2 * minus[i] > n_tokens ? 0x80 : 0));
}

static void turn_high_bytes(uint8_t *high, const uint8_t *tops, const struct kv_shape *s,
                            int n_tokens)
{
    for (int h = 0; h < s->n_kv_head; h++)
        for (int t = 0; t < n_tokens; t += LANES) {
            int lanes = n_tokens - t < LANES ? n_tokens - t : LANES;
            if (lanes == LANES)
                turn_group(high, tops + h * s->head_dim, s->head_dim, LANES);
            else
                turn_group(high, tops + h * s->head_dim, s->head_dim, lanes);
            high += (size_t)s->head_dim * (size_t)lanes;
        }
}

uint8_t *keys_put(struct frames *f, uint8_t *tops, const struct kv_shape *s, int n_tokens,
                  uint8_t *out, const uint16_t *k)
{
    size_t n_tops = (size_t)s->n_kv_head * (size_t)s->head_dim, n = n_tops * (size_t)n_tokens;
    halves_split(k, n, out, f->high);
    find_tops(tops, f->high, s, n_tokens);
    turn_high_bytes(f->high, tops, s, n_tokens);
    out = frame_put(f, out + n, tops, n_tops);
    return frame_put(f, out, f->high, n);
}

bool keys_get(struct frames *f, uint8_t *tops, const struct kv_shape *s, int n_tokens,
              struct span *in, uint16_t *k)
{
    size_t n_tops = (size_t)s->n_kv_head * (size_t)s->head_dim, n = n_tops * (size_t)n_tokens;
    const uint8_t *low = span_take(in, n);
    if (!low || !frame_get(f, in, tops, n_tops) || !frame_get(f, in, f->high, n))
        return false;
    turn_high_bytes(f->high, tops, s, n_tokens);
    halves_merge(k, n, low, f->high);
    return true;
}

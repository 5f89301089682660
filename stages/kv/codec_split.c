#include "stages/kv/codec_split.h"

#include <string.h>

enum { LANES = 16 };

/* One group of tokens; inline, so that the loop over a whole group has a constant length. */
static inline void raise_tops(uint8_t *restrict tops, const uint8_t *restrict high,
                              int head_dim, int lanes)
{
    for (int c = 0; c < head_dim; c++, high += lanes) {
        uint8_t top = tops[c];
        for (int i = 0; i < lanes; i++)
            top = high[i] > top ? high[i] : top;
        tops[c] = top;
    }
}

/* Its own inverse; bytes that put does not write wrap around. */
static inline void take_from_tops(uint8_t *restrict high, const uint8_t *restrict tops,
                                  int head_dim, int lanes)
{
    for (int c = 0; c < head_dim; c++, high += lanes)
        for (int i = 0; i < lanes; i++)
            high[i] = (uint8_t)(tops[c] - high[i]);
}

static void find_tops(uint8_t *tops, const uint8_t *high, const struct kv_shape *s,
                      int n_tokens)
{
    size_t n_tops = (size_t)s->n_kv_head * (size_t)s->head_dim;
    memset(tops, 0, n_tops);
    for (int h = 0; h < s->n_kv_head; h++)
        for (int t = 0; t < n_tokens; t += LANES) {
            int lanes = n_tokens - t < LANES ? n_tokens - t : LANES;
            if (lanes == LANES)
                raise_tops(tops + h * s->head_dim, high, s->head_dim, LANES);
            else
                raise_tops(tops + h * s->head_dim, high, s->head_dim, lanes);
            high += (size_t)s->head_dim * (size_t)lanes;
        }
    for (size_t i = 0; i < n_tops; i++)
        tops[i] |= 7;
}

static void turn_high_bytes(uint8_t *high, const uint8_t *tops, const struct kv_shape *s,
                            int n_tokens)
{
    for (int h = 0; h < s->n_kv_head; h++)
        for (int t = 0; t < n_tokens; t += LANES) {
            int lanes = n_tokens - t < LANES ? n_tokens - t : LANES;
            if (lanes == LANES)
                take_from_tops(high, tops + h * s->head_dim, s->head_dim, LANES);
            else
                take_from_tops(high, tops + h * s->head_dim, s->head_dim, lanes);
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

/* stages/kv/codec_split.h - the keys of one layer, split, relative to what is usual in their channel.
 *
 * What:   keys of one channel are mostly of one size and one sign, those of different channels are not. So the
 *         high bytes of K (sign, exponent, two bits of the mantissa) are stored as distances from the largest
 *         magnitude of their channel, with the sign turned round where most keys of the channel are negative:
 *
 *     low     n bytes                 as in halves (codec_frame.h)
 *     frame   tops                    [head][channel]: the most frequent sign, the largest exponent, two ones
 *     frame   high                    sign ^ sign of top, (top - magnitude) mod 128
 *
 *         Values gain nothing by this, whether by channel or by token, and are plain halves.
 */
#ifndef QUIRE_KV_CODEC_SPLIT_H
#define QUIRE_KV_CODEC_SPLIT_H

#include "stages/kv/codec.h"
#include "stages/kv/codec_frame.h"

static inline size_t keys_bound(size_t n, size_t n_tops)
{
    return n + frame_bound(n_tops) + frame_bound(n);
}

/* k: the keys of n_tokens positions, per head [groups of 16 tokens][head_dim][tokens of the group].
 * tops: scratch, [2 * n_kv_head * head_dim]. */
uint8_t *keys_put(struct frames *f, uint8_t *tops, const struct kv_shape *s, int n_tokens,
                  uint8_t *out, const uint16_t *k);
bool keys_get(struct frames *f, uint8_t *tops, const struct kv_shape *s, int n_tokens,
              struct span *in, uint16_t *k);

#endif

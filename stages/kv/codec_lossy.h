/* stages/kv/codec_lossy.h - one layer of a full page in fewer bits.
 *
 * What:   which halves of a slice share a scale, and the order of what is stored.
 *
 *     halves  scales of K, scales of V        (and minima; head by head)
 *     frame   K: [head][channel][...]         64 bytes a channel, or 2 groups of 16
 *     frame   V: [head][token][...]           head_dim bytes a token, or head_dim / 2
 */
#ifndef QUIRE_KV_CODEC_LOSSY_H
#define QUIRE_KV_CODEC_LOSSY_H

#include "stages/kv/codec_frame.h"
#include "stages/kv/codec_policy.h"

/* Scratch of one layer: scales and one plane. */
struct lossy_parts {
    uint16_t *scales;
    uint8_t *codes;
};

/* Items that one layer needs at most, for any policy. */
size_t lossy_max_scales(const struct kv_shape *s);
size_t lossy_max_codes(const struct kv_shape *s);

/* No layer has more scales than one of 4 bits, nor more codes than one of 8. */
static inline size_t lossy_bound(const struct kv_shape *s)
{
    return halves_bound(lossy_max_scales(s)) + lossy_max_codes(s) + 2 * frame_bound(0);
}

uint8_t *lossy_put(struct frames *f, const struct lossy_parts *p, const struct kv_shape *s,
                   struct codec_layer bits, uint8_t *out, const uint16_t *slice);
bool lossy_get(struct frames *f, const struct lossy_parts *p, const struct kv_shape *s,
               struct codec_layer bits, struct span *in, uint16_t *slice);

#endif

/* stages/kv/codec_q8.h - one layer of a full page in 8 bits, which is kept in memory as it is stored.
 *
 * What:   from a slice of halves to one of 8 bits (kernels.h: kern_q8_slice_bytes), and such a slice as bytes.
 *
 *     halves  scales of K, scales of V        head by head
 *     frame   K: [head][channel][64]
 *     frame   V: [head][token][head_dim]
 *
 * Not:    the other lossy codecs, whose pages are halves in memory (codec_lossy.h).
 */
#ifndef QUIRE_KV_CODEC_Q8_H
#define QUIRE_KV_CODEC_Q8_H

#include "stages/kv/codec_lossy.h"

/* to and from do not overlap. */
void q8_shrink(uint8_t *to, const uint16_t *from, const struct kv_shape *s);

uint8_t *q8_put(struct frames *f, const struct lossy_parts *p, const struct kv_shape *s,
                uint8_t *out, const uint8_t *slice);
/* False for what q8_put() does not write; scales that are not finite or below 0 are among that. */
bool q8_get(struct frames *f, const struct lossy_parts *p, const struct kv_shape *s,
            struct span *in, uint8_t *slice);

#endif

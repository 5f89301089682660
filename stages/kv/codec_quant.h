/* stages/kv/codec_quant.h - a group of halves in 8 or 4 bits.
 *
 * What:   the arithmetic of the lossy codecs, one group at a time; docs/kv-codecs.md has the formulas.
 * Not:    knows no pages: codec_lossy.c says which halves are a group.
 * Rules:  1. Integers and single IEEE operations only, so that every compiler and CPU gives the same bytes.
 *         2. Every input is defined, NaN and infinity too (they are taken for large numbers), and what get
 *            gives is finite.
 *         3. x and q do not overlap; n >= 2, even for 4 bits.
 */
#ifndef QUIRE_KV_CODEC_QUANT_H
#define QUIRE_KV_CODEC_QUANT_H

#include <stdint.h>

/* q[n], symmetric: x = scale * q, |q| <= 127. */
void quant8_put(const uint16_t *x, int n, uint16_t *scale, uint8_t *q);
void quant8_get(uint16_t *x, int n, uint16_t scale, const uint8_t *q);

/* q[n/2]: x = scale * q + min, 0 <= q <= 15; the first half of the group is in the low nibbles.
 * range: scale, then min. */
void quant4_put(const uint16_t *x, int n, uint16_t range[2], uint8_t *q);
void quant4_get(uint16_t *x, int n, const uint16_t range[2], const uint8_t *q);

/* q[n/2], nibbles as above: x = scale * (q - nought), 0 is exact, and is what |x| < zero/64 of the largest becomes.
 * nought, the code of 0, is in the four lowest bits of scale. */
void quant4_sparse_put(const uint16_t *x, int n, int zero, uint16_t *scale, uint8_t *q);
void quant4_sparse_get(uint16_t *x, int n, uint16_t scale, const uint8_t *q);

#endif

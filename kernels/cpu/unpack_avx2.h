/* kernels/cpu/unpack_avx2.h - packed records in AVX2 registers.
 *
 * What:   one 32-byte vector is 8 outputs (half 0: outputs 0..7, half 1: 8..15) by the 4 k of a step.
 *         `bits` is a constant in every caller, so that each function shrinks to a few instructions.
 */
#ifndef QUIRE_KERNELS_CPU_UNPACK_AVX2_H
#define QUIRE_KERNELS_CPU_UNPACK_AVX2_H

#include "kernels/cpu/packed.h"
#include "kernels/cpu/simd_avx2.h"

TILE_INLINE __m256i low_nibbles(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

TILE_INLINE __m256i high_nibbles(__m256i v)
{
    return low_nibbles(_mm256_srli_epi16(v, 4));
}

/* Shift bits of every byte left by n (right by -n); the caller masks what crosses into neighbours. */
TILE_INLINE __m256i shift_bits(__m256i v, int n)
{
    return n >= 0 ? _mm256_slli_epi16(v, n) : _mm256_srli_epi16(v, -n);
}

/* Stored weights of one step (k = 4*step ..), 4 to 6 bits each. */
TILE_INLINE __m256i record_step(int bits, const uint8_t *rec, int step, int half)
{
    __m256i unit = load_bytes(rec + step / 2 * RECORD_UNIT + 32 * half);
    __m256i q = step % 2 ? high_nibbles(unit) : low_nibbles(unit);
    if (bits == 5) {
        __m256i high = load_bytes(rec + 256 + 32 * half);
        high = _mm256_and_si256(shift_bits(high, 4 - step), _mm256_set1_epi8(0x10));
        q = _mm256_or_si256(q, high);
    }
    if (bits == 6) {
        __m256i high = load_bytes(rec + 256 + step / 4 * RECORD_UNIT + 32 * half);
        high = _mm256_and_si256(shift_bits(high, 4 - 2 * (step % 4)), _mm256_set1_epi8(0x30));
        q = _mm256_or_si256(q, high);
    }
    return q;
}

/* Row i of the scales of record b: i = n_scales is the minimum. */
TILE_INLINE __m256 record_scale8(const struct record_form *f, const uint8_t *rec, int b, int i,
                                 int half)
{
    const uint8_t *s = rec + record_scales_at(f) + (i * PANEL + 8 * half) * (f->shared ? 1 : 2);
    if (!f->shared)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)s));
    const uint8_t *shared = shared_row(f, rec, b, i == f->n_scales) + 16 * half;
    __m256i small = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)s));
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)shared)),
                         _mm256_cvtepi32_ps(small));
}

#endif

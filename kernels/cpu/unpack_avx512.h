/* kernels/cpu/unpack_avx512.h - packed records in AVX-512 registers.
 *
 * What:   one vector is a record's 16 outputs by the 4 k of a step. `bits` is a constant in every caller.
 */
#ifndef QUIRE_KERNELS_CPU_UNPACK_AVX512_H
#define QUIRE_KERNELS_CPU_UNPACK_AVX512_H

#include "kernels/cpu/packed.h"
#include "kernels/cpu/simd_avx512.h"

/* Bits of every byte moved left by n (right by -n), those of `mask` kept and joined with v. */
TILE_INLINE __m512i join_bits(__m512i v, __m512i bits, int n, int mask)
{
    bits =
        n >= 0 ? _mm512_slli_epi16(bits, (unsigned)n) : _mm512_srli_epi16(bits, (unsigned)-n);
    return _mm512_ternarylogic_epi32(v, bits, _mm512_set1_epi8((char)mask), 0xf8);
}

/* Stored weights of one step (k = 4*step ..). */
TILE_INLINE __m512i record_step16(int bits, const uint8_t *rec, int step)
{
    if (bits == 8)
        return _mm512_loadu_si512(rec + step * RECORD_UNIT);
    __m512i unit = _mm512_loadu_si512(rec + step / 2 * RECORD_UNIT);
    __m512i q =
        _mm512_and_si512(step % 2 ? _mm512_srli_epi16(unit, 4) : unit, _mm512_set1_epi8(15));
    if (bits == 5)
        q = join_bits(q, _mm512_loadu_si512(rec + 256), 4 - step, 0x10);
    if (bits == 6)
        q = join_bits(q, _mm512_loadu_si512(rec + 256 + step / 4 * RECORD_UNIT),
                      4 - 2 * (step % 4), 0x30);
    return q;
}

/* Row i of a record's scales: i = n_scales is the minimum. shared[16]: what it has in common with other records, for
 * types that share. */
TILE_INLINE __m512 record_scale16(const struct record_form *f, const uint8_t *rec,
                                  const float *shared, int i)
{
    const uint8_t *s = rec + record_scales_at(f) + i * PANEL * (f->shared ? 1 : 2);
    if (!f->shared)
        return load_halves16((const uint16_t *)(const void *)s);
    __m512i small = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)s));
    return _mm512_mul_ps(_mm512_load_ps(shared), _mm512_cvtepi32_ps(small));
}

#endif

/* kernels/cpu/simd_avx512.h - what the AVX-512 files share.
 *
 * Rules:  only *_avx512.c include it: they alone are compiled for AVX-512 F, BW, DQ, VL and VNNI. All
 *         functions are static, so that none of these instructions can be linked into code that runs on
 *         every machine. One vector holds the 16 lanes in which the contract sums along a row.
 */
#ifndef QUIRE_KERNELS_CPU_SIMD_AVX512_H
#define QUIRE_KERNELS_CPU_SIMD_AVX512_H

#include "kernels/cpu/simd_avx2.h"

/* As PIN, for any of the 32 registers. clang keeps a tile's order as written and needs none. */
#ifdef __clang__
#define PIN_WIDE(x)
#else
#define PIN_WIDE(x) __asm__ volatile("" : "+v"(x))
#endif

/* s = fma(x, y, s) of a tile: s stays where it is. Compilers otherwise copy sums to and fro. */
TILE_INLINE void add_product16(__m512 *s, __m512 x, __m512 y)
{
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(*s) : "v"(x), "v"(y));
}

/* For x <= 88 and -inf: the bits of exp_scalar without its clamp. */
static inline __m512 exp16_below(__m512 x)
{
    const __m512 magic = _mm512_set1_ps(MAGIC), high = _mm512_set1_ps(EXP_LOG2E_HIGH);
    __m512 t = _mm512_fmadd_ps(x, high, magic);
    __m512 k = _mm512_sub_ps(t, magic);
    __m512 f = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E_LOW), _mm512_fmsub_ps(x, high, k));
    __m512 p = _mm512_set1_ps(EXP_C6);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP_C1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    __mmask16 seen = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LOWEST), _CMP_GE_OQ);
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(
        seen, _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

/* min takes its second operand for NaN, as exp_scalar's comparison does. */
static inline __m512 exp16(__m512 x)
{
    return exp16_below(_mm512_min_ps(x, _mm512_set1_ps(EXP_HIGHEST)));
}

static inline float fold16_avx512(__m512 v)
{
    return fold16_avx2(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

static inline float max16(__m512 v)
{
    return max8(_mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}

/* The first n lanes (all of them from 16 up), n >= 0. */
static inline __mmask16 first_lanes(int n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
}

/* Values x[0..15] of which n are left: zero beyond, and nothing beyond is touched. */
static inline __m512 load_left16(const float *x, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), x);
}

static inline void store_left16(float *x, int n, __m512 v)
{
    _mm512_mask_storeu_ps(x, first_lanes(n), v);
}

static inline __m512 load_halves16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* Sixteen bytes with signs. */
static inline __m512 load_signed16(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

#endif

/* kernels/cpu/simd_avx2.h - what the AVX2 files share.
 *
 * Rules:  only *_avx2.c include it: they alone are compiled for AVX2, FMA and F16C. All functions are
 *         static, so that no AVX instruction can be linked into code that runs on every machine.
 *         Two vectors of 8 are the 16 lanes in which the contract sums along a row.
 */
#ifndef QUIRE_KERNELS_CPU_SIMD_AVX2_H
#define QUIRE_KERNELS_CPU_SIMD_AVX2_H

#include "kernels/cpu/exp.h"

#include <immintrin.h>

/* A tile's loops over rows and halves must vanish, or its sums live in memory. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define TILE_INLINE static inline __attribute__((always_inline))

/* Keeps a sum in its register at this point: compilers otherwise reorder a tile's sums and spill them. */
#define PIN(x) __asm__ volatile("" : "+x"(x))

/* s = fma(x, y, s) of a tile: s stays where it is. Compilers otherwise copy sums to and fro. */
TILE_INLINE void add_product8(__m256 *s, __m256 x, __m256 y)
{
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*s) : "x"(x), "x"(y));
}

/* For x <= 88 and -inf: the bits of exp_scalar without its clamp. */
static inline __m256 exp8_below(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(MAGIC), high = _mm256_set1_ps(EXP_LOG2E_HIGH);
    __m256 t = _mm256_fmadd_ps(x, high, magic);
    __m256 k = _mm256_sub_ps(t, magic);
    __m256 f = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E_LOW), _mm256_fmsub_ps(x, high, k));
    __m256 p = _mm256_set1_ps(EXP_C6);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(EXP_C5));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(EXP_C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(EXP_C1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
    __m256i scaled =
        _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23));
    return _mm256_and_ps(_mm256_castsi256_ps(scaled),
                         _mm256_cmp_ps(x, _mm256_set1_ps(EXP_LOWEST), _CMP_GE_OQ));
}

/* min takes its second operand for NaN, as exp_scalar's comparison does. */
static inline __m256 exp8(__m256 x)
{
    return exp8_below(_mm256_min_ps(x, _mm256_set1_ps(EXP_HIGHEST)));
}

/* fold16 of lanes 0..7 and 8..15. */
static inline float fold16_avx2(__m256 low, __m256 high)
{
    __m256 v8 = _mm256_add_ps(low, high);
    __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

static inline float max8(__m256 v)
{
    __m128 v4 = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
}

/* All ones in the lanes below n (all of them from 8 up, none from 0 down). */
static inline __m256i lanes_below(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Values x[0..7] of which n are left: zero beyond, and nothing beyond is touched. */
static inline __m256 load_left(const float *x, int n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes_below(n));
}

static inline void store_left(float *x, int n, __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(x, v);
    else
        _mm256_maskstore_ps(x, lanes_below(n), v);
}

static inline __m256i load_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256 load_halves(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* Eight bytes with signs. */
static inline __m256 load_signed(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

#endif

/* kernels/cpu/exp.h - exp, the constants for every table and the definition.
 *
 *   c = x < 88 ? x : 88                    NaN becomes 88
 *   t = fma(c, H, M);  k = t - M           k = c*log2(e) rounded to an integer, also in t's low bits
 *   f = fma(c, L, fma(c, H, -k))           the rest, |f| <= 1/2
 *   p = 2^f by a polynomial of degree 6
 *   exp = c >= -69 ? p * 2^k : +0
 * Error 1.01 ulp; exp(+-0) = 1 exactly. The cut at -69 keeps a weight of attention times a half normal.
 */
#ifndef QUIRE_KERNELS_CPU_EXP_H
#define QUIRE_KERNELS_CPU_EXP_H

#include "kernels/cpu/fma.h"
#include "kernels/cpu/half.h"

#define EXP_LOWEST (-69.0f)
#define EXP_HIGHEST 88.0f
#define EXP_LOG2E_HIGH 0x1.715476p+0f
#define EXP_LOG2E_LOW 0x1.4ae0cp-26f

/* 1.5 * 2^23: added to a number below 2^22 in size it leaves its nearest integer in the low bits. */
#define MAGIC 12582912.0f
#define MAGIC_BITS 0x4b400000

/* 2^f on [-1/2, 1/2], constant term 1: a minimax fit of 3.0e-9. */
#define EXP_C1 0x1.62e430p-1f
#define EXP_C2 0x1.ebfbdcp-3f
#define EXP_C3 0x1.c6af7cp-5f
#define EXP_C4 0x1.3b2de0p-7f
#define EXP_C5 0x1.5f082ep-10f
#define EXP_C6 0x1.416b52p-13f

static inline float exp_scalar(float x)
{
    float c = x < EXP_HIGHEST ? x : EXP_HIGHEST;
    float t = fma32(c, EXP_LOG2E_HIGH, MAGIC);
    float k = t - MAGIC;
    float f = fma32(c, EXP_LOG2E_LOW, fma32(c, EXP_LOG2E_HIGH, -k));
    float p = EXP_C6;
    p = fma32(p, f, EXP_C5);
    p = fma32(p, f, EXP_C4);
    p = fma32(p, f, EXP_C3);
    p = fma32(p, f, EXP_C2);
    p = fma32(p, f, EXP_C1);
    p = fma32(p, f, 1.0f);
    return c >= EXP_LOWEST ? float_of_bits(float_bits(p) + (float_bits(t) << 23)) : 0.0f;
}

/* Sums along a row are kept in 16 lanes, value i in lane i % 16, and folded by this tree. */
static inline float fold16(float *v)
{
    for (int h = 8; h > 0; h /= 2)
        for (int l = 0; l < h; l++)
            v[l] = v[l] + v[l + h];
    return v[0];
}

#endif

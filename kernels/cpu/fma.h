/* kernels/cpu/fma.h - x * y + z rounded once, for compilers that may not use an instruction for it.
 *
 * What:   the product of two floats is exact as a double. So is the side of a midpoint of two floats that a sum is on: those
 *         are doubles, and rounding keeps the order. Only a sum that was rounded to such a midpoint, or lies where
 *         floats lose bits, needs the rest of the sum: rounded to odd, it may be rounded again. fmaf(3) does as much, but
 *         through the flags of the CPU, at fifty times the price.
 * Rules:  the bits of fmaf() for all numbers (kcheck).
 * Source: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd",
 *         IEEE Transactions on Computers 57(4), 2008.
 */
#ifndef QUIRE_KERNELS_CPU_FMA_H
#define QUIRE_KERNELS_CPU_FMA_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { FMA_LANES = 16 };

static inline uint64_t double_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

/* Top bit: s must not be rounded as it is. */
static inline uint64_t fma_unsafe(double s)
{
    const uint64_t midpoint = 0x10000000, below = 0x1fffffff, least = UINT64_C(0x381) << 52;
    uint64_t u = double_bits(s);
    uint64_t at_midpoint = ((u & below) ^ midpoint) - 1, tiny = (u & INT64_MAX) - least;
    return at_midpoint | tiny;
}

static inline float fma_careful(float x, float y, float z)
{
    double p = (double)x * (double)y, s = p + (double)z;
    double shadow = s - p, rest = (p - (s - shadow)) + ((double)z - shadow);
    uint64_t u = double_bits(s);
    if ((rest > 0 || rest < 0) && u % 2 == 0)
        u = (rest > 0) == (s > 0) ? u + 1 : u - 1;
    memcpy(&s, &u, sizeof(s));
    return (float)s;
}

#ifdef __FP_FAST_FMAF
static inline float fma32(float x, float y, float z)
{
    return fmaf(x, y, z);
}
#else
static inline float fma32(float x, float y, float z)
{
    double s = (double)x * (double)y + (double)z;
    return fma_unsafe(s) >> 63 ? fma_careful(x, y, z) : (float)s;
}
#endif

/* z[i] = x[i] * y + z[i] */
static inline void fma_lanes(float *restrict z, const float *restrict x, float y)
{
#ifdef __FP_FAST_FMAF
    for (int i = 0; i < FMA_LANES; i++)
        z[i] = fmaf(x[i], y, z[i]);
#else
    float out[FMA_LANES];
    uint64_t unsafe = 0;
    for (int i = 0; i < FMA_LANES; i++) {
        double s = (double)x[i] * (double)y + (double)z[i];
        out[i] = (float)s;
        unsafe |= fma_unsafe(s);
    }
    for (int i = 0; unsafe >> 63 && i < FMA_LANES; i++)
        out[i] = fma_careful(x[i], y, z[i]);
    memcpy(z, out, sizeof(out));
#endif
}

#endif

/* kernels/cpu/half.h - bits of floats, binary16 and bfloat16, one value at a time.
 *
 * Rules:  the same results as F16C's instructions for every input, NaN included (kcheck tries them all).
 */
#ifndef QUIRE_KERNELS_CPU_HALF_H
#define QUIRE_KERNELS_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The bits without the sign: ordered as magnitudes, infinity and NaN from 0x7f800000 up. */
static inline uint32_t float_magnitude(float f)
{
    return float_bits(f) & 0x7fffffff;
}

static inline float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31) /* a signalling NaN becomes quiet */
        return float_of_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent)
        return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f;
    return sign ? -f : f;
}

/* half_to_float() of 16 values, without branches, so that compilers make vectors of it: as a float, the bits of a half
 * are 2^112 too small, subnormals too. */
static inline void halves_to_floats(float *restrict out, const uint16_t *restrict in)
{
    for (int i = 0; i < 16; i++) {
        uint32_t bits = (uint32_t)(in[i] & 0x7fff) << 13, sign = (uint32_t)(in[i] & 0x8000)
                                                                 << 16;
        uint32_t special = bits >= 0x0f800000 ? 0x7f800000u : 0;
        uint32_t quiet = bits > 0x0f800000 ? 0x400000u : 0;
        out[i] =
            float_of_bits(float_bits(float_of_bits(bits) * 0x1p112f) | sign | special | quiet);
    }
}

/* Sixteen bytes with signs, likewise. */
static inline void bytes_to_floats(float *restrict out, const int8_t *restrict in)
{
    for (int i = 0; i < 16; i++)
        out[i] = in[i];
}

/* Round to nearest even; 65520 and above give infinity. */
static inline uint16_t float_to_half(float x)
{
    uint32_t sign = float_bits(x) >> 16 & 0x8000, a = float_magnitude(x);
    if (a > 0x7f800000) /* NaN: quiet, top payload bits kept */
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) { /* a multiple of 2^-24, the ulp of [0.5, 1): this sum rounds it */
        float t = float_of_bits(a) + 0.5f;
        return (uint16_t)(sign | (float_bits(t) - 0x3f000000));
    }
    return (uint16_t)(sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
}

static inline float bfloat_to_float(uint16_t b)
{
    return float_of_bits((uint32_t)b << 16);
}

/* Bytes of any alignment, little-endian. */
static inline uint16_t load16(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t load32(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

#endif

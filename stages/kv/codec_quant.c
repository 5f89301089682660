/* The loops are plain C that compilers turn into SIMD: no branch, no float reduction (largest and smallest are
 * found among integers), conversions by shifts.
 *
 * A scale is the smallest half that reaches the largest value (127 * scale >= largest), so no q needs a clamp:
 * rounding the scale to nearest would push the largest value out of range half of the time. */
#include "stages/kv/codec_quant.h"

#include "kernels/cpu/half.h"

/* The halves with exponent 31 continue the numbers here: 65536 to 131008. Exact, and never NaN. */
static inline float widen(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t normal = bits + (112u << 23);
    /* Without the leading one: put one there and take it away. */
    uint32_t small = float_bits(float_of_bits(bits + (113u << 23)) - 0x1p-14f);
    return float_of_bits(sign | (bits < (1u << 23) ? small : normal));
}

/* To nearest even as float_to_half(), but what would round to infinity is the greatest half. x is no NaN. */
static inline uint16_t narrow(float x)
{
    uint32_t u = float_bits(x);
    int32_t a = (int32_t)(u & 0x7fffffff);
    a = a < 0x477fe000 ? a : 0x477fe000;
    int32_t normal = (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13;
    int32_t small = (int32_t)float_bits(float_of_bits((uint32_t)a) + 0.5f) - 0x3f000000;
    return (uint16_t)((u >> 16 & 0x8000) | (uint32_t)(a < 0x38800000 ? small : normal));
}

/* Rounds to nearest even: the integer is then in the low bits. |x| < 2^21. */
static inline uint32_t round_bits(float x)
{
    return float_bits(x + 12582912.0f);
}

static inline int32_t rounded(float x)
{
    return (int32_t)(round_bits(x) - 0x4b400000);
}

static int largest_magnitude(const uint16_t *x, int n)
{
    int16_t most = 0;
    for (int i = 0; i < n; i++) {
        int16_t m = (int16_t)(x[i] & 0x7fff);
        most = m > most ? m : most;
    }
    return most;
}

/* The smallest half s with s * steps >= reach: the product of 11 by at most 7 bits is exact. */
static uint16_t scale_for(float reach, float steps)
{
    uint16_t s = narrow(reach / steps);
    return widen(s) * steps < reach ? (uint16_t)(s + 1) : s;
}

static float inverse(uint16_t scale)
{
    return scale ? 1.0f / widen(scale) : 0.0f;
}

void quant8_put(const uint16_t *restrict x, int n, uint16_t *restrict scale,
                uint8_t *restrict q)
{
    *scale = scale_for(widen((uint16_t)largest_magnitude(x, n)), 127.0f);
    float by = inverse(*scale);
    for (int i = 0; i < n; i++)
        q[i] = (uint8_t)round_bits(widen(x[i]) * by);
}

void quant8_get(uint16_t *restrict x, int n, uint16_t scale, const uint8_t *restrict q)
{
    float d = widen(scale);
    for (int i = 0; i < n; i++)
        x[i] = narrow((float)(int8_t)q[i] * d);
}

/* Halves as integers in the order of their values, -0 before +0; its own inverse. */
static inline int16_t in_order(int16_t h)
{
    return (int16_t)(h ^ (h >> 15 & 0x7fff));
}

void quant4_put(const uint16_t *restrict x, int n, uint16_t range[2], uint8_t *restrict q)
{
    int16_t low = INT16_MAX, high = INT16_MIN;
    for (int i = 0; i < n; i++) {
        int16_t v = in_order((int16_t)x[i]);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    range[1] = (uint16_t)in_order(low);
    float min = widen(range[1]);
    range[0] = scale_for(widen((uint16_t)in_order(high)) - min, 15.0f);
    float by = inverse(range[0]);
    const uint16_t *upper = x + n / 2;
    for (int i = 0; i < n / 2; i++) {
        uint32_t a = round_bits((widen(x[i]) - min) * by);
        uint32_t b = round_bits((widen(upper[i]) - min) * by);
        q[i] = (uint8_t)((a & 15) | (b & 15) << 4);
    }
}

void quant4_get(uint16_t *restrict x, int n, const uint16_t range[2], const uint8_t *restrict q)
{
    float d = widen(range[0]), min = widen(range[1]);
    uint16_t *restrict upper = x + n / 2;
    for (int i = 0; i < n / 2; i++)
        x[i] = narrow((float)(q[i] & 15) * d + min);
    for (int i = 0; i < n / 2; i++)
        upper[i] = narrow((float)(q[i] >> 4) * d + min);
}

/* The scale is rounded up once more, to make room for nought in its lowest bits. */
void quant4_sparse_put(const uint16_t *restrict x, int n, int zero, uint16_t *restrict scale,
                       uint8_t *restrict q)
{
    int16_t low = 0, high = 0;
    for (int i = 0; i < n; i++) {
        int16_t v = in_order((int16_t)x[i]);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    float min = widen((uint16_t)in_order(low)), max = widen((uint16_t)high);
    uint16_t s = (uint16_t)((scale_for(max - min, 15.0f) + 15) & ~15);
    float by = inverse(s), most = max > -min ? max : -min;
    int32_t nought = rounded(-min * by);
    int32_t cut = narrow(most * (float)zero * (1.0f / 64));
    *scale = (uint16_t)(s | nought);
    const uint16_t *upper = x + n / 2;
    for (int i = 0; i < n / 2; i++) {
        int32_t a = rounded(widen(x[i]) * by), b = rounded(widen(upper[i]) * by);
        a = ((x[i] & 0x7fff) < cut ? 0 : a) + nought;
        b = ((upper[i] & 0x7fff) < cut ? 0 : b) + nought;
        a = a < 15 ? a : 15;
        b = b < 15 ? b : 15;
        q[i] = (uint8_t)((a & 15) | (b & 15) << 4);
    }
}

void quant4_sparse_get(uint16_t *restrict x, int n, uint16_t scale, const uint8_t *restrict q)
{
    float d = widen(scale & 0xfff0);
    int nought = scale & 15;
    uint16_t *restrict upper = x + n / 2;
    for (int i = 0; i < n / 2; i++)
        x[i] = narrow((float)((q[i] & 15) - nought) * d);
    for (int i = 0; i < n / 2; i++)
        upper[i] = narrow((float)((q[i] >> 4) - nought) * d);
}

/* kernels/cpu/simd_neon.h - vectors of the NEON table: loads that end with the data, exp, 16 lanes as four vectors.
 *
 * Rules:  only *_neon.c and *_dotprod.c include it. Every step rounds as the contract says: vfmaq is fma, and no
 *         product meets a sum otherwise.
 */
#ifndef QUIRE_KERNELS_CPU_SIMD_NEON_H
#define QUIRE_KERNELS_CPU_SIMD_NEON_H

#include "kernels/cpu/exp.h"

#include <arm_neon.h>

/* The first n values of four, the others +0. */
static inline float32x4_t load_left4(const float *x, int n)
{
    if (n >= 4)
        return vld1q_f32(x);
    float v[4] = {0};
    for (int i = 0; i < n; i++)
        v[i] = x[i];
    return vld1q_f32(v);
}

static inline void store_left4(float *x, int n, float32x4_t a)
{
    if (n >= 4) {
        vst1q_f32(x, a);
        return;
    }
    float v[4];
    vst1q_f32(v, a);
    for (int i = 0; i < n; i++)
        x[i] = v[i];
}

/* exp_scalar of each. */
static inline float32x4_t exp4(float32x4_t x)
{
    const float32x4_t most = vdupq_n_f32(EXP_HIGHEST), magic = vdupq_n_f32(MAGIC);
    const float32x4_t high = vdupq_n_f32(EXP_LOG2E_HIGH), low = vdupq_n_f32(EXP_LOG2E_LOW);
    float32x4_t c = vbslq_f32(vcltq_f32(x, most), x, most);
    float32x4_t t = vfmaq_f32(magic, c, high);
    float32x4_t k = vsubq_f32(t, magic);
    float32x4_t f = vfmaq_f32(vfmaq_f32(vnegq_f32(k), c, high), c, low);
    float32x4_t p = vdupq_n_f32(EXP_C6);
    p = vfmaq_f32(vdupq_n_f32(EXP_C5), p, f);
    p = vfmaq_f32(vdupq_n_f32(EXP_C4), p, f);
    p = vfmaq_f32(vdupq_n_f32(EXP_C3), p, f);
    p = vfmaq_f32(vdupq_n_f32(EXP_C2), p, f);
    p = vfmaq_f32(vdupq_n_f32(EXP_C1), p, f);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, f);
    uint32x4_t bits =
        vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(t), 23));
    return vreinterpretq_f32_u32(vandq_u32(bits, vcgeq_f32(c, vdupq_n_f32(EXP_LOWEST))));
}

/* fold16() of the lanes 4i .. 4i+3 in v[i]. */
static inline float fold16_neon(const float32x4_t v[4])
{
    float32x4_t four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Sixteen halves as floats. */
static inline void widen16(float32x4_t out[4], const uint16_t *halves)
{
    uint16x8_t a = vld1q_u16(halves), b = vld1q_u16(halves + 8);
    out[0] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(a)));
    out[1] = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(a)));
    out[2] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(b)));
    out[3] = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(b)));
}

/* Sixteen bytes with signs as floats. */
static inline void signed16(float32x4_t out[4], const int8_t *bytes)
{
    int8x16_t b = vld1q_s8(bytes);
    int16x8_t low = vmovl_s8(vget_low_s8(b)), high = vmovl_s8(vget_high_s8(b));
    out[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    out[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(low)));
    out[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    out[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)));
}

#endif

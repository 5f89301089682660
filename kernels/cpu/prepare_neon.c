#include "kernels/cpu/prepare_rows.h"
#include "kernels/cpu/simd_neon.h"

static bool all_finite(const float *x, int n)
{
    uint32x4_t top = vdupq_n_u32(0);
    int i = 0;
    for (; i + 4 <= n; i += 4)
        top = vmaxq_u32(
            top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffff)));
    uint32_t most = vmaxvq_u32(top);
    for (; i < n; i++)
        most = float_magnitude(x[i]) > most ? float_magnitude(x[i]) : most;
    return most < 0x7f800000;
}

/* The n values of a block that are left, the rest +0, and as int8 in q. Returns d, 0 for a block that counts as zero. */
static float quantise(int32x4_t q[8], float32x4_t v[8], const float *x, int n)
{
    float32x4_t top = vdupq_n_f32(0);
    for (int i = 0; i < 8; i++) {
        v[i] = load_left4(x + 4 * i, n - 4 * i);
        top = vmaxq_f32(top, vabsq_f32(v[i]));
    }
    float amax = vmaxvq_f32(top);
    bool tiny = amax < INPUT_TINY;
    float inverse = tiny ? 0.0f : 127.0f / amax;
    for (int i = 0; i < 8; i++)
        q[i] = vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse));
    return tiny ? 0.0f : amax / 127.0f;
}

static inline void prepare_block(struct input_block *out, int r, const float *x, int n)
{
    float32x4_t v[8];
    int32x4_t q[8], half[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    float d = n > 0 ? quantise(q, v, x, n) : 0.0f;
    for (int i = 0; n > 0 && i < 8; i++) {
        int32_t four[4];
        vst1q_s32(four, q[i]);
        for (int k = 0; k < 4; k++)
            out->q[i][r][k] = (int8_t)four[k];
        half[i / 4] = vaddq_s32(half[i / 4], q[i]);
    }
    if (n <= 0)
        for (int i = 0; i < 8; i++)
            memset(out->q[i][r], 0, 4);
    int high = vaddvq_s32(half[1]), sum = vaddvq_s32(half[0]) + high;
    out->d[r] = d;
    out->s[r] = d * (float)sum;
    out->n[r] = sum;
    out->n_high[r] = high;
}

static void group(const struct preparation *p, int g)
{
    prepare_group(p, g, all_finite, prepare_block);
}

void prepare_neon(struct kern_input *in, uint8_t *bad)
{
    prepare_all((struct preparation){in, bad, group});
}

static void remainder_block(float *out, const float *x, int n)
{
    float32x4_t v[8];
    int32x4_t q[8];
    float d = quantise(q, v, x, n);
    for (int i = 0; i < 8; i++)
        store_left4(out + 4 * i, n - 4 * i, vfmaq_n_f32(v[i], vcvtq_f32_s32(q[i]), -d));
}

static void remainder_row(float *out, const float *x, const float *y, int n, float c)
{
    (void)y;
    (void)c;
    prepare_remainder(out, x, n, all_finite, remainder_block);
}

void remainder_neon(float *out, const float *x, int rows, int n)
{
    size_t ld = (size_t)n;
    share_op(&(struct row_op){remainder_row, out, x, x, ld, ld, ld, n, 0}, rows);
}

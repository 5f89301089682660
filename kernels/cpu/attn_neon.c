/* Attention, a row and head at a time: keys are lanes of the scores, channels lanes of the output. */
#include "kernels/cpu/attn_rows.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/simd_neon.h"

enum { PAGE = KERN_PAGE_TOKENS };

/* Scores of 16 keys from the first of them on: a page holds them side by side, channel by channel. */
static void score_group(float *s, const float *q, const struct kv_part *kv, int first,
                        int head_dim)
{
    float32x4_t acc[4], k[4];
    for (int i = 0; i < 4; i++)
        acc[i] = vdupq_n_f32(0);
    for (int c = 0; c < head_dim; c++) {
        float x = q[c];
        if (kv->key_scales) {
            signed16(k, (const int8_t *)kv->keys + c * PAGE + first);
            x = x * half_to_float(kv->key_scales[c]);
        } else {
            widen16(k, (const uint16_t *)kv->keys + page_key_at(first, c, head_dim));
        }
        for (int i = 0; i < 4; i++)
            acc[i] = vfmaq_n_f32(acc[i], k[i], x);
    }
    for (int i = 0; i < 4; i++)
        vst1q_f32(s + 4 * i, acc[i]);
}

/* Scores become weights, +0 for keys that are not seen: adding that changes no sum. Returns their sum. */
static float weigh(float *s, int begin, int end, float top)
{
    float32x4_t v[4];
    for (int i = 0; i < 4; i++)
        v[i] = vdupq_n_f32(0);
    for (int j = 0; j < PAGE; j += 4) {
        float32x4_t e = exp4(vsubq_f32(vld1q_f32(s + j), vdupq_n_f32(top)));
        vst1q_f32(s + j, e);
        for (int k = j; k < j + 4; k++)
            if (k < begin || k >= end)
                s[k] = 0.0f;
        v[j / 4 % 4] = vaddq_f32(v[j / 4 % 4], vld1q_f32(s + j));
    }
    return fold16_neon(v);
}

/* Channels [c, c + 16) of value j. */
static inline void load_values(float32x4_t x[4], const struct kv_part *kv, int j, int c,
                               int head_dim)
{
    size_t at = (size_t)j * (size_t)head_dim + (size_t)c;
    if (kv->value_scales)
        signed16(x, (const int8_t *)kv->values + at);
    else
        widen16(x, (const uint16_t *)kv->values + at);
}

static void add_values(float *out, float *s, const struct kv_part *kv, int begin, int end,
                       float shrink, int head_dim)
{
    for (int j = begin; kv->value_scales && j < end; j++)
        s[j] = s[j] * half_to_float(kv->value_scales[j]);
    for (int c = 0; c < head_dim; c += 16) {
        float32x4_t o[4], x[4];
        for (int i = 0; i < 4; i++)
            o[i] = vmulq_n_f32(vld1q_f32(out + c + 4 * i), shrink);
        for (int j = begin; j < end; j++) {
            load_values(x, kv, j, c, head_dim);
            for (int i = 0; i < 4; i++)
                o[i] = vfmaq_n_f32(o[i], x[i], s[j]);
        }
        for (int i = 0; i < 4; i++)
            vst1q_f32(out + c + 4 * i, o[i]);
    }
}

/* attn_page_fn */
static void add_page(struct attn_running *run, float *out, const float *q,
                     const struct kv_part *kv, int begin, int end, int head_dim)
{
    float s[PAGE], top = run->m;
    for (int g = begin / 16; g * 16 < end; g++)
        score_group(s + 16 * g, q, kv, 16 * g, head_dim);
    for (int j = 0; j < PAGE; j++) {
        if (j < begin || j >= end)
            s[j] = ATTN_LOWEST;
        top = s[j] > top ? s[j] : top;
    }
    float shrink = exp_scalar(run->m - top);
    run->l = fmaf(run->l, shrink, weigh(s, begin, end, top));
    run->m = top;
    add_values(out, s, kv, begin, end, shrink, head_dim);
}

void attn_neon(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
               int head_dim, void *scratch)
{
    if (head_dim % 16 != 0)
        attn_ref(calls, n_calls, n_head, n_kv_head, head_dim, scratch);
    else
        attn_by_rows(calls, n_calls, n_head, n_kv_head, head_dim, add_page);
}

/* Attention, a row and head at a time: keys are lanes of the scores, channels lanes of the output. */
#include "kernels/cpu/attn_rows.h"
#include "kernels/cpu/kv_slice.h"
#include "kernels/cpu/simd_neon.h"

enum { PAGE = KERN_PAGE_TOKENS };

/* Scores of 16 keys: groups of a page hold them side by side, channel by channel. */
static void score_group(float *s, const float *q, const uint16_t *keys, int head_dim)
{
    float32x4_t acc[4], k[4];
    for (int i = 0; i < 4; i++)
        acc[i] = vdupq_n_f32(0);
    for (int c = 0; c < head_dim; c++) {
        widen16(k, keys + 16 * c);
        for (int i = 0; i < 4; i++)
            acc[i] = vfmaq_n_f32(acc[i], k[i], q[c]);
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

static void add_values(float *out, const float *s, const uint16_t *values, int begin, int end,
                       float shrink, int head_dim)
{
    for (int c = 0; c < head_dim; c += 16) {
        float32x4_t o[4], x[4];
        for (int i = 0; i < 4; i++)
            o[i] = vmulq_n_f32(vld1q_f32(out + c + 4 * i), shrink);
        for (int j = begin; j < end; j++) {
            widen16(x, values + (size_t)j * (size_t)head_dim + c);
            for (int i = 0; i < 4; i++)
                o[i] = vfmaq_n_f32(o[i], x[i], s[j]);
        }
        for (int i = 0; i < 4; i++)
            vst1q_f32(out + c + 4 * i, o[i]);
    }
}

/* attn_page_fn */
static void add_page(struct attn_running *run, float *out, const float *q,
                     const uint16_t *slice, int begin, int end, int head_dim)
{
    float s[PAGE], top = run->m;
    for (int g = begin / 16; g * 16 < end; g++)
        score_group(s + 16 * g, q, slice + page_key_at(16 * g, 0, head_dim), head_dim);
    for (int j = 0; j < PAGE; j++) {
        if (j < begin || j >= end)
            s[j] = ATTN_LOWEST;
        top = s[j] > top ? s[j] : top;
    }
    float shrink = exp_scalar(run->m - top);
    run->l = fmaf(run->l, shrink, weigh(s, begin, end, top));
    run->m = top;
    add_values(out, s, slice + page_value_at(0, 0, head_dim), begin, end, shrink, head_dim);
}

void attn_neon(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
               int head_dim, void *scratch)
{
    if (head_dim % 16 != 0)
        attn_ref(calls, n_calls, n_head, n_kv_head, head_dim, scratch);
    else
        attn_by_rows(calls, n_calls, n_head, n_kv_head, head_dim, add_page);
}

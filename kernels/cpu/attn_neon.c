/* Attention, a row and head at a time: keys are lanes of the scores, channels lanes of the output. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_slice.h"
#include "kernels/cpu/simd_neon.h"
#include "kernels/team.h"

enum { PAGE = KERN_PAGE_TOKENS };

struct running {
    float m, l;
};

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

static void add_page(struct running *run, float *out, const float *q, const uint16_t *slice,
                     int begin, int end, int head_dim)
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

static void attend(float *out, const float *q, const void *const *slices, struct key_range keys,
                   int kv_head, int head_dim)
{
    struct running run = {ATTN_LOWEST, 0.0f};
    memset(out, 0, (size_t)head_dim * sizeof(*out));
    for (int page = keys.begin / PAGE; page * PAGE < keys.end; page++) {
        int begin = keys.begin > page * PAGE ? keys.begin - page * PAGE : 0;
        int end = keys.end - page * PAGE < PAGE ? keys.end - page * PAGE : PAGE;
        add_page(&run, out, q, (const uint16_t *)slices[page] + page_head_at(kv_head, head_dim),
                 begin, end, head_dim);
    }
    float r = 1.0f / run.l;
    for (int c = 0; c < head_dim; c++)
        out[c] = out[c] * r + 0.0f; /* as in attn_ref.c */
}

struct heads {
    const struct kern_attn_rows *call;
    int n_head, group, head_dim;
};

static void attend_heads(void *arg, int begin, int end, int thread)
{
    const struct heads *h = arg;
    const struct kern_attn_rows *call = h->call;
    (void)thread;
    for (int i = begin; i < end; i++) {
        int row = i / h->n_head, head = i % h->n_head;
        attend(call->out + (size_t)row * call->ld_out + head * h->head_dim,
               call->q + (size_t)row * call->ld_q + head * h->head_dim, call->slices,
               visible_keys(call, row), head / h->group, h->head_dim);
    }
}

void attn_neon(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
               int head_dim, void *scratch)
{
    if (head_dim % 16 != 0) {
        attn_ref(calls, n_calls, n_head, n_kv_head, head_dim, scratch);
        return;
    }
    for (int i = 0; i < n_calls; i++) {
        struct heads h = {&calls[i], n_head, n_head / n_kv_head, head_dim};
        team_run(calls[i].rows * n_head, 1, attend_heads, &h);
    }
}

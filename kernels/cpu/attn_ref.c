#include "kernels/cpu/attn_rows.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/fma.h"

enum { LANES = FMA_LANES };

/* Sixteen values of a page from one of them on, and one alone: bytes where it has scales, else halves. */
static void load_lanes(float *out, const void *from, size_t at, bool bytes)
{
    if (bytes)
        bytes_to_floats(out, (const int8_t *)from + at);
    else
        halves_to_floats(out, (const uint16_t *)from + at);
}

static float load_one(const void *from, size_t at, bool bytes)
{
    return bytes ? ((const int8_t *)from)[at] : half_to_float(((const uint16_t *)from)[at]);
}

/* Scores of 16 keys, those of them that do not count included: they lie side by side. */
static void score_keys(float *s, const float *q, const struct kv_part *kv, int first,
                       int head_dim)
{
    float keys[LANES];
    bool q8 = kv->key_scales != NULL;
    memset(s, 0, LANES * sizeof(*s));
    for (int c = 0; c < head_dim; c++) {
        size_t at =
            q8 ? (size_t)(c * KERN_PAGE_TOKENS + first) : page_key_at(first, c, head_dim);
        load_lanes(keys, kv->keys, at, q8);
        fma_lanes(s, keys, q8 ? q[c] * half_to_float(kv->key_scales[c]) : q[c]);
    }
}

static void add_value(float *out, const struct kv_part *kv, int j, float weight, int head_dim)
{
    float v[LANES];
    bool q8 = kv->value_scales != NULL;
    size_t at = (size_t)j * (size_t)head_dim;
    int c = 0;
    if (q8)
        weight = weight * half_to_float(kv->value_scales[j]);
    for (; c + LANES <= head_dim; c += LANES) {
        load_lanes(v, kv->values, at + (size_t)c, q8);
        fma_lanes(out + c, v, weight);
    }
    for (; c < head_dim; c++)
        out[c] = fma32(load_one(kv->values, at + (size_t)c, q8), weight, out[c]);
}

/* attn_page_fn */
static void add_page(struct attn_running *run, float *out, const float *q,
                     const struct kv_part *kv, int begin, int end, int head_dim)
{
    float s[KERN_PAGE_TOKENS], v[16] = {0}, top = run->m;
    for (int first = begin / LANES * LANES; first < end; first += LANES)
        score_keys(s + first, q, kv, first, head_dim);
    for (int j = begin; j < end; j++)
        top = s[j] > top ? s[j] : top;
    float shrink = exp_scalar(run->m - top);
    for (int j = begin; j < end; j++) {
        s[j] = exp_scalar(s[j] - top);
        v[j % 16] = v[j % 16] + s[j];
    }
    run->l = fma32(run->l, shrink, fold16(v));
    run->m = top;
    for (int c = 0; c < head_dim; c++)
        out[c] = out[c] * shrink;
    for (int j = begin; j < end; j++)
        add_value(out, kv, j, s[j], head_dim);
}

void attn_ref(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
              int head_dim, void *scratch)
{
    (void)scratch;
    attn_by_rows(calls, n_calls, n_head, n_kv_head, head_dim, add_page);
}

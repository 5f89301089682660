#include "kernels/cpu/attn_rows.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/fma.h"

enum { LANES = FMA_LANES };

/* Scores of 16 keys, those of them that do not count included: they lie side by side. */
static void score_keys(float *s, const float *q, const struct kv_part *kv, int first,
                       int head_dim)
{
    float keys[LANES];
    memset(s, 0, LANES * sizeof(*s));
    for (int c = 0; c < head_dim; c++) {
        float x = q[c];
        if (kv->key_scales) {
            bytes_to_floats(keys, (const int8_t *)kv->keys + c * KERN_PAGE_TOKENS + first);
            x = x * half_to_float(kv->key_scales[c]);
        } else {
            halves_to_floats(keys,
                             (const uint16_t *)kv->keys + page_key_at(first, c, head_dim));
        }
        fma_lanes(s, keys, x);
    }
}

static void add_halves(float *out, const uint16_t *value, float weight, int head_dim)
{
    float v[LANES];
    int c = 0;
    for (; c + LANES <= head_dim; c += LANES) {
        halves_to_floats(v, value + c);
        fma_lanes(out + c, v, weight);
    }
    for (; c < head_dim; c++)
        out[c] = fma32(half_to_float(value[c]), weight, out[c]);
}

static void add_bytes(float *out, const int8_t *value, float weight, int head_dim)
{
    float v[LANES];
    int c = 0;
    for (; c + LANES <= head_dim; c += LANES) {
        bytes_to_floats(v, value + c);
        fma_lanes(out + c, v, weight);
    }
    for (; c < head_dim; c++)
        out[c] = fma32(value[c], weight, out[c]);
}

static void add_value(float *out, const struct kv_part *kv, int j, float weight, int head_dim)
{
    size_t at = (size_t)j * (size_t)head_dim;
    if (kv->value_scales)
        add_bytes(out, (const int8_t *)kv->values + at,
                  weight * half_to_float(kv->value_scales[j]), head_dim);
    else
        add_halves(out, (const uint16_t *)kv->values + at, weight, head_dim);
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

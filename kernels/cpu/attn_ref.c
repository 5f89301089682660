#include "kernels/cpu/attn_rows.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/fma.h"
#include "kernels/cpu/kv_slice.h"

enum { LANES = FMA_LANES };

/* Scores of 16 keys, those of them that do not count included: they lie side by side. */
static void score_keys(float *s, const float *q, const uint16_t *slice, int first, int head_dim)
{
    float keys[LANES];
    memset(s, 0, LANES * sizeof(*s));
    for (int c = 0; c < head_dim; c++) {
        halves_to_floats(keys, slice + page_key_at(first, c, head_dim));
        fma_lanes(s, keys, q[c]);
    }
}

static void add_value(float *out, const uint16_t *value, float weight, int head_dim)
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

/* attn_page_fn */
static void add_page(struct attn_running *run, float *out, const float *q,
                     const uint16_t *slice, int begin, int end, int head_dim)
{
    float s[KERN_PAGE_TOKENS], v[16] = {0}, top = run->m;
    for (int first = begin / LANES * LANES; first < end; first += LANES)
        score_keys(s + first, q, slice, first, head_dim);
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
        add_value(out, slice + page_value_at(j, 0, head_dim), s[j], head_dim);
}

void attn_ref(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
              int head_dim, void *scratch)
{
    (void)scratch;
    attn_by_rows(calls, n_calls, n_head, n_kv_head, head_dim, add_page);
}

#include "kernels/cpu/attn_rows.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/kv_slice.h"

/* attn_page_fn */
static void add_page(struct attn_running *run, float *out, const float *q,
                     const uint16_t *slice, int begin, int end, int head_dim)
{
    float s[KERN_PAGE_TOKENS], v[16] = {0}, top = run->m;
    for (int j = begin; j < end; j++) {
        s[j] = 0.0f;
        for (int c = 0; c < head_dim; c++)
            s[j] = fmaf(half_to_float(slice[page_key_at(j, c, head_dim)]), q[c], s[j]);
        top = s[j] > top ? s[j] : top;
    }
    float shrink = exp_scalar(run->m - top);
    for (int j = begin; j < end; j++) {
        s[j] = exp_scalar(s[j] - top);
        v[j % 16] = v[j % 16] + s[j];
    }
    run->l = fmaf(run->l, shrink, fold16(v));
    run->m = top;
    for (int c = 0; c < head_dim; c++) {
        float o = out[c] * shrink;
        for (int j = begin; j < end; j++)
            o = fmaf(half_to_float(slice[page_value_at(j, c, head_dim)]), s[j], o);
        out[c] = o;
    }
}

void attn_ref(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
              int head_dim, void *scratch)
{
    (void)scratch;
    attn_by_rows(calls, n_calls, n_head, n_kv_head, head_dim, add_page);
}

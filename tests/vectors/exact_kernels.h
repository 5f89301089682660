/* KV pages in single precision, as the exact implementation of the vectors has them, written plainly. With these and
 * products over float inputs nothing but the order of sums is left between the two.
 *
 * A slice takes twice the bytes of kern_page_slice_bytes(): per kv head K as [head_dim][64] floats, then V as
 * [64][head_dim]. */
#ifndef QUIRE_TESTS_EXACT_KERNELS_H
#define QUIRE_TESTS_EXACT_KERNELS_H

#include "kernels/kernels.h"

#include <math.h>

enum { KV_FLOATS_HEAD = 1024 }; /* most channels of a head */

static inline void kv_store_floats(void *const *slices, int pos, const float *k, const float *v,
                                   size_t ld, int rows, int n_kv_head, int head_dim,
                                   uint8_t *bad)
{
    for (int row = 0; row < rows; row++, k += ld, v += ld) {
        int page = (pos + row) / KERN_PAGE_TOKENS, j = (pos + row) % KERN_PAGE_TOKENS;
        float *at = slices[page];
        for (int head = 0; head < n_kv_head; head++) {
            for (int c = 0; c < head_dim; c++) {
                float key = k[head * head_dim + c], value = v[head * head_dim + c];
                at[c * KERN_PAGE_TOKENS + j] = key;
                at[(KERN_PAGE_TOKENS + j) * head_dim + c] = value;
                if (!isfinite(key) || !isfinite(value))
                    bad[row] = 1;
            }
            at += 2 * KERN_PAGE_TOKENS * head_dim;
        }
    }
}

/* One row of one head, as the formula of kern_attn_fn: a running maximum and sum over pages. */
static inline void kv_floats_attend(float *out, const float *q,
                                    const struct kern_attn_rows *call, int row, int kv_head,
                                    int d)
{
    int end = call->pos + row + 1;
    int begin = call->window > 0 && end > call->window ? end - call->window : 0;
    float top = -0x1p100f, sum = 0, o[KV_FLOATS_HEAD] = {0};
    for (int page = begin / KERN_PAGE_TOKENS; page * KERN_PAGE_TOKENS < end; page++) {
        const float *keys =
            (const float *)call->slices[page] + (size_t)kv_head * 2 * KERN_PAGE_TOKENS * d;
        const float *values = keys + (size_t)KERN_PAGE_TOKENS * d;
        int first = page * KERN_PAGE_TOKENS, from = begin > first ? begin - first : 0;
        int to = end - first < KERN_PAGE_TOKENS ? end - first : KERN_PAGE_TOKENS;
        float s[KERN_PAGE_TOKENS] = {0}, was = top;
        for (int c = 0; c < d; c++)
            for (int j = 0; j < KERN_PAGE_TOKENS; j++)
                s[j] += keys[c * KERN_PAGE_TOKENS + j] * q[c];
        for (int j = from; j < to; j++)
            top = s[j] > top ? s[j] : top;
        float shrink = expf(was - top);
        sum *= shrink;
        for (int c = 0; c < d; c++)
            o[c] *= shrink;
        for (int j = from; j < to; j++) {
            float weight = expf(s[j] - top);
            sum += weight;
            for (int c = 0; c < d; c++)
                o[c] += values[j * d + c] * weight;
        }
    }
    for (int c = 0; c < d; c++)
        out[c] = o[c] / sum;
}

static inline void attn_floats(const struct kern_attn_rows *calls, int n_calls, int n_head,
                               int n_kv_head, int head_dim, void *scratch)
{
    (void)scratch;
#pragma omp parallel for collapse(2) schedule(dynamic, 1)
    for (int i = 0; i < n_calls; i++)
        for (int head = 0; head < n_head; head++)
            for (int row = 0; row < calls[i].rows; row++)
                kv_floats_attend(calls[i].out + (size_t)row * calls[i].ld_out + head * head_dim,
                                 calls[i].q + (size_t)row * calls[i].ld_q + head * head_dim,
                                 &calls[i], row, head / (n_head / n_kv_head), head_dim);
}

#endif

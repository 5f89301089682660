#include "kernels/cpu/cpu.h"
#include "kernels/cpu/input.h"
#include "kernels/cpu/packed.h"
#include "kernels/team.h"

#include <math.h>

enum { COLUMNS_AT_ONCE = 16 }; /* of a part */

/* One step of a column: a block's weights q[32] - off with their scales, times one prepared row.
 *   min types:  acc = fma(m, s, acc)
 *   sum = sum_k (q_k - off) * a_k exact;  acc = fma(float(sum) * d, d_a, acc)      per scale */
static float add_block(float acc, const struct record_form *f, const int *w, const float *scale,
                       const struct input_block *a, int r)
{
    if (f->min)
        acc = fmaf(scale[f->n_scales], a->s[r], acc);
    int span = 32 / f->n_scales;
    for (int i = 0; i < f->n_scales; i++) {
        int32_t sum = 0;
        for (int k = i * span; k < (i + 1) * span; k++)
            sum += w[k] * a->q[k / 4][r][k % 4];
        acc = fmaf((float)sum * scale[i], a->d[r], acc);
    }
    return acc;
}

static void quantised_column(float *out, size_t ld, const struct kern_weights *w,
                             const struct kern_input *in, int col)
{
    const struct record_form *f = &record_forms[w->type];
    const struct input_block *blocks = in->mem;
    int n_blocks = w->n_in / 32;
    for (int row = 0; row < in->rows; row++)
        out[(size_t)row * ld] = 0.0f;
    for (int b = 0; b < n_blocks; b++) {
        const uint8_t *rec = record_at(w, col / PANEL, b);
        int weight[32];
        float scale[3];
        for (int k = 0; k < 32; k++)
            weight[k] = record_weight(f, rec, col % PANEL, k) - f->off;
        for (int i = 0; i < f->n_scales + f->min; i++)
            scale[i] = record_scale(f, rec, b, col % PANEL, i);
        for (int row = 0; row < in->rows; row++) {
            const struct input_block *a =
                blocks + (size_t)(row / ROW_GROUP) * (size_t)n_blocks + b;
            float *acc = out + (size_t)row * ld;
            *acc = add_block(*acc, f, weight, scale, a, row % ROW_GROUP);
        }
    }
}

/* The weight of output col, input k, as a float: what kern_dequantize_row gives. */
static float weight_value(const struct kern_weights *w, int col, int k)
{
    const struct record_form *f = &record_forms[w->type];
    size_t at =
        ((size_t)(col / PANEL) * (size_t)w->n_in + (size_t)k) * PANEL + (size_t)(col % PANEL);
    switch (w->type) {
    case KERN_F32:
        return ((const float *)w->data)[at];
    case KERN_F16:
        return half_to_float(((const uint16_t *)w->data)[at]);
    case KERN_BF16:
        return bfloat_to_float(((const uint16_t *)w->data)[at]);
    default: {
        const uint8_t *rec = record_at(w, col / PANEL, k / 32);
        int q = record_weight(f, rec, col % PANEL, k % 32);
        float d = record_scale(f, rec, k / 32, col % PANEL, k % 32 * f->n_scales / 32);
        return f->min
                   ? fmaf(d, (float)q, record_scale(f, rec, k / 32, col % PANEL, f->n_scales))
                   : d * (float)(q - f->off);
    }
    }
}

/* k rising: acc = fma(W[k], x[k], acc) */
static void float_column(float *out, size_t ld, const struct kern_weights *w,
                         const struct kern_input *in, int col)
{
    for (int row = 0; row < in->rows; row++)
        out[(size_t)row * ld] = 0.0f;
    for (int k = 0; k < w->n_in; k++) {
        float weight = weight_value(w, col, k);
        for (int row = 0; row < in->rows; row++) {
            float *acc = out + (size_t)row * ld;
            *acc = fmaf(weight, in->x[(size_t)row * (size_t)in->k + (size_t)k], *acc);
        }
    }
}

struct product {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
    bool quantised;
};

static void columns(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    (void)thread;
    for (int col = begin; col < end; col++)
        if (p->quantised)
            quantised_column(p->out + col, p->ld, p->w, p->in, col);
        else
            float_column(p->out + col, p->ld, p->w, p->in, col);
}

void matmul_ref(float *out, size_t ld, const struct kern_weights *w,
                const struct kern_input *in, void *scratch)
{
    (void)scratch;
    struct product p = {out, ld, w, in, record_forms[w->type].bits != 0};
    team_run(w->n_out, COLUMNS_AT_ONCE, columns, &p);
}

void matmul_float_inputs_ref(float *out, size_t ld, const struct kern_weights *w,
                             const struct kern_input *in, void *scratch)
{
    (void)scratch;
    struct product p = {out, ld, w, in, false};
    team_run(w->n_out, COLUMNS_AT_ONCE, columns, &p);
}

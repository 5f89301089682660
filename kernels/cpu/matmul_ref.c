#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fma.h"
#include "kernels/cpu/input.h"
#include "kernels/cpu/packed.h"
#include "kernels/team.h"

/* A block of a panel: stored weights less off, and scales, the minimum last: a row for each output, a lane for each. */
struct panel_block {
    int16_t w[PANEL][32];
    float scale[3][PANEL];
};

static void unpack_nibbles(struct panel_block *p, const uint8_t *rec)
{
    for (int j = 0; j < 4; j++)
        for (int c = 0; c < PANEL; c++)
            for (int i = 0; i < 4; i++) {
                int byte = rec[j * RECORD_UNIT + 4 * c + i];
                p->w[c][8 * j + i] = (int16_t)(byte & 15);
                p->w[c][8 * j + 4 + i] = (int16_t)(byte >> 4);
            }
}

static void unpack_bytes(struct panel_block *p, const uint8_t *rec)
{
    for (int j = 0; j < 8; j++)
        for (int c = 0; c < PANEL; c++)
            for (int i = 0; i < 4; i++)
                p->w[c][4 * j + i] = rec[j * RECORD_UNIT + 4 * c + i];
}

/* Bits above the nibble, `bits` of each weight, 4 or 2 steps of k in a unit (packed.h). */
static void add_high_bits(struct panel_block *p, const uint8_t *rec, int bits)
{
    int per_unit = 8 / bits;
    for (int step = 0; step < 8; step++)
        for (int c = 0; c < PANEL; c++)
            for (int i = 0; i < 4; i++) {
                int byte = rec[256 + step / per_unit * RECORD_UNIT + 4 * c + i];
                int high = byte >> bits * (step % per_unit) & ((1 << bits) - 1);
                p->w[c][4 * step + i] |= (int16_t)(high << 4);
            }
}

static void read_block(struct panel_block *p, const struct record_form *f, const uint8_t *rec,
                       int b)
{
    if (f->bits == 8)
        unpack_bytes(p, rec);
    else
        unpack_nibbles(p, rec);
    if (f->bits == 5 || f->bits == 6)
        add_high_bits(p, rec, f->bits - 4);
    for (int c = 0; c < PANEL; c++)
        for (int k = 0; k < 32; k++)
            p->w[c][k] = (int16_t)(p->w[c][k] - f->off);
    for (int i = 0; i < f->n_scales + f->min; i++)
        for (int c = 0; c < PANEL; c++)
            p->scale[i][c] = record_scale(f, rec, b, c, i);
}

/* A prepared row's values of a block, side by side. */
static void read_row(int16_t q[32], const struct input_block *a, int r)
{
    for (int step = 0; step < 8; step++)
        for (int i = 0; i < 4; i++)
            q[4 * step + i] = a->q[step][r][i];
}

/* One step of a panel's 16 outputs: a block's weights times one prepared row.
 *   min types:  acc = fma(m, s, acc)
 *   sum = sum_k (q_k - off) * a_k exact;  acc = fma(float(sum) * d, d_a, acc)      per scale */
static void add_block(float acc[PANEL], const struct record_form *f,
                      const struct panel_block *p, const struct input_block *a, int r)
{
    int16_t q[32];
    read_row(q, a, r);
    if (f->min)
        fma_lanes(acc, p->scale[f->n_scales], a->s[r]);
    int span = 32 / f->n_scales;
    for (int i = 0; i < f->n_scales; i++) {
        float x[PANEL];
        for (int c = 0; c < PANEL; c++) {
            int32_t sum = 0;
            for (int k = i * span; k < (i + 1) * span; k++)
                sum += p->w[c][k] * q[k];
            x[c] = (float)sum * p->scale[i][c];
        }
        fma_lanes(acc, x, a->d[r]);
    }
}

struct product {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
};

/* Sums of a row wait in the output, and are added to here: the last panel may have fewer than 16. */
static void load_sums(float acc[PANEL], const struct product *p, int panel, int row, bool first)
{
    int n = p->w->n_out - panel * PANEL < PANEL ? p->w->n_out - panel * PANEL : PANEL;
    memset(acc, 0, PANEL * sizeof(*acc));
    if (!first)
        memcpy(acc, p->out + (size_t)row * p->ld + panel * PANEL, (size_t)n * sizeof(*acc));
}

static void store_sums(const struct product *p, const float acc[PANEL], int panel, int row)
{
    int n = p->w->n_out - panel * PANEL < PANEL ? p->w->n_out - panel * PANEL : PANEL;
    memcpy(p->out + (size_t)row * p->ld + panel * PANEL, acc, (size_t)n * sizeof(*acc));
}

static void quantised_panels(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    const struct record_form *f = &record_forms[p->w->type];
    const struct input_block *blocks = p->in->mem;
    int n_blocks = p->w->n_in / 32;
    struct panel_block block;
    float acc[PANEL];
    (void)thread;
    for (int panel = begin; panel < end; panel++)
        for (int b = 0; b < n_blocks; b++) {
            read_block(&block, f, record_at(p->w, panel, b), b);
            for (int row = 0; row < p->in->rows; row++) {
                const struct input_block *a =
                    blocks + (size_t)(row / ROW_GROUP) * (size_t)n_blocks + b;
                load_sums(acc, p, panel, row, b == 0);
                add_block(acc, f, &block, a, row % ROW_GROUP);
                store_sums(p, acc, panel, row);
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
                   ? fma32(d, (float)q, record_scale(f, rec, k / 32, col % PANEL, f->n_scales))
                   : d * (float)(q - f->off);
    }
    }
}

/* k rising: acc = fma(W[k], x[k], acc) */
static void float_panels(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    float weights[PANEL], acc[PANEL];
    (void)thread;
    for (int panel = begin; panel < end; panel++)
        for (int k = 0; k < p->w->n_in; k++) {
            for (int c = 0; c < PANEL; c++)
                weights[c] = weight_value(p->w, panel * PANEL + c, k);
            for (int row = 0; row < p->in->rows; row++) {
                load_sums(acc, p, panel, row, k == 0);
                fma_lanes(acc, weights, p->in->x[(size_t)row * (size_t)p->in->k + (size_t)k]);
                store_sums(p, acc, panel, row);
            }
        }
}

static void run(struct product p, team_part_fn *panels)
{
    team_run((p.w->n_out + PANEL - 1) / PANEL, 1, panels, &p);
}

void matmul_ref(float *out, size_t ld, const struct kern_weights *w,
                const struct kern_input *in, void *scratch)
{
    (void)scratch;
    run((struct product){out, ld, w, in},
        record_forms[w->type].bits ? quantised_panels : float_panels);
}

void matmul_float_inputs_ref(float *out, size_t ld, const struct kern_weights *w,
                             const struct kern_input *in, void *scratch)
{
    (void)scratch;
    run((struct product){out, ld, w, in}, float_panels);
}

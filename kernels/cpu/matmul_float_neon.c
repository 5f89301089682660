/* Products of float weights: an output is a lane, k rising. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/simd_neon.h"
#include "kernels/team.h"

enum { TILE_ROWS = 4 };

/* The weights of 16 outputs, input k. */
static inline void load_weights(float32x4_t out[4], enum kern_type t, const void *panel, int k)
{
    size_t at = (size_t)k * PANEL;
    if (t == KERN_F16) {
        widen16(out, (const uint16_t *)panel + at);
        return;
    }
    for (int i = 0; i < 4; i++)
        if (t == KERN_F32)
            out[i] = vld1q_f32((const float *)panel + at + 4 * i);
        else
            out[i] = vreinterpretq_f32_u32(
                vshll_n_u16(vld1_u16((const uint16_t *)panel + at + 4 * i), 16));
}

struct product {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
};

static inline __attribute__((always_inline)) void add_rows(const struct product *p, int panel,
                                                           int row, int rows, enum kern_type t)
{
    size_t bytes = (size_t)p->w->n_in * PANEL * (size_t)kern_types[t].block_bytes;
    const uint8_t *weights = (const uint8_t *)p->w->data + (size_t)panel * bytes;
    const float *x = p->in->x + (size_t)row * (size_t)p->in->k;
    float32x4_t acc[TILE_ROWS][4], w[4];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < 4; i++)
            acc[r][i] = vdupq_n_f32(0);
    for (int k = 0; k < p->w->n_in; k++) {
        load_weights(w, t, weights, k);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < 4; i++)
                acc[r][i] =
                    vfmaq_n_f32(acc[r][i], w[i], x[(size_t)r * (size_t)p->in->k + (size_t)k]);
    }
    int left = p->w->n_out - panel * PANEL;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < 4; i++)
            store_left4(p->out + (size_t)(row + r) * p->ld + (size_t)panel * PANEL + 4 * i,
                        left - 4 * i, acc[r][i]);
}

static inline __attribute__((always_inline)) void all_rows(const struct product *p, int panel,
                                                           enum kern_type t)
{
    int row = 0;
    for (; row + TILE_ROWS <= p->in->rows; row += TILE_ROWS)
        add_rows(p, panel, row, TILE_ROWS, t);
    for (; row < p->in->rows; row++)
        add_rows(p, panel, row, 1, t);
}

static void add_panels(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    (void)thread;
    for (int panel = begin; panel < end; panel++)
        switch (p->w->type) {
        case KERN_F32:
            all_rows(p, panel, KERN_F32);
            break;
        case KERN_F16:
            all_rows(p, panel, KERN_F16);
            break;
        default:
            all_rows(p, panel, KERN_BF16);
        }
}

void matmul_float_neon(float *out, size_t ld, const struct kern_weights *w,
                       const struct kern_input *in, void *scratch)
{
    (void)scratch;
    struct product p = {out, ld, w, in};
    team_run((w->n_out + PANEL - 1) / PANEL, 1, add_panels, &p);
}

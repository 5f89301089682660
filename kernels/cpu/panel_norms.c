/* Bounds of the rows of packed weights. In double; the last step rounds up. */
#include "kernels/cpu/packed.h"

#include <math.h>

/* Squares of one record's weights, without their scales. bits and n_scales are constants in every caller. */
static inline __attribute__((always_inline)) void
add_record(double sum[PANEL], int bits, const struct record_form *f, const uint8_t *rec, int b)
{
    const struct record_form form = {.bits = bits};
    int span = 32 / f->n_scales;
    for (int c = 0; c < PANEL; c++)
        for (int i = 0; i < f->n_scales; i++) {
            int32_t squares = 0;
            for (int k = i * span; k < (i + 1) * span; k++) {
                int w = record_weight(&form, rec, c, k) - f->off;
                squares += w * w;
            }
            double d = (double)record_scale(f, rec, b, c, i);
            sum[c] += d * d * squares;
        }
}

static float panel_norm(const struct kern_weights *w, int panel)
{
    const struct record_form *f = &record_forms[w->type];
    double sum[PANEL] = {0}, most = 0;
    for (int b = 0; b < w->n_in / 32; b++) {
        const uint8_t *rec = record_at(w, panel, b);
        switch (f->bits) {
        case 4:
            add_record(sum, 4, f, rec, b);
            break;
        case 5:
            add_record(sum, 5, f, rec, b);
            break;
        case 6:
            add_record(sum, 6, f, rec, b);
            break;
        default:
            add_record(sum, 8, f, rec, b);
        }
    }
    for (int c = 0; c < PANEL; c++)
        if (!(sum[c] <= most)) /* NaN stays */
            most = sum[c];
    return (float)(sqrt(most) * (1 + 0x1p-20));
}

bool kern_panel_norms(float *out, const struct kern_weights *w, int begin, int end)
{
    const struct record_form *f = &record_forms[w->type];
    if (f->bits == 0 || f->min)
        return false;
    for (int p = begin; p < end; p++)
        out[p] = panel_norm(w, p);
    return true;
}

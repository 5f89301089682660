#include "kernels/cpu/block.h"
#include "kernels/cpu/packed.h"

#include <math.h>

const struct record_form record_forms[KERN_TYPE_COUNT] = {
    [KERN_Q4_0] = {.bits = 4, .off = 8, .n_scales = 1},
    [KERN_Q4_1] = {.bits = 4, .min = true, .n_scales = 1},
    [KERN_Q5_0] = {.bits = 5, .off = 16, .n_scales = 1},
    [KERN_Q5_1] = {.bits = 5, .min = true, .n_scales = 1},
    [KERN_Q8_0] = {.bits = 8, .off = 128, .n_scales = 1},
    [KERN_Q4_K] = {.bits = 4, .min = true, .wide = true, .n_scales = 1},
    [KERN_Q5_K] = {.bits = 5, .min = true, .wide = true, .n_scales = 1},
    [KERN_Q6_K] = {.bits = 6, .off = 32, .wide = true, .n_scales = 2},
};

static size_t panel_bytes(enum kern_type t, int n_in)
{
    const struct record_form *f = &record_forms[t];
    if (!f->bits)
        return (size_t)n_in * PANEL * (size_t)kern_types[t].block_bytes;
    return (size_t)(n_in / 32) * record_bytes(f);
}

size_t kern_packed_bytes(enum kern_type t, int n_out, int n_in)
{
    return (size_t)((n_out + PANEL - 1) / PANEL) * panel_bytes(t, n_in);
}

static void put_scale(const struct record_form *f, uint8_t *rec, int c, int i, float value)
{
    uint8_t *s = rec + record_scales_at(f);
    int at = i * PANEL + c;
    if (f->wide) {
        memcpy(s + 4 * at, &value, 4);
    } else { /* it came from a half: nothing is rounded */
        uint16_t h = float_to_half(value);
        memcpy(s + 2 * at, &h, 2);
    }
}

/* Output c of a record that was all zero. */
static void put_column(const struct record_form *f, uint8_t *rec, int c,
                       const struct block32 *b)
{
    for (int k = 0; k < 32; k++) {
        int q = b->q[k], at = 4 * c + k % 4;
        if (f->bits == 8) {
            rec[k / 4 * RECORD_UNIT + at] = (uint8_t)q;
            continue;
        }
        rec[k / 8 * RECORD_UNIT + at] |= (uint8_t)((q & 15) << (k & 4));
        if (f->bits == 5)
            rec[256 + at] |= (uint8_t)(q >> 4 << k / 4);
        if (f->bits == 6)
            rec[256 + k / 16 * RECORD_UNIT + at] |= (uint8_t)(q >> 4 << 2 * (k / 4 % 4));
    }
    for (int i = 0; i < f->n_scales; i++)
        put_scale(f, rec, c, i, b->d[i]);
    if (f->min)
        put_scale(f, rec, c, f->n_scales, b->m);
}

static void pack_float_panel(uint8_t *dst, const uint8_t *src, size_t row_bytes, int cols,
                             int n_in, size_t size)
{
    for (int k = 0; k < n_in; k++, dst += PANEL * size)
        for (int c = 0; c < cols; c++)
            memcpy(dst + (size_t)c * size, src + (size_t)c * row_bytes + (size_t)k * size,
                   size);
}

void kern_pack(void *dst, const void *src, enum kern_type t, int n_out, int n_in, int out_begin,
               int out_end)
{
    const struct record_form *f = &record_forms[t];
    size_t row_bytes = kern_row_bytes(t, (size_t)n_in), bytes = panel_bytes(t, n_in);
    for (int out = out_begin; out < out_end; out += PANEL) {
        int cols = n_out - out < PANEL ? n_out - out : PANEL;
        uint8_t *panel = (uint8_t *)dst + (size_t)(out / PANEL) * bytes;
        const uint8_t *rows = (const uint8_t *)src + (size_t)out * row_bytes;
        memset(panel, 0, bytes);
        if (!f->bits) {
            pack_float_panel(panel, rows, row_bytes, cols, n_in,
                             (size_t)kern_types[t].block_bytes);
            continue;
        }
        for (int c = 0; c < cols; c++)
            for (int b = 0; b < n_in / 32; b++) {
                struct block32 block;
                block32_read(&block, t, rows + (size_t)c * row_bytes, b);
                put_column(f, panel + (size_t)b * record_bytes(f), c, &block);
            }
    }
}

void kern_dequantize_row(float *out, const void *row, enum kern_type t, int n)
{
    const struct record_form *f = &record_forms[t];
    const uint8_t *p = row;
    if (!f->bits) {
        for (int i = 0; i < n; i++)
            out[i] = t == KERN_F32   ? float_of_bits(load32(p + 4 * (size_t)i))
                     : t == KERN_F16 ? half_to_float(load16(p + 2 * (size_t)i))
                                     : bfloat_to_float(load16(p + 2 * (size_t)i));
        return;
    }
    for (int b = 0; b < n / 32; b++, out += 32) {
        struct block32 block;
        block32_read(&block, t, row, b);
        for (int i = 0; i < 32; i++)
            out[i] = f->min ? fmaf(block.d[i / 16], (float)block.q[i], block.m)
                            : block.d[i / 16] * (float)(block.q[i] - f->off);
    }
}

#include "kernels/cpu/block.h"
#include "kernels/cpu/packed.h"

#include <math.h>

const struct record_form record_forms[KERN_TYPE_COUNT] = {
    [KERN_Q4_0] = {.bits = 4, .off = 8, .n_scales = 1},
    [KERN_Q4_1] = {.bits = 4, .min = true, .n_scales = 1},
    [KERN_Q5_0] = {.bits = 5, .off = 16, .n_scales = 1},
    [KERN_Q5_1] = {.bits = 5, .min = true, .n_scales = 1},
    [KERN_Q8_0] = {.bits = 8, .off = 128, .n_scales = 1},
    [KERN_Q4_K] = {.bits = 4, .min = true, .shared = true, .n_scales = 1},
    [KERN_Q5_K] = {.bits = 5, .min = true, .shared = true, .n_scales = 1},
    [KERN_Q6_K] = {.bits = 6, .off = 32, .shared = true, .n_scales = 2},
};

static size_t panel_bytes(enum kern_type t, int n_in)
{
    const struct record_form *f = &record_forms[t];
    if (!f->bits)
        return (size_t)n_in * PANEL * (size_t)kern_types[t].block_bytes;
    return record_panel_bytes(f, n_in);
}

size_t kern_packed_bytes(enum kern_type t, int n_out, int n_in)
{
    return (size_t)((n_out + PANEL - 1) / PANEL) * panel_bytes(t, n_in);
}

static void store_half(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

/* They came from halves: nothing is rounded. */
static void put_scales(const struct record_form *f, uint8_t *rec, int c,
                       const struct block32 *b)
{
    uint8_t *s = rec + record_scales_at(f) + 2 * c;
    for (int i = 0; i < f->n_scales; i++)
        store_half(s + i * PANEL * 2, float_to_half(b->d[i]));
    if (f->min)
        store_half(s + f->n_scales * PANEL * 2, float_to_half(b->m));
}

/* shared: where d[16] and m[16] go, before the first of the records that share them. */
static void put_shared_scales(const struct record_form *f, uint8_t *shared, uint8_t *rec, int c,
                              const struct block32 *b)
{
    uint8_t *s = rec + record_scales_at(f) + c;
    for (int i = 0; i < f->n_scales + f->min; i++)
        s[i * PANEL] = (uint8_t)b->small[i];
    store_half(shared + 2 * c, b->shared_d);
    if (f->min)
        store_half(shared + 2 * (PANEL + c), b->shared_m);
}

static void store_word(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

/* The weights of output c of a record. Four values of k are four bytes of a word, in both: what is done to a word is done to each. */
static void put_weights(const struct record_form *f, uint8_t *rec, int c,
                        const struct block32 *b)
{
    uint32_t q[8], high[2] = {0};
    memcpy(q, b->q, sizeof q);
    uint8_t *at = rec + 4 * c;
    if (f->bits == 8) {
        for (int j = 0; j < 8; j++)
            store_word(at + j * RECORD_UNIT, q[j]);
    } else {
        for (int j = 0; j < 4; j++)
            store_word(at + j * RECORD_UNIT,
                       (q[2 * j] & 0x0f0f0f0f) | (q[2 * j + 1] & 0x0f0f0f0f) << 4);
    }
    if (f->bits == 5) {
        for (int s = 0; s < 8; s++)
            high[0] |= (q[s] >> 4 & 0x01010101) << s;
        store_word(at + 256, high[0]);
    }
    if (f->bits == 6) {
        for (int s = 0; s < 8; s++)
            high[s / 4] |= (q[s] >> 4 & 0x03030303) << 2 * (s % 4);
        store_word(at + 256, high[0]);
        store_word(at + 256 + RECORD_UNIT, high[1]);
    }
}

/* [n_in][16] from rows; size is 2 or 4. A few k at a time: each row is read in runs, the panel stays in L1. */
static void pack_float_panel(uint8_t *dst, const uint8_t *src, size_t row_bytes, int cols,
                             int n_in, size_t size)
{
    enum { RUN = 32 };
    for (int begin = 0; begin < n_in; begin += RUN) {
        int end = n_in - begin < RUN ? n_in : begin + RUN;
        for (int c = 0; c < cols; c++) {
            const uint8_t *from = src + (size_t)c * row_bytes;
            uint8_t *to = dst + (size_t)c * size;
            for (int k = begin; k < end; k++) {
                if (size == 2)
                    memcpy(to + (size_t)k * PANEL * 2, from + (size_t)k * 2, 2);
                else
                    memcpy(to + (size_t)k * PANEL * 4, from + (size_t)k * 4, 4);
            }
        }
    }
}

/* Record by record: what is written stays in L1, and the rows are as many streams as the CPU reads ahead. */
static void pack_panel(uint8_t *panel, const uint8_t *rows, enum kern_type t, size_t row_bytes,
                       int cols, int n_in)
{
    const struct record_form *f = &record_forms[t];
    uint8_t *shared = panel, *rec = panel + shared_bytes(f);
    for (int b = 0; b < n_in / 32; rec += record_stride(f, b), b++) {
        if (b % SHARED_RECORDS == 0)
            shared = rec - shared_bytes(f);
        for (int c = 0; c < cols; c++) {
            struct block32 block;
            block32_read(&block, t, rows + (size_t)c * row_bytes, b);
            put_weights(f, rec, c, &block);
            if (f->shared)
                put_shared_scales(f, shared, rec, c, &block);
            else
                put_scales(f, rec, c, &block);
        }
    }
}

void kern_pack(void *dst, const void *src, enum kern_type t, int n_out, int n_in, int out_begin,
               int out_end)
{
    size_t row_bytes = kern_row_bytes(t, (size_t)n_in), bytes = panel_bytes(t, n_in);
    for (int out = out_begin; out < out_end; out += PANEL) {
        int cols = n_out - out < PANEL ? n_out - out : PANEL;
        uint8_t *panel = (uint8_t *)dst + (size_t)(out / PANEL) * bytes;
        const uint8_t *rows = (const uint8_t *)src + (size_t)out * row_bytes;
        if (cols < PANEL)
            memset(panel, 0, bytes);
        if (record_forms[t].bits)
            pack_panel(panel, rows, t, row_bytes, cols, n_in);
        else
            pack_float_panel(panel, rows, row_bytes, cols, n_in,
                             (size_t)kern_types[t].block_bytes);
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

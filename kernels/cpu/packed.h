/* kernels/cpu/packed.h - packed weights: panels of 16 outputs, one record per 32 values of k.
 *
 * What:   record b of panel p lies at data + (p*n_in/32 + b) * record_bytes. Its parts, in order:
 *           bits 4, 5, 6:  4 units of 64 bytes. Byte 4c+i of unit j is output c: low nibble k = 8j+i,
 *                          high nibble k = 8j+4+i.
 *           bits 8:        8 units. Byte 4c+i of unit j: k = 4j+i.
 *           bits 5:        1 unit. Byte 4c+i, bit s: fifth bit of k = 4s+i.
 *           bits 6:        2 units. Byte 4c+i of unit u, bits 2s and 2s+1: top bits of k = 16u+4s+i.
 *           scales:        d[n_scales][16], then m[16] for types with a minimum; half, or float if wide.
 *         So a 32-byte load is 8 outputs by 4 k, what one multiply of bytes takes.
 *         Float types have no records: panel p is [n_in][16] values of the file's type.
 * Rules:  outputs past n_out have weights, scales and minima of zero.
 */
#ifndef QUIRE_KERNELS_CPU_PACKED_H
#define QUIRE_KERNELS_CPU_PACKED_H

#include "kernels/cpu/half.h"
#include "kernels/kernels.h"

enum { PANEL = 16, RECORD_UNIT = 64 };

/* w = d*(q - off), or d*q + m. bits 0: a float type. */
struct record_form {
    int bits, off;
    bool min, wide;
    int n_scales; /* 2: one for k 0..15, one for 16..31 */
};

extern const struct record_form record_forms[KERN_TYPE_COUNT];

static inline int record_scales_at(const struct record_form *f)
{
    return f->bits == 8 ? 512 : 256 + (f->bits - 4) * RECORD_UNIT;
}

static inline size_t record_bytes(const struct record_form *f)
{
    int rows = f->n_scales + (f->min ? 1 : 0);
    return (size_t)(record_scales_at(f) + rows * PANEL * (f->wide ? 4 : 2));
}

/* The stored weight of output c, input k of the block. */
static inline int record_weight(const struct record_form *f, const uint8_t *rec, int c, int k)
{
    int at = 4 * c + k % 4;
    if (f->bits == 8)
        return rec[k / 4 * RECORD_UNIT + at];
    int byte = rec[k / 8 * RECORD_UNIT + at], q = k & 4 ? byte >> 4 : byte & 15;
    if (f->bits == 5)
        q |= (rec[256 + at] >> k / 4 & 1) << 4;
    if (f->bits == 6)
        q |= (rec[256 + k / 16 * RECORD_UNIT + at] >> 2 * (k / 4 % 4) & 3) << 4;
    return q;
}

/* Scale i of output c; i = n_scales is its minimum. */
static inline float record_scale(const struct record_form *f, const uint8_t *rec, int c, int i)
{
    const uint8_t *s = rec + record_scales_at(f);
    int at = i * PANEL + c;
    return f->wide ? float_of_bits(load32(s + 4 * at)) : half_to_float(load16(s + 2 * at));
}

static inline const uint8_t *record_at(const struct kern_weights *w, int panel, int b)
{
    size_t i = (size_t)panel * (size_t)(w->n_in / 32) + (size_t)b;
    return (const uint8_t *)w->data + i * record_bytes(&record_forms[w->type]);
}

#endif

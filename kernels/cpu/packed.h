/* kernels/cpu/packed.h - packed weights: panels of 16 outputs, one record per 32 values of k.
 *
 * What:   record_at() says where record b of panel p is. Its parts, in order:
 *           bits 4, 5, 6:  4 units of 64 bytes. Byte 4c+i of unit j is output c: low nibble k = 8j+i,
 *                          high nibble k = 8j+4+i.
 *           bits 8:        8 units. Byte 4c+i of unit j: k = 4j+i.
 *           bits 5:        1 unit. Byte 4c+i, bit s: fifth bit of k = 4s+i.
 *           bits 6:        2 units. Byte 4c+i of unit u, bits 2s and 2s+1: top bits of k = 16u+4s+i.
 *           scales:        d[n_scales][16], then m[16] for types with a minimum: half.
 *         Types whose blocks share scales: each 8 records come after d[16] and, with a minimum, m[16], halves, and have
 *         int8 in place of their own: scale = half * int8, exact in binary32.
 *         So a 32-byte load is 8 outputs by 4 k, what one multiply of bytes takes.
 *         Float types have no records: panel p is [n_in][16] values of the file's type.
 * Rules:  outputs past n_out have weights, scales and minima of zero.
 */
#ifndef QUIRE_KERNELS_CPU_PACKED_H
#define QUIRE_KERNELS_CPU_PACKED_H

#include "kernels/cpu/half.h"
#include "kernels/kernels.h"

enum { PANEL = 16, RECORD_UNIT = 64, SHARED_RECORDS = 8 };

/* w = d*(q - off), or d*q + m. bits 0: a float type. */
struct record_form {
    int bits, off;
    bool min, shared;
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
    return (size_t)(record_scales_at(f) + rows * PANEL * (f->shared ? 1 : 2));
}

/* Before each SHARED_RECORDS records. */
static inline size_t shared_bytes(const struct record_form *f)
{
    return f->shared ? (f->min ? 2 : 1) * PANEL * 2 : 0;
}

/* From a panel's record b to the next one. */
static inline size_t record_stride(const struct record_form *f, int b)
{
    return record_bytes(f) + ((b + 1) % SHARED_RECORDS == 0 ? shared_bytes(f) : 0);
}

/* Row i of what record b of its panel shares: 0 is the scale, 1 the minimum. */
static inline const uint8_t *shared_row(const struct record_form *f, const uint8_t *rec, int b,
                                        int i)
{
    return rec - (size_t)(b % SHARED_RECORDS) * record_bytes(f) - shared_bytes(f) +
           i * PANEL * 2;
}

static inline size_t record_panel_bytes(const struct record_form *f, int n_in)
{
    size_t n = (size_t)(n_in / 32);
    return n * record_bytes(f) + n / SHARED_RECORDS * shared_bytes(f);
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

/* Scale i of output c of record b; i = n_scales is its minimum. */
static inline float record_scale(const struct record_form *f, const uint8_t *rec, int b, int c,
                                 int i)
{
    const uint8_t *s = rec + record_scales_at(f);
    int at = i * PANEL + c;
    if (!f->shared)
        return half_to_float(load16(s + 2 * at));
    return half_to_float(load16(shared_row(f, rec, b, i == f->n_scales) + 2 * c)) *
           (float)(int8_t)s[at];
}

static inline const uint8_t *record_at(const struct kern_weights *w, int panel, int b)
{
    const struct record_form *f = &record_forms[w->type];
    return (const uint8_t *)w->data + (size_t)panel * record_panel_bytes(f, w->n_in) +
           (size_t)b * record_bytes(f) + (size_t)(b / SHARED_RECORDS + 1) * shared_bytes(f);
}

#endif

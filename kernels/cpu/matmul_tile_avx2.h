/* kernels/cpu/matmul_tile_avx2.h - products of quantised weights with int8 rows: one tile.
 *
 * What:   tiles of up to 6 rows by one panel, two vectors wide.
 *
 * One instruction multiplies unsigned bytes by signed ones and adds neighbours into int16. Its results
 * are summed in int16 as long as that is exact (weight times 127, two products each, at most 32767):
 *   4 bits, 8 steps: 2*15*127*8 = 30480     5 bits, 4 steps: 31496     6 bits, 2 steps: 32004
 *   8 bits as two planes of nibbles, 8 steps each: the sum is low + 16*high.
 * 12 int16 sums, 2 weights, the row's word and a product are the 16 registers.
 *
 * From sum to float in one fma: an int32 added to the bits of 12582912.0f reads as 12582912 + sum, and
 * fma(12582912 + sum, d, -12582912*d) is float(sum)*d rounded once, since 12582912*d is exact. (For
 * sum = 0, d < 0 it gives +0 where the formula has -0: no accumulator is ever -0, so nobody sees it.)
 */
#ifndef QUIRE_KERNELS_CPU_MATMUL_TILE_AVX2_H
#define QUIRE_KERNELS_CPU_MATMUL_TILE_AVX2_H

#include "kernels/cpu/input.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/unpack_avx2.h"

/* Where a tile has its weights from. */
enum tile_source {
    READ,      /* records, unpacked in registers */
    READ_KEEP, /* the same, and what comes out is left in scratch for the tiles of other rows */
    KEPT,      /* what such a tile has left there */
};

/* What a tile is specialised for. In scratch, weights are [step][64] bytes (planes: low, then high) and
 * scales are rows of 16 floats: d, -12582912*d, then the minimum, or the second d and its multiple. */
struct tile_form {
    int bits, off_log2; /* off_log2 < 0: no offset */
    bool min, shared;
    enum tile_source from;
};

static const int16_t ones[16]
    __attribute__((aligned(32))) = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const int16_t sixteens[16] __attribute__((aligned(32))) = {
    16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16};

/* plane: 0 all bits or the low nibbles, 1 the high nibbles of 8-bit weights. */
TILE_INLINE __m256i tile_weights(struct tile_form f, const uint8_t *rec, uint8_t *kept,
                                 int plane, int step, int half)
{
    kept += 512 * plane + 64 * step + 32 * half;
    if (f.from == KEPT)
        return _mm256_load_si256((const __m256i *)kept);
    __m256i v = f.bits < 8 ? record_step(f.bits, rec, step, half)
                           : load_bytes(rec + 64 * step + 32 * half);
    if (f.bits == 8)
        v = plane ? high_nibbles(v) : low_nibbles(v);
    if (f.from == READ_KEEP)
        _mm256_store_si256((__m256i *)kept, v);
    return v;
}

/* The int16 sums of steps [begin, end). */
TILE_INLINE void add_steps(__m256i sums[ROW_GROUP][2], int rows, struct tile_form f,
                           const struct input_block *a, const uint8_t *rec, uint8_t *kept,
                           int plane, int begin, int end)
{
    UNROLL
    for (int step = begin; step < end; step++) {
        __m256i w0 = tile_weights(f, rec, kept, plane, step, 0),
                w1 = tile_weights(f, rec, kept, plane, step, 1);
        UNROLL
        for (int r = 0; r < rows; r++) {
            int32_t word;
            memcpy(&word, a->q[step][r], 4);
            __m256i x = _mm256_set1_epi32(word);
            __m256i p0 = _mm256_maddubs_epi16(w0, x), p1 = _mm256_maddubs_epi16(w1, x);
            sums[r][0] = step == begin ? p0 : _mm256_add_epi16(sums[r][0], p0);
            sums[r][1] = step == begin ? p1 : _mm256_add_epi16(sums[r][1], p1);
            PIN(sums[r][0]);
            PIN(sums[r][1]);
        }
    }
}

/* part = (or +=) the int16 sums times `factor`, in int32. */
TILE_INLINE void widen(__m256i part[ROW_GROUP][2], __m256i sums[ROW_GROUP][2], int rows,
                       const int16_t *factor, bool add)
{
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int h = 0; h < 2; h++) {
        __m256i wide = _mm256_madd_epi16(sums[r][h], *(const __m256i *)factor);
        part[r][h] = add ? _mm256_add_epi32(part[r][h], wide) : wide;
    }
    __asm__ volatile(
        "" ::
            : "memory"); /* the parts go to memory: the registers are for the next steps */
}

/* MAGIC + sum - off*n as a float. last: the int16 sums that are not in part yet; part may be NULL. */
TILE_INLINE __m256 magic_sum(struct tile_form f, const __m256i *part, __m256i last, int32_t n)
{
    __m256i sum = _mm256_madd_epi16(last, *(const __m256i *)ones);
    if (part)
        sum = _mm256_add_epi32(sum, *part);
    __m256i start = _mm256_set1_epi32(MAGIC_BITS);
    if (f.off_log2 >= 0)
        start = _mm256_sub_epi32(start, _mm256_slli_epi32(_mm256_set1_epi32(n), f.off_log2));
    return _mm256_castsi256_ps(_mm256_add_epi32(sum, start));
}

/* acc = fma(float(sum) * d, d_a, acc), after the minimum's term if there is one. */
TILE_INLINE void add_floats(float acc[16], int h, __m256 sum, const float *scales, int i,
                            bool min, const struct input_block *a, int r)
{
    __m256 d = _mm256_load_ps(scales + 32 * i + 8 * h),
           offset = _mm256_load_ps(scales + 32 * i + 16 + 8 * h);
    __m256 t = _mm256_fmadd_ps(sum, d, offset), o = _mm256_load_ps(acc + 8 * h);
    if (min)
        o = _mm256_fmadd_ps(_mm256_load_ps(scales + 32 + 8 * h), _mm256_broadcast_ss(&a->s[r]),
                            o);
    _mm256_store_ps(acc + 8 * h, _mm256_fmadd_ps(t, _mm256_broadcast_ss(&a->d[r]), o));
}

/* One block of a tile: steps of one scale, [begin, end). */
TILE_INLINE void add_span(float (*acc)[16], int rows, struct tile_form f,
                          const struct input_block *a, const uint8_t *rec, uint8_t *kept,
                          const float *scales, int i, int begin, int end)
{
    __m256i sums[ROW_GROUP][2], part[ROW_GROUP][2];
    const bool has_part = f.bits > 4;
    const int mid = f.bits == 5 || f.bits == 6 ? (begin + end) / 2 : begin;
    if (f.bits == 8) {
        add_steps(sums, rows, f, a, rec, kept, 1, begin, end);
        widen(part, sums, rows, sixteens, false);
    } else if (has_part) {
        add_steps(sums, rows, f, a, rec, kept, 0, begin, mid);
        widen(part, sums, rows, ones, false);
    }
    add_steps(sums, rows, f, a, rec, kept, 0, mid, end);
    UNROLL
    for (int r = 0; r < rows; r++) {
        int32_t n = f.bits != 6 ? a->n[r] : i ? a->n_high[r] : a->n[r] - a->n_high[r];
        UNROLL
        for (int h = 0; h < 2; h++) {
            __m256 sum = magic_sum(f, has_part ? &part[r][h] : NULL, sums[r][h], n);
            add_floats(acc[r], h, sum, scales, i, f.min, a, r);
        }
    }
}

/* Scales of one block from its record, record b of its panel. */
TILE_INLINE void unpack_scales(float *out, const struct record_form *f, const uint8_t *rec,
                               int b)
{
    const __m256 magic = _mm256_set1_ps(-MAGIC);
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < f->n_scales; i++) {
            __m256 d = record_scale8(f, rec, b, i, h);
            _mm256_store_ps(out + 32 * i + 8 * h, d);
            _mm256_store_ps(out + 32 * i + 16 + 8 * h, _mm256_mul_ps(d, magic));
        }
        if (f->min)
            _mm256_store_ps(out + 32 + 8 * h, record_scale8(f, rec, b, f->n_scales, h));
    }
}

/* One tile's work: acc[rows][16] += blocks [begin, begin + n) of a panel times those of a. */
struct tile_work {
    float (*acc)[16];
    const struct input_block *a;
    const uint8_t *rec; /* record `begin` of the panel */
    int begin, n;
    uint8_t *w; /* in scratch */
    float (*scales)[SCALE_FLOATS];
    /* Records that are wanted later are read into the cache, ahead_bytes for each block. */
    const uint8_t *ahead;
    size_t ahead_bytes;
};

TILE_INLINE void add_blocks(const struct tile_work *t, int rows, struct tile_form f)
{
    const struct record_form form = {
        .bits = f.bits, .min = f.min, .shared = f.shared, .n_scales = f.bits == 6 ? 2 : 1};
    const struct input_block *a = t->a;
    const uint8_t *rec = t->rec, *ahead = t->ahead;
    uint8_t *w = t->w;
    for (int b = 0; b < t->n; b++, a++) {
        float *s = t->scales[f.from == READ ? 0 : b];
        if (f.from != KEPT)
            unpack_scales(s, &form, rec, t->begin + b);
        for (size_t i = 0; i < t->ahead_bytes; i += 64)
            _mm_prefetch((const char *)ahead + i, _MM_HINT_T0);
        ahead += t->ahead_bytes;
        if (f.bits == 6) {
            add_span(t->acc, rows, f, a, rec, w, s, 0, 0, 4);
            add_span(t->acc, rows, f, a, rec, w, s, 1, 4, 8);
        } else {
            add_span(t->acc, rows, f, a, rec, w, s, 0, 0, 8);
        }
        if (f.from != KEPT)
            rec += record_stride(&form, t->begin + b);
        w += f.bits == 8 ? 1024 : 512;
    }
}

/* The tiles of one form: a copy for every number of rows. Only full tiles leave weights to others. */
TILE_INLINE void add_rows(const struct tile_work *t, int rows, struct tile_form f)
{
    if (f.from == READ_KEEP)
        rows = ROW_GROUP;
    switch (rows) {
    case 1:
        add_blocks(t, 1, f);
        break;
    case 2:
        add_blocks(t, 2, f);
        break;
    case 3:
        add_blocks(t, 3, f);
        break;
    case 4:
        add_blocks(t, 4, f);
        break;
    case 5:
        add_blocks(t, 5, f);
        break;
    default:
        add_blocks(t, ROW_GROUP, f);
    }
}

#endif

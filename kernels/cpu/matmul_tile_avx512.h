/* kernels/cpu/matmul_tile_avx512.h - products of quantised weights with int8 rows: one tile.
 *
 * What:   tiles of up to 4 rows by 3 panels. vpdpbusd adds four products of bytes to an int32, exactly.
 *
 * A load serves 3 or 4 products: these machines multiply twice a cycle but sustain little more than one
 * 64-byte load or broadcast. 12 int32 sums, 12 float sums, 3 weights, a row's word and the start of a sum are
 * 29 registers. From sum to float as in AVX2: a sum that starts at the bits of 12582912.0f, less
 * off * n, reads as 12582912 + sum, and fma(12582912 + sum, d, -12582912*d) is float(sum)*d rounded once.
 */
#ifndef QUIRE_KERNELS_CPU_MATMUL_TILE_AVX512_H
#define QUIRE_KERNELS_CPU_MATMUL_TILE_AVX512_H

#include "kernels/cpu/input.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/unpack_avx512.h"

enum { TILE_ROWS = 4, TILE_PANELS = 3 };

/* Where a tile has its weights from. */
enum tile_source {
    READ,      /* records, unpacked in registers */
    READ_KEEP, /* the same, and what comes out is left in scratch for the tiles of other rows */
    KEPT,      /* what such a tile has left there */
};

/* What a tile is specialised for; off = 0: none. Weights in scratch are bytes, [block][step][panel][64],
 * whatever their type; scales [block][panel] are rows of 16 floats: d and -12582912*d, per scale of the
 * block, then the minimum. */
struct tile_form {
    struct record_form rec;
    enum tile_source from;
};

TILE_INLINE int scale_floats(const struct record_form *f)
{
    return 32 * f->n_scales + (f->min ? 16 : 0);
}

/* One tile's work: outputs += n blocks of the rows times those of w. */
struct tile_work {
    const char *row[TILE_ROWS]; /* each row's column of its first input_block */
    const uint8_t *rec;         /* the first panel's first record */
    size_t pitch;               /* bytes from a panel's records to the next one's */
    int begin, n;               /* of its panel's blocks */
    uint8_t *w;                 /* in scratch */
    float *scales;
    float (*shared)[2][PANEL]; /* of each panel: what its records share, as floats */
    float *out;
    size_t ld;
    __mmask16 mask[TILE_PANELS]; /* outputs of each panel that there are */
    bool first;                  /* outputs start at +0 */
    /* Records wanted later are read into the cache: ahead_bytes for every block and panel, from block `turn` on
     * of the panels after these. */
    const uint8_t *ahead;
    size_t ahead_bytes;
    int turn;
};

/* A row's values of a block: four bytes from each step, and what goes with them. */
TILE_INLINE int32_t row_word(const char *row, size_t at)
{
    int32_t word;
    memcpy(&word, row + at, 4);
    return word;
}

TILE_INLINE __m512 row_float(const char *row, size_t at)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32(row_word(row, at)));
}

TILE_INLINE __m512i row_start(const char *row, const struct record_form *f, int scale)
{
    if (f->off == 0)
        return _mm512_set1_epi32(MAGIC_BITS);
    int32_t n = row_word(row, offsetof(struct input_block, n));
    if (f->n_scales == 2) {
        int32_t high = row_word(row, offsetof(struct input_block, n_high));
        n = scale ? high : n - high;
    }
    return _mm512_set1_epi32(MAGIC_BITS - n * f->off);
}

/* Of one block: its records and its place in scratch. */
struct tile_block {
    const uint8_t *rec;
    uint8_t *w;
    float *scales;
};

TILE_INLINE __m512i tile_weights(struct tile_form f, const struct tile_work *t,
                                 const struct tile_block *k, int panels, int p, int step)
{
    uint8_t *kept = k->w + RECORD_UNIT * (panels * step + p);
    if (f.from == KEPT)
        return _mm512_load_si512(kept);
    __m512i x = record_step16(f.rec.bits, k->rec + (size_t)p * t->pitch, step);
    if (f.from == READ_KEEP)
        _mm512_store_si512(kept, x);
    return x;
}

/* d, -12582912*d and the minimum of panel p. */
TILE_INLINE void tile_scales(__m512 out[3], struct tile_form f, const struct tile_work *t,
                             const struct tile_block *k, int p, int scale)
{
    const uint8_t *rec = k->rec + (size_t)p * t->pitch;
    float *kept = k->scales + p * scale_floats(&f.rec), *kept_min = kept + 32 * f.rec.n_scales;
    if (f.from == KEPT) {
        out[0] = _mm512_load_ps(kept + 32 * scale);
        out[1] = _mm512_load_ps(kept + 32 * scale + 16);
        if (f.rec.min)
            out[2] = _mm512_load_ps(kept_min);
        return;
    }
    /* Read after the sums are done, which fill the registers. */
    __asm__ volatile("" : "+r"(rec));
    out[0] = record_scale16(&f.rec, rec, t->shared[p][0], scale);
    out[1] = _mm512_mul_ps(out[0], _mm512_set1_ps(-MAGIC));
    if (f.rec.min)
        out[2] = record_scale16(&f.rec, rec, t->shared[p][1], f.rec.n_scales);
    if (f.from == READ_KEEP) {
        _mm512_store_ps(kept + 32 * scale, out[0]);
        _mm512_store_ps(kept + 32 * scale + 16, out[1]);
        if (f.rec.min)
            _mm512_store_ps(kept_min, out[2]);
    }
}

/* The steps of one scale of a block, added to the float sums. */
TILE_INLINE void add_span(__m512 acc[TILE_ROWS][TILE_PANELS], int rows, int panels,
                          struct tile_form f, const struct tile_work *t,
                          const char *const row[TILE_ROWS], const struct tile_block *k,
                          int scale)
{
    int steps = 8 / f.rec.n_scales;
    __m512i sum[TILE_ROWS][TILE_PANELS], x[TILE_PANELS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        __m512i start = row_start(row[r], &f.rec, scale);
        UNROLL
        for (int p = 0; p < panels; p++)
            sum[r][p] = start;
    }
    UNROLL
    for (int step = scale * steps; step < (scale + 1) * steps; step++) {
        UNROLL
        for (int p = 0; p < panels; p++) {
            x[p] = tile_weights(f, t, k, panels, p, step);
            PIN_WIDE(x[p]);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m512i word = _mm512_set1_epi32(row_word(
                row[r], offsetof(struct input_block, q) + (size_t)step * ROW_GROUP * 4));
            PIN_WIDE(word);
            UNROLL
            for (int p = 0; p < panels; p++) {
                sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], x[p], word);
                PIN_WIDE(sum[r][p]);
            }
        }
    }
    UNROLL
    for (int p = 0; p < panels; p++) {
        __m512 d[3];
        tile_scales(d, f, t, k, p, scale);
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m512 v = _mm512_fmadd_ps(_mm512_castsi512_ps(sum[r][p]), d[0], d[1]);
            if (f.rec.min)
                acc[r][p] = _mm512_fmadd_ps(
                    d[2], row_float(row[r], offsetof(struct input_block, s)), acc[r][p]);
            acc[r][p] = _mm512_fmadd_ps(v, row_float(row[r], offsetof(struct input_block, d)),
                                        acc[r][p]);
            PIN_WIDE(acc[r][p]);
        }
    }
}

/* What the records from record b of the panels on share. */
TILE_INLINE void read_shared(float (*out)[2][PANEL], const struct record_form *f,
                             const uint8_t *rec, size_t pitch, int panels, int b)
{
    UNROLL
    for (int p = 0; p < panels; p++)
        UNROLL
    for (int i = 0; i < 1 + f->min; i++)
        _mm512_store_ps(out[p][i], load_halves16((const uint16_t *)(const void *)shared_row(
                                       f, rec + (size_t)p * pitch, b, i)));
}

TILE_INLINE void add_blocks(const struct tile_work *t, int rows, int panels, struct tile_form f)
{
    __m512 acc[TILE_ROWS][TILE_PANELS];
    const char *row[TILE_ROWS];
    const uint8_t *ahead = t->ahead;
    struct tile_block k = {t->rec, t->w, t->scales};
    UNROLL
    for (int r = 0; r < rows; r++) {
        row[r] = t->row[r];
        UNROLL
        for (int p = 0; p < panels; p++)
            acc[r][p] =
                t->first
                    ? _mm512_setzero_ps()
                    : _mm512_maskz_loadu_ps(t->mask[p], t->out + (size_t)r * t->ld + PANEL * p);
    }
    for (int b = 0; b < t->n; b++) {
        if (b == t->turn)
            ahead += (size_t)(panels - 1) * t->pitch;
        for (size_t i = 0; i < t->ahead_bytes; i += 64)
            UNROLL
        for (int p = 0; p < panels; p++)
            _mm_prefetch((const char *)ahead + (size_t)p * t->pitch + i, _MM_HINT_T0);
        ahead += t->ahead_bytes;
        int at = t->begin + b;
        if (f.rec.shared && f.from != KEPT && (b == 0 || at % SHARED_RECORDS == 0))
            read_shared(t->shared, &f.rec, k.rec, t->pitch, panels, at);
        UNROLL
        for (int i = 0; i < f.rec.n_scales; i++)
            add_span(acc, rows, panels, f, t, row, &k, i);
        if (f.from != KEPT)
            k.rec += record_stride(&f.rec, at);
        k.w += 512 * panels;
        k.scales += scale_floats(&f.rec) * panels;
        UNROLL
        for (int r = 0; r < rows; r++)
            row[r] += sizeof(struct input_block);
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int p = 0; p < panels; p++)
        _mm512_mask_storeu_ps(t->out + (size_t)r * t->ld + PANEL * p, t->mask[p], acc[r][p]);
}

/* The tiles of one form: a copy for every number of rows and panels. Only full tiles leave weights to others. */
TILE_INLINE void add_tile(const struct tile_work *t, int rows, int panels, struct tile_form f)
{
#define COPY(r, p)                                                                             \
    case 4 * (p) + (r)-1:                                                                      \
        add_blocks(t, r, p, f);                                                                \
        break
    switch (4 * panels + rows - 1) {
        COPY(4, 1);
        COPY(4, 2);
        COPY(4, 3);
    }
    if (f.from == READ_KEEP)
        return;
    switch (4 * panels + rows - 1) {
        COPY(1, 1);
        COPY(2, 1);
        COPY(3, 1);
        COPY(1, 2);
        COPY(2, 2);
        COPY(3, 2);
        COPY(1, 3);
        COPY(2, 3);
        COPY(3, 3);
    }
#undef COPY
}

#endif

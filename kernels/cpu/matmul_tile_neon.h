/* kernels/cpu/matmul_tile_neon.h - products of quantised weights on 128-bit vectors, with and without a dot product of bytes.
 *
 * What:   a chunk of a panel is unpacked into signed bytes, then used for all rows, three at a time. A vector of weights is
 *         4 outputs by 4 k, so a product with four int8 of a row, repeated, adds up to four lanes.
 * Rules:  compiled twice: matmul_dotprod.c for CPUs with sdot, matmul_neon.c for those without. Sums are exact
 *         either way: two products of bytes stay within 16 bits (128 * 127 * 2), the rest is in 32.
 */
#ifndef QUIRE_KERNELS_CPU_MATMUL_TILE_NEON_H
#define QUIRE_KERNELS_CPU_MATMUL_TILE_NEON_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/input.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd_neon.h"
#include "kernels/team.h"

enum { TILE_ROWS = 3 };

#define TILE_INLINE static inline __attribute__((always_inline))

TILE_INLINE int32x4_t dot4(int32x4_t sum, int8x16_t w, int8x16_t a)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, w, a);
#else
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
    int16x8_t high = vmull_high_s8(w, a);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}

/* The 512 bytes of a record, less the offset: step, output, k % 4. */
static inline void unpack_bytes(int8_t *out, const struct record_form *f, const uint8_t *rec)
{
    const uint8x16_t nibble = vdupq_n_u8(15), bit = vdupq_n_u8(16), two = vdupq_n_u8(48);
    const int8x16_t off = vdupq_n_s8((int8_t)(f->bits == 8 ? 0 : f->off));
    for (int step = 0; step < 8; step++)
        for (int i = 0; i < 4; i++) {
            uint8x16_t q;
            if (f->bits == 8) { /* q - 128 is q with its top bit turned */
                q = veorq_u8(vld1q_u8(rec + 64 * step + 16 * i), vdupq_n_u8(128));
            } else {
                q = vld1q_u8(rec + 64 * (step / 2) + 16 * i);
                q = step % 2 ? vshrq_n_u8(q, 4) : vandq_u8(q, nibble);
            }
            if (f->bits == 5) {
                uint8x16_t fifth =
                    vshlq_u8(vld1q_u8(rec + 256 + 16 * i), vdupq_n_s8((int8_t)(4 - step)));
                q = vorrq_u8(q, vandq_u8(fifth, bit));
            }
            if (f->bits == 6) {
                uint8x16_t top = vshlq_u8(vld1q_u8(rec + 256 + 64 * (step / 4) + 16 * i),
                                          vdupq_n_s8((int8_t)(4 - 2 * (step % 4))));
                q = vorrq_u8(q, vandq_u8(top, two));
            }
            vst1q_s8(out + 64 * step + 16 * i, vsubq_s8(vreinterpretq_s8_u8(q), off));
        }
}

/* What a tile takes: n blocks of unpacked weights and of scales (d, of Q6_K two; then the minimum). */
struct tile_work {
    const int8_t *w;
    const float (*scales)[SCALE_FLOATS];
    const struct input_block *a; /* of the first row's group */
    int n, r;                    /* blocks; place of the first row in its group */
    float *out;                  /* of the first row */
    size_t ld;
    int cols;
    bool first; /* sums start at +0 */
};

TILE_INLINE void add_rows(const struct tile_work *t, int rows, bool two_scales, bool min)
{
    float32x4_t acc[TILE_ROWS][4];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < 4; i++)
            acc[r][i] = t->first
                            ? vdupq_n_f32(0)
                            : load_left4(t->out + (size_t)r * t->ld + 4 * i, t->cols - 4 * i);
    for (int b = 0; b < t->n; b++) {
        const int8_t *w = t->w + 512 * b;
        const float *scale = t->scales[b];
        const struct input_block *a = t->a + b;
        for (int r = 0; min && r < rows; r++)
            for (int i = 0; i < 4; i++)
                acc[r][i] =
                    vfmaq_n_f32(acc[r][i], vld1q_f32(scale + (two_scales ? 32 : 16) + 4 * i),
                                a->s[t->r + r]);
        for (int part = 0; part < (two_scales ? 2 : 1); part++) {
            int32x4_t sum[TILE_ROWS][4];
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < 4; i++)
                    sum[r][i] = vdupq_n_s32(0);
            int begin = 4 * part, end = two_scales ? begin + 4 : 8;
            for (int step = begin; step < end; step++)
                for (int r = 0; r < rows; r++) {
                    int32_t word;
                    memcpy(&word, a->q[step][t->r + r], sizeof(word));
                    int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(word));
                    for (int i = 0; i < 4; i++)
                        sum[r][i] = dot4(sum[r][i], vld1q_s8(w + 64 * step + 16 * i), x);
                }
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < 4; i++) {
                    float32x4_t d = vld1q_f32(scale + 16 * part + 4 * i);
                    acc[r][i] = vfmaq_n_f32(acc[r][i], vmulq_f32(vcvtq_f32_s32(sum[r][i]), d),
                                            a->d[t->r + r]);
                }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < 4; i++)
            store_left4(t->out + (size_t)r * t->ld + 4 * i, t->cols - 4 * i, acc[r][i]);
}

typedef void tile_fn(const struct tile_work *t);

/* A function of its own for every form: the compiler sees constants. */
#define TILES(name, ...)                                                                       \
    static void name##_1(const struct tile_work *t)                                            \
    {                                                                                          \
        add_rows(t, 1, __VA_ARGS__);                                                           \
    }                                                                                          \
    static void name##_2(const struct tile_work *t)                                            \
    {                                                                                          \
        add_rows(t, 2, __VA_ARGS__);                                                           \
    }                                                                                          \
    static void name##_3(const struct tile_work *t)                                            \
    {                                                                                          \
        add_rows(t, 3, __VA_ARGS__);                                                           \
    }                                                                                          \
    static tile_fn *const name[TILE_ROWS + 1] = {NULL, name##_1, name##_2, name##_3};

TILES(plain, false, false)
TILES(with_min, false, true)
TILES(two_scales, true, false)

struct product {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
    struct matmul_scratch *scratch;
};

static void add_panel(const struct product *p, int panel, struct matmul_scratch *s)
{
    const struct kern_weights *w = p->w;
    const struct record_form *f = &record_forms[w->type];
    tile_fn *const *tiles = f->n_scales == 2 ? two_scales : f->min ? with_min : plain;
    int n_blocks = w->n_in / 32, left = w->n_out - panel * PANEL;
    int8_t *bytes = (int8_t *)s->weights;
    struct tile_work t = {.w = bytes,
                          .scales = (const float(*)[SCALE_FLOATS])s->scales,
                          .ld = p->ld,
                          .cols = left < PANEL ? left : PANEL};
    for (int begin = 0; begin < n_blocks; begin += CHUNK_BLOCKS) {
        t.n = n_blocks - begin < CHUNK_BLOCKS ? n_blocks - begin : CHUNK_BLOCKS;
        t.first = begin == 0;
        for (int b = 0; b < t.n; b++) {
            const uint8_t *rec = record_at(w, panel, begin + b);
            unpack_bytes(bytes + 512 * b, f, rec);
            for (int i = 0; i < (f->n_scales + f->min) * PANEL; i++)
                s->scales[b][i] = record_scale(f, rec, begin + b, i % PANEL, i / PANEL);
        }
        for (int row = 0; row < p->in->rows; row += TILE_ROWS) {
            int rows = p->in->rows - row < TILE_ROWS ? p->in->rows - row : TILE_ROWS;
            t.a = (const struct input_block *)p->in->mem +
                  (size_t)(row / ROW_GROUP) * (size_t)n_blocks + begin;
            t.r = row % ROW_GROUP;
            t.out = p->out + (size_t)row * p->ld + (size_t)panel * PANEL;
            tiles[rows](&t);
        }
    }
}

static void add_panels(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    for (int panel = begin; panel < end; panel++)
        add_panel(p, panel, p->scratch + thread);
}

static void quantised(float *out, size_t ld, const struct kern_weights *w,
                      const struct kern_input *in, void *scratch)
{
    struct product p = {out, ld, w, in, scratch};
    int panels = (w->n_out + PANEL - 1) / PANEL;
    team_run(panels, panels / (8 * team_threads()), add_panels, &p);
}

#endif

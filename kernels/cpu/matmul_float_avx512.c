/* Products of float weights: k rising, one fma per weight, 6 rows by 4 panels or by one.
 *
 * K runs in chunks that stay in L1 while all rows use them. Halves of few rows become floats in registers, of many
 * in scratch first, [k][panels][16]. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd_avx512.h"
#include "kernels/team.h"

enum { TILE_ROWS = 6, TILE_PANELS = 4 };

TILE_INLINE __m512 load_weights(enum kern_type t, const void *w, size_t i)
{
    if (t == KERN_F32)
        return _mm512_loadu_ps((const float *)w + i);
    if (t == KERN_F16)
        return load_halves16((const uint16_t *)w + i);
    __m256i b = _mm256_loadu_si256((const __m256i *)((const uint16_t *)w + i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}

/* out[rows][panels][16] += w times x[rows][n]: weights of input k at w + k*ld_w, panels `next` values apart. */
struct float_work {
    const void *w;
    size_t ld_w, next;
    const float *x;
    size_t ld_x;
    int n;
    float *out;
    size_t ld;
    __mmask16 mask[TILE_PANELS];
    bool first; /* outputs start at +0 */
};

TILE_INLINE void tile(const struct float_work *t, int rows, int panels, enum kern_type type)
{
    __m512 s[TILE_ROWS][TILE_PANELS], w[TILE_PANELS];
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int p = 0; p < panels; p++)
        s[r][p] = t->first ? _mm512_setzero_ps()
                           : _mm512_maskz_loadu_ps(t->mask[p],
                                                   t->out + (size_t)r * t->ld + PANEL * p);
    const float *x = t->x;
    size_t ld_x = t->ld_x, ld_w = t->ld_w, next = t->next;
    for (int k = 0; k < t->n; k++) {
        UNROLL
        for (int p = 0; p < panels; p++)
            w[p] = load_weights(type, t->w, (size_t)k * ld_w + (size_t)p * next);
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m512 v = _mm512_set1_ps(x[(size_t)r * ld_x + (size_t)k]);
            UNROLL
            for (int p = 0; p < panels; p++) {
                s[r][p] = _mm512_fmadd_ps(w[p], v, s[r][p]);
                PIN_WIDE(s[r][p]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int p = 0; p < panels; p++)
        _mm512_mask_storeu_ps(t->out + (size_t)r * t->ld + PANEL * p, t->mask[p], s[r][p]);
}

TILE_INLINE void tile_of(const struct float_work *t, int rows, int panels, enum kern_type type)
{
#define COPY(r)                                                                                \
    case r:                                                                                    \
        if (panels == 1)                                                                       \
            tile(t, r, 1, type);                                                               \
        else                                                                                   \
            tile(t, r, TILE_PANELS, type);                                                     \
        break
    switch (rows) {
        COPY(1);
        COPY(2);
        COPY(3);
        COPY(4);
        COPY(5);
        COPY(6);
    }
#undef COPY
}

typedef void float_tile_fn(const struct float_work *t, int rows, int panels);

#define FLOAT_TILE(name, type)                                                                 \
    static __attribute__((noinline)) void name(const struct float_work *t, int rows,           \
                                               int panels)                                     \
    {                                                                                          \
        tile_of(t, rows, panels, type);                                                        \
    }

FLOAT_TILE(tile_f32, KERN_F32)
FLOAT_TILE(tile_f16, KERN_F16)
FLOAT_TILE(tile_bf16, KERN_BF16)

/* Inputs [begin, begin + n) of some panels as floats. */
static void widen_panels(float (*out)[PANEL], const struct kern_weights *w, int panel,
                         int panels, int begin, int n)
{
    for (int k = 0; k < n; k++)
        for (int p = 0; p < panels; p++) {
            size_t at = ((size_t)(panel + p) * (size_t)w->n_in + (size_t)(begin + k)) * PANEL;
            _mm512_store_ps(*out++, w->type == KERN_F16 ? load_weights(KERN_F16, w->data, at)
                                                        : load_weights(KERN_BF16, w->data, at));
        }
}

struct float_job {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
    int panel, panels;
};

static void add_panels(const struct float_job *job, float (*values)[PANEL])
{
    const struct kern_weights *w = job->w;
    size_t k = (size_t)job->in->k, size = (size_t)kern_types[w->type].block_bytes;
    size_t panel_values = (size_t)w->n_in * PANEL;
    bool direct = w->type == KERN_F32 || job->in->rows <= TILE_ROWS;
    float_tile_fn *add = !direct || w->type == KERN_F32 ? tile_f32
                         : w->type == KERN_F16          ? tile_f16
                                                        : tile_bf16;
    int chunk = CHUNK_K / job->panels;
    struct float_work work = {.ld_w = direct ? PANEL : (size_t)job->panels * PANEL,
                              .next = direct ? panel_values : PANEL,
                              .ld_x = k,
                              .ld = job->ld,
                              .w = values};
    for (int p = 0; p < job->panels; p++)
        work.mask[p] = first_lanes(w->n_out - (job->panel + p) * PANEL);
    for (int begin = 0; begin < w->n_in; begin += chunk) {
        work.n = w->n_in - begin < chunk ? w->n_in - begin : chunk;
        work.first = begin == 0;
        if (direct)
            work.w = (const uint8_t *)w->data +
                     ((size_t)job->panel * panel_values + (size_t)begin * PANEL) * size;
        else
            widen_panels(values, w, job->panel, job->panels, begin, work.n);
        for (int row = 0; row < job->in->rows; row += TILE_ROWS) {
            int rows = job->in->rows - row < TILE_ROWS ? job->in->rows - row : TILE_ROWS;
            work.x = job->in->x + (size_t)row * k + begin;
            work.out = job->out + (size_t)row * job->ld + (size_t)job->panel * PANEL;
            add(&work, rows, job->panels);
        }
    }
}

struct product {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
    struct matmul_scratch *scratch;
    int panels, wide, jobs; /* of the jobs the first `wide` take four panels */
};

static void some_jobs(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    for (int i = begin; i < end; i++) {
        bool wide = i < p->wide;
        const struct float_job job = {p->out,
                                      p->ld,
                                      p->w,
                                      p->in,
                                      wide ? i * TILE_PANELS : p->panels - p->jobs + i,
                                      wide ? TILE_PANELS : 1};
        add_panels(&job, p->scratch[thread].values);
    }
}

/* Panels by four, the rest one by one; all of them so where that gives every thread some. */
void matmul_float_avx512(float *out, size_t ld, const struct kern_weights *w,
                         const struct kern_input *in, void *scratch)
{
    int panels = (w->n_out + PANEL - 1) / PANEL, wide = panels / TILE_PANELS;
    if (wide < team_threads())
        wide = 0;
    int jobs = wide + panels - wide * TILE_PANELS;
    struct product p = {out, ld, w, in, scratch, panels, wide, jobs};
    team_run(jobs, 1, some_jobs, &p);
}

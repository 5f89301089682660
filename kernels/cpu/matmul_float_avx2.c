/* Products with float rows: k rising, one fma per weight, 6 rows by one panel.
 *
 * Weights become floats in scratch, a chunk of k at a time, but for few rows of a float type: then they
 * are converted in registers. Quantised weights take exactly the values of kern_dequantize_row. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/unpack_avx2.h"
#include "kernels/team.h"

enum { TILE_ROWS = 6 };

/* Eight of the 16 weights of input k. */
TILE_INLINE __m256 load_weights(enum kern_type t, const void *w, size_t i)
{
    if (t == KERN_F32)
        return _mm256_loadu_ps((const float *)w + i);
    if (t == KERN_F16)
        return load_halves((const uint16_t *)w + i);
    __m128i b = _mm_loadu_si128((const __m128i *)((const uint16_t *)w + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
}

/* acc[rows][16] += w[n][16] times x[rows][n], rows ld_x apart. */
TILE_INLINE void tile(float (*acc)[16], int rows, enum kern_type t, const void *w,
                      const float *x, size_t ld_x, int n)
{
    __m256 s[TILE_ROWS][2];
    UNROLL
    for (int r = 0; r < rows; r++) {
        s[r][0] = _mm256_load_ps(acc[r]);
        s[r][1] = _mm256_load_ps(acc[r] + 8);
    }
    for (int k = 0; k < n; k++) {
        __m256 w0 = load_weights(t, w, (size_t)k * 16),
               w1 = load_weights(t, w, (size_t)k * 16 + 8);
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m256 v = _mm256_broadcast_ss(x + (size_t)r * ld_x + k);
            s[r][0] = _mm256_fmadd_ps(w0, v, s[r][0]);
            s[r][1] = _mm256_fmadd_ps(w1, v, s[r][1]);
            PIN(s[r][0]);
            PIN(s[r][1]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        _mm256_store_ps(acc[r], s[r][0]);
        _mm256_store_ps(acc[r] + 8, s[r][1]);
    }
}

TILE_INLINE void tile_of(float (*acc)[16], int rows, enum kern_type t, const void *w,
                         const float *x, size_t ld_x, int n)
{
    switch (rows) {
    case 1:
        tile(acc, 1, t, w, x, ld_x, n);
        break;
    case 2:
        tile(acc, 2, t, w, x, ld_x, n);
        break;
    case 3:
        tile(acc, 3, t, w, x, ld_x, n);
        break;
    case 4:
        tile(acc, 4, t, w, x, ld_x, n);
        break;
    case 5:
        tile(acc, 5, t, w, x, ld_x, n);
        break;
    default:
        tile(acc, 6, t, w, x, ld_x, n);
    }
}

static void tile_f32(float (*acc)[16], int rows, const void *w, const float *x, size_t ld_x,
                     int n)
{
    tile_of(acc, rows, KERN_F32, w, x, ld_x, n);
}

static void tile_f16(float (*acc)[16], int rows, const void *w, const float *x, size_t ld_x,
                     int n)
{
    tile_of(acc, rows, KERN_F16, w, x, ld_x, n);
}

static void tile_bf16(float (*acc)[16], int rows, const void *w, const float *x, size_t ld_x,
                      int n)
{
    tile_of(acc, rows, KERN_BF16, w, x, ld_x, n);
}

/* Weights of record b as floats: out[32][16]. */
static void widen_record(float (*out)[16], const struct record_form *f, const uint8_t *rec,
                         int b)
{
    for (int step = 0; step < 8; step++)
        for (int h = 0; h < 2; h++) {
            __m256i q;
            if (f->bits == 8)
                q = load_bytes(rec + step * RECORD_UNIT + 32 * h);
            else
                q = f->bits == 4   ? record_step(4, rec, step, h)
                    : f->bits == 5 ? record_step(5, rec, step, h)
                                   : record_step(6, rec, step, h);
            __m256 d = record_scale8(f, rec, b, step * f->n_scales / 8, h);
            __m256 m = f->min ? record_scale8(f, rec, b, f->n_scales, h) : _mm256_setzero_ps();
            for (int i = 0; i < 4; i++) {
                __m256i v =
                    _mm256_and_si256(_mm256_srli_epi32(q, 8 * i), _mm256_set1_epi32(255));
                __m256 value =
                    _mm256_cvtepi32_ps(_mm256_sub_epi32(v, _mm256_set1_epi32(f->off)));
                value = f->min ? _mm256_fmadd_ps(d, value, m) : _mm256_mul_ps(d, value);
                _mm256_store_ps(out[4 * step + i] + 8 * h, value);
            }
        }
}

/* Inputs [begin, begin + n) of a panel as floats. */
static void widen_panel(float (*out)[16], const struct kern_weights *w, int panel, int begin,
                        int n)
{
    const struct record_form *f = &record_forms[w->type];
    if (f->bits) {
        for (int k = 0; k < n; k += 32)
            widen_record(out + k, f, record_at(w, panel, (begin + k) / 32), (begin + k) / 32);
        return;
    }
    size_t at = ((size_t)panel * (size_t)w->n_in + (size_t)begin) * PANEL;
    for (size_t i = 0; i < (size_t)n * PANEL; i += 8)
        _mm256_store_ps(out[0] + i,
                        w->type == KERN_F32   ? load_weights(KERN_F32, w->data, at + i)
                        : w->type == KERN_F16 ? load_weights(KERN_F16, w->data, at + i)
                                              : load_weights(KERN_BF16, w->data, at + i));
}

typedef void float_tile_fn(float (*acc)[16], int rows, const void *w, const float *x,
                           size_t ld_x, int n);

/* Inputs [begin, begin + n) of one panel for all rows; weights: those inputs, as the tile reads them. */
static void add_panel(float *out, size_t ld, const struct kern_weights *w,
                      const struct kern_input *in, int panel, int begin, int n,
                      float_tile_fn *add, const void *weights)
{
    int cols = w->n_out - panel * PANEL < PANEL ? w->n_out - panel * PANEL : PANEL;
    size_t bytes = (size_t)cols * sizeof(float), k = (size_t)in->k;
    for (int row = 0; row < in->rows; row += TILE_ROWS) {
        int rows = in->rows - row < TILE_ROWS ? in->rows - row : TILE_ROWS;
        float acc[TILE_ROWS][16] __attribute__((aligned(32))) = {0};
        float *to = out + (size_t)row * ld + (size_t)panel * PANEL;
        for (int r = 0; begin > 0 && r < rows; r++)
            memcpy(acc[r], to + (size_t)r * ld, bytes);
        add(acc, rows, weights, in->x + (size_t)row * k + begin, k, n);
        for (int r = 0; r < rows; r++)
            memcpy(to + (size_t)r * ld, acc[r], bytes);
    }
}

static void panel_by_chunks(float *out, size_t ld, const struct kern_weights *w,
                            const struct kern_input *in, int panel, struct matmul_scratch *s)
{
    for (int begin = 0; begin < w->n_in; begin += CHUNK_K) {
        int n = w->n_in - begin < CHUNK_K ? w->n_in - begin : CHUNK_K;
        widen_panel(s->values, w, panel, begin, n);
        add_panel(out, ld, w, in, panel, begin, n, tile_f32, s->values);
    }
}

struct product {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
    struct matmul_scratch *scratch;
    float_tile_fn *direct; /* NULL: by chunks */
};

static void add_panels(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    const struct kern_weights *w = p->w;
    size_t bytes = (size_t)w->n_in * PANEL * (size_t)kern_types[w->type].block_bytes;
    for (int i = begin; i < end; i++)
        if (p->direct)
            add_panel(p->out, p->ld, w, p->in, i, 0, w->n_in, p->direct,
                      (const uint8_t *)w->data + (size_t)i * bytes);
        else
            panel_by_chunks(p->out, p->ld, w, p->in, i, p->scratch + thread);
}

void matmul_float_inputs_avx2(float *out, size_t ld, const struct kern_weights *w,
                              const struct kern_input *in, void *scratch)
{
    int panels = (w->n_out + PANEL - 1) / PANEL;
    bool few = in->rows <= TILE_ROWS && !record_forms[w->type].bits;
    float_tile_fn *direct = w->type == KERN_F32   ? tile_f32
                            : w->type == KERN_F16 ? tile_f16
                                                  : tile_bf16;
    struct product p = {out, ld, w, in, scratch, few ? direct : NULL};
    team_run(panels, 1, add_panels, &p);
}

/* Attention over pages, a tile of rows at a time (attn_tile.h).
 *
 * Few rows read halves directly; for many a page is widened to floats once. */
#include "kernels/cpu/attn_tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd_avx2.h"
#include "kernels/team.h"

enum { TILE_ROWS = 6 };

/* Eight halves or floats from value i on. */
TILE_INLINE __m256 load8(bool half, const void *p, size_t i)
{
    return half ? load_halves((const uint16_t *)p + i) : _mm256_loadu_ps((const float *)p + i);
}

/* A matrix times some rows, 16 lanes wide: c[r][0..15] = start + sum_k a[r][k] * w[k][0..15], k rising from 0.
 * start is +0, or c[r] * shrink[r]. Rows of w are ld_w values apart, of a and c ld_a and ld_c floats. */
struct product {
    const void *w;
    size_t ld_w;
    int n;
    const float *a;
    size_t ld_a;
    float *c;
    size_t ld_c;
    const float *shrink;
};

TILE_INLINE void multiply(const struct product *p, int rows, bool half)
{
    __m256 s[TILE_ROWS][2];
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int h = 0; h < 2; h++)
        s[r][h] = p->shrink ? _mm256_mul_ps(_mm256_loadu_ps(p->c + (size_t)r * p->ld_c + 8 * h),
                                            _mm256_broadcast_ss(p->shrink + r))
                            : _mm256_setzero_ps();
    const float *a = p->a;
    size_t ld_a = p->ld_a, ld_w = p->ld_w;
    for (int k = 0; k < p->n; k++) {
        __m256 w0 = load8(half, p->w, (size_t)k * ld_w),
               w1 = load8(half, p->w, (size_t)k * ld_w + 8);
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m256 x = _mm256_broadcast_ss(a + (size_t)r * ld_a + k);
            s[r][0] = _mm256_fmadd_ps(w0, x, s[r][0]);
            s[r][1] = _mm256_fmadd_ps(w1, x, s[r][1]);
            PIN(s[r][0]);
            PIN(s[r][1]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int h = 0; h < 2; h++)
        _mm256_storeu_ps(p->c + (size_t)r * p->ld_c + 8 * h, s[r][h]);
}

TILE_INLINE void multiply_rows(const struct product *p, int rows, bool half)
{
    switch (rows) {
    case 1:
        multiply(p, 1, half);
        break;
    case 2:
        multiply(p, 2, half);
        break;
    case 3:
        multiply(p, 3, half);
        break;
    case 4:
        multiply(p, 4, half);
        break;
    case 5:
        multiply(p, 5, half);
        break;
    default:
        multiply(p, 6, half);
    }
}

static void multiply_halves(const struct product *p, int rows)
{
    multiply_rows(p, rows, true);
}

static void multiply_floats(const struct product *p, int rows)
{
    multiply_rows(p, rows, false);
}

/* Scores of a page become weights; keys outside [begin, end) get +0. Returns what older sums shrink by. */
static float weigh(float *s, int begin, int end, float *max, float *sum)
{
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 x[8], v[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, tops = none;
    UNROLL
    for (int i = 0; i < 8; i++) {
        __m256i seen =
            _mm256_andnot_si256(lanes_below(begin - 8 * i), lanes_below(end - 8 * i));
        x[i] = _mm256_blendv_ps(none, _mm256_loadu_ps(s + 8 * i), _mm256_castsi256_ps(seen));
        tops = _mm256_max_ps(tops, x[i]);
    }
    float top = max8(tops);
    top = top > *max ? top : *max;
    UNROLL
    for (int i = 0; i < 8; i++) {
        x[i] = exp8_below(_mm256_sub_ps(x[i], _mm256_set1_ps(top)));
        v[i % 2] = _mm256_add_ps(v[i % 2], x[i]);
        _mm256_storeu_ps(s + 8 * i, x[i]);
    }
    float shrink = _mm256_cvtss_f32(exp8_below(_mm256_set1_ps(*max - top)));
    __m128 l =
        _mm_fmadd_ss(_mm_set_ss(*sum), _mm_set_ss(shrink), _mm_set_ss(fold16_avx2(v[0], v[1])));
    *sum = _mm_cvtss_f32(l);
    *max = top;
    return shrink;
}

static void widen(float *out, const uint16_t *in, size_t n)
{
    for (size_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(out + i, load_halves(in + i));
}

/* One page for up to six rows of the tile, from its row i on. keys, values: as `half` says. */
static void add_page(const struct attn_tile *t, const struct tile_mem *m, int i, int rows,
                     int page, const void *keys, const void *values, bool half)
{
    int d = t->head_dim;
    size_t size = half ? 2 : 4, at = (size_t)i * (size_t)d;
    float *scores = m->scores + (size_t)i * PAGE, shrink[TILE_ROWS];
    struct page_view seen = page_seen(t, i, rows, page);
    if (!seen.any)
        return;
    for (int g = 0; g < PAGE / 16; g++) {
        const struct product p = {.w = (const char *)keys + (size_t)g * 16 * (size_t)d * size,
                                  .ld_w = 16,
                                  .n = d,
                                  .a = m->q + at,
                                  .ld_a = (size_t)d,
                                  .c = scores + 16 * g,
                                  .ld_c = PAGE};
        half ? multiply_halves(&p, rows) : multiply_floats(&p, rows);
    }
    for (int r = 0; r < rows; r++)
        shrink[r] = weigh(scores + r * PAGE, seen.begin[r], seen.end[r], m->max + i + r,
                          m->sum + i + r);
    for (int c = 0; c < d; c += 16) {
        const struct product p = {.w = (const char *)values + (size_t)c * size,
                                  .ld_w = (size_t)d,
                                  .n = seen.written,
                                  .a = scores,
                                  .ld_a = PAGE,
                                  .c = m->out + at + c,
                                  .ld_c = (size_t)d,
                                  .shrink = shrink};
        half ? multiply_halves(&p, rows) : multiply_floats(&p, rows);
    }
}

static void attend(const struct attn_tile *t, float *scratch)
{
    int d = t->head_dim, rows = tile_rows(t);
    struct tile_mem m = tile_mem_at(scratch, rows, d);
    const struct kern_attn_rows *call = t->call;
    tile_begin(t, &m);
    int begin = visible_keys(call, t->first).begin, end = visible_keys(call, t->end - 1).end;
    for (int page = begin / PAGE; page * PAGE < end; page++) {
        const uint16_t *k = (const uint16_t *)call->slices[page] + page_head_at(t->kv_head, d);
        const uint16_t *v = k + page_value_at(0, 0, d);
        bool half = rows <= TILE_ROWS;
        if (!half) {
            widen(m.keys, k, PAGE * (size_t)d);
            widen(m.values, v,
                  (size_t)(end - page * PAGE < PAGE ? end - page * PAGE : PAGE) * (size_t)d);
        }
        for (int i = 0; i < rows; i += TILE_ROWS)
            add_page(t, &m, i, rows - i < TILE_ROWS ? rows - i : TILE_ROWS, page,
                     half ? (const void *)k : m.keys, half ? (const void *)v : m.values, half);
    }
    for (int i = 0; i < rows; i++) {
        __m256 r = _mm256_set1_ps(1.0f / m.sum[i]);
        float *o = m.out + (size_t)i * (size_t)d;
        for (int c = 0; c < d; c += 8)
            _mm256_storeu_ps(o + c, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(o + c), r),
                                                  _mm256_setzero_ps()));
    }
    tile_end(t, &m);
}

struct attention {
    const struct attn_plan *plan;
    float *scratch;
    size_t own; /* of a thread */
};

static void attend_tiles(void *arg, int begin, int end, int thread)
{
    const struct attention *a = arg;
    for (int i = begin; i < end; i++) {
        const struct attn_tile t = tile_at(a->plan, i);
        attend(&t, a->scratch + (size_t)thread * a->own);
    }
}

void attn_avx2(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
               int head_dim, void *scratch)
{
    if (head_dim % 16 != 0) {
        attn_ref(calls, n_calls, n_head, n_kv_head, head_dim, scratch);
        return;
    }
    struct attn_plan p;
    int total = attn_plan_make(&p, calls, n_calls, n_head, n_kv_head, head_dim, team_threads());
    struct attention a = {&p, scratch, attn_thread_floats(p.group, head_dim)};
    team_run(total, 1, attend_tiles, &a);
}

/* Attention over pages, a tile of rows at a time (attn_tile.h).
 *
 * Six rows by 64 keys, or by 64 channels, are 24 sums: 4 loads and 6 broadcasts for 24 products. Few rows read halves
 * directly; for many a page is widened to floats once. */
#include "kernels/cpu/attn_tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd_avx512.h"
#include "kernels/team.h"

enum { TILE_ROWS = 6, TILE_VECTORS = 4 };

/* Sixteen halves or floats from value i on. */
TILE_INLINE __m512 load_vector(bool half, const void *p, size_t i)
{
    return half ? load_halves16((const uint16_t *)p + i)
                : _mm512_loadu_ps((const float *)p + i);
}

/* A matrix times some rows, some vectors of 16 wide: c[r][...] = start + sum_k a[r][k] * w[k][...], k rising from 0.
 * start is +0, or c[r] * shrink[r]. Rows of w are ld_w values apart, its vectors `next`; rows of a and c ld_a and
 * ld_c floats. */
struct product {
    const void *w;
    size_t ld_w, next;
    int n;
    const float *a;
    size_t ld_a;
    float *c;
    size_t ld_c;
    const float *shrink;
};

TILE_INLINE void multiply(const struct product *p, int rows, int vectors, bool half)
{
    __m512 s[TILE_ROWS][TILE_VECTORS], x[TILE_VECTORS];
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        s[r][v] = p->shrink
                      ? _mm512_mul_ps(_mm512_loadu_ps(p->c + (size_t)r * p->ld_c + 16 * v),
                                      _mm512_set1_ps(p->shrink[r]))
                      : _mm512_setzero_ps();
    const float *a = p->a;
    size_t ld_a = p->ld_a, ld_w = p->ld_w, next = p->next;
    for (int k = 0; k < p->n; k++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            x[v] = load_vector(half, p->w, (size_t)k * ld_w + (size_t)v * next);
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m512 y = _mm512_set1_ps(a[(size_t)r * ld_a + (size_t)k]);
            UNROLL
            for (int v = 0; v < vectors; v++) {
                s[r][v] = _mm512_fmadd_ps(x[v], y, s[r][v]);
                PIN_WIDE(s[r][v]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        _mm512_storeu_ps(p->c + (size_t)r * p->ld_c + 16 * v, s[r][v]);
}

TILE_INLINE void multiply_rows(const struct product *p, int rows, int vectors, bool half)
{
    switch (rows) {
    case 1:
        multiply(p, 1, vectors, half);
        break;
    case 2:
        multiply(p, 2, vectors, half);
        break;
    case 3:
        multiply(p, 3, vectors, half);
        break;
    case 4:
        multiply(p, 4, vectors, half);
        break;
    case 5:
        multiply(p, 5, vectors, half);
        break;
    default:
        multiply(p, 6, vectors, half);
    }
}

typedef void multiply_fn(const struct product *p, int rows);

#define MULTIPLY(name, vectors, half)                                                          \
    static __attribute__((noinline)) void name(const struct product *p, int rows)              \
    {                                                                                          \
        multiply_rows(p, rows, vectors, half);                                                 \
    }

MULTIPLY(halves_64, 4, true)
MULTIPLY(halves_16, 1, true)
MULTIPLY(floats_64, 4, false)
MULTIPLY(floats_16, 1, false)

/* Scores of a page become weights, in steps over all rows so that their long chains overlap; keys outside a row's
 * range get +0. shrink: what older sums shrink by. */
static void weigh(float (*s)[PAGE], int rows, const struct page_view *seen, float *max,
                  float *sum, float *shrink)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    float top[TILE_ROWS];
    __m512 total[TILE_ROWS];
    for (int r = 0; r < rows; r++) {
        uint64_t below_begin = seen->begin[r] <= 0      ? 0
                               : seen->begin[r] >= PAGE ? ~0ull
                                                        : (1ull << seen->begin[r]) - 1;
        uint64_t below_end = seen->end[r] <= 0      ? 0
                             : seen->end[r] >= PAGE ? ~0ull
                                                    : (1ull << seen->end[r]) - 1;
        uint64_t keys = below_end & ~below_begin;
        __m512 tops = none;
        UNROLL
        for (int v = 0; v < 4; v++) {
            __m512 x = _mm512_mask_loadu_ps(none, (__mmask16)(keys >> 16 * v), s[r] + 16 * v);
            tops = _mm512_max_ps(tops, x);
            _mm512_storeu_ps(s[r] + 16 * v, x);
        }
        float t = max16(tops);
        top[r] = t > max[r] ? t : max[r];
    }
    for (int r = 0; r < rows; r++) {
        total[r] = _mm512_setzero_ps();
        UNROLL
        for (int v = 0; v < 4; v++) {
            __m512 x = _mm512_sub_ps(_mm512_loadu_ps(s[r] + 16 * v), _mm512_set1_ps(top[r]));
            x = exp16_below(x);
            total[r] = _mm512_add_ps(total[r], x);
            _mm512_storeu_ps(s[r] + 16 * v, x);
        }
    }
    for (int r = 0; r < rows; r++) {
        shrink[r] = _mm512_cvtss_f32(exp16_below(_mm512_set1_ps(max[r] - top[r])));
        sum[r] = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(sum[r]), _mm_set_ss(shrink[r]),
                                            _mm_set_ss(fold16_avx512(total[r]))));
        max[r] = top[r];
    }
}

static void widen(float *out, const uint16_t *in, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        _mm512_storeu_ps(out + i, load_halves16(in + i));
}

/* One page for up to six rows of the tile, from its row i on. keys, values: as `half` says. */
static void add_page(const struct attn_tile *t, const struct tile_mem *m, int i, int rows,
                     int page, const void *keys, const void *values, bool half)
{
    size_t d = (size_t)t->head_dim, at = (size_t)i * d, size = half ? 2 : 4;
    float(*scores)[PAGE] = (float(*)[PAGE])(m->scores + (size_t)i * PAGE), shrink[TILE_ROWS];
    struct page_view seen = page_seen(t, i, rows, page);
    if (!seen.any)
        return;
    struct product p = {.w = keys,
                        .ld_w = 16,
                        .next = 16 * d,
                        .n = t->head_dim,
                        .a = m->q + at,
                        .ld_a = d,
                        .c = scores[0],
                        .ld_c = PAGE};
    (half ? halves_64 : floats_64)(&p, rows);
    weigh(scores, rows, &seen, m->max + i, m->sum + i, shrink);
    p = (struct product){.ld_w = d,
                         .next = 16,
                         .n = seen.written,
                         .a = scores[0],
                         .ld_a = PAGE,
                         .ld_c = d,
                         .shrink = shrink};
    for (size_t c = 0; c < d;) {
        bool wide = d - c >= 64;
        p.w = (const char *)values + c * size;
        p.c = m->out + at + c;
        (half ? wide ? halves_64 : halves_16 : wide ? floats_64 : floats_16)(&p, rows);
        c += wide ? 64 : 16;
    }
}

static void attend(const struct attn_tile *t, float *scratch)
{
    int d = t->head_dim, rows = tile_rows(t);
    struct tile_mem m = tile_mem_at(scratch, rows, d);
    const struct kern_attn_rows *call = t->call;
    bool half = rows <= TILE_ROWS;
    tile_begin(t, &m);
    int begin = visible_keys(call, t->first).begin, end = visible_keys(call, t->end - 1).end;
    for (int page = begin / PAGE; page * PAGE < end; page++) {
        const uint16_t *k = (const uint16_t *)call->slices[page] + page_head_at(t->kv_head, d);
        const uint16_t *v = k + page_value_at(0, 0, d);
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
        __m512 r = _mm512_set1_ps(1.0f / m.sum[i]);
        float *o = m.out + (size_t)i * (size_t)d;
        for (int c = 0; c < d; c += 16)
            _mm512_storeu_ps(o + c, _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(o + c), r),
                                                  _mm512_setzero_ps()));
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

void attn_avx512(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
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

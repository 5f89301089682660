/* Attention over pages: the products and the weights (attn_tiles.h).
 *
 * Six rows by 64 keys, or by 64 channels, are 24 sums: 4 loads and 6 broadcasts for 24 products. Weights are made
 * for 16 rows at a time, so that their maxima and sums fold together. */
#include "kernels/cpu/attn_tiles.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd_avx512.h"

enum { BLOCK = 16 };

TILE_INLINE __m512 start_of(const struct attn_product *p, int r, int v)
{
    if (!p->go_on)
        return _mm512_setzero_ps();
    __m512 c = _mm512_loadu_ps(p->c + r * ATTN_SQUARE + 16 * v);
    return p->shrink ? _mm512_mul_ps(c, _mm512_set1_ps(p->shrink[r])) : c;
}

/* Vector v of the matrix' row k, which begins at w. */
TILE_INLINE __m512 load_vector(enum attn_matrix kind, const char *w, size_t ld, int v)
{
    const void *p = w + attn_matrix_at(kind, ld, 0, (size_t)v);
    return kind == ATTN_FLOATS  ? _mm512_loadu_ps(p)
           : kind == ATTN_BYTES ? load_signed16(p)
                                : load_halves16(p);
}

/* One k: its row of the matrix at w, its values of a from `a` on. */
TILE_INLINE void step(__m512 s[ATTN_GROUP][4], enum attn_matrix kind, const char *w, size_t ld,
                      const float *a, int rows, int vectors)
{
    __m512 x[4];
    UNROLL
    for (int v = 0; v < vectors; v++) {
        x[v] = load_vector(kind, w, ld, v);
        PIN_WIDE(x[v]); /* or it is loaded again for each row */
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        __m512 y = _mm512_set1_ps(a[r * ATTN_SQUARE]);
        UNROLL
        for (int v = 0; v < vectors; v++)
            add_product16(&s[r][v], x[v], y);
    }
}

TILE_INLINE void multiply_group(const struct attn_product *p, int rows, int vectors,
                                enum attn_matrix kind)
{
    enum { STEPS = 4 };
    __m512 s[ATTN_GROUP][4];
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        s[r][v] = start_of(p, r, v);
    const char *w = p->w;
    const float *a = p->a;
    size_t ld = p->ld, line = attn_matrix_at(kind, ld, 1, 0);
    int n = p->n;
    for (; n >= STEPS; n -= STEPS, a += STEPS) {
        if (n <= p->ask_from && n > p->ask_to) {
            const size_t ask = attn_ask_bytes(kind);
            const char *ahead = p->ahead + (size_t)(p->n - n) * ask;
            UNROLL
            for (size_t i = 0; i < STEPS * ask; i += 64)
                _mm_prefetch(ahead + i, _MM_HINT_T1);
        }
        UNROLL
        for (int i = 0; i < STEPS; i++, w += line)
            step(s, kind, w, ld, a + i, rows, vectors);
    }
    for (; n > 0; n--, a++, w += line)
        step(s, kind, w, ld, a, rows, vectors);
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        _mm512_storeu_ps(p->c + r * ATTN_SQUARE + 16 * v, s[r][v]);
}

TILE_INLINE void multiply_rows(const struct attn_product *p, int rows, int vectors,
                               enum attn_matrix kind)
{
    switch (rows) {
    case 1:
        multiply_group(p, 1, vectors, kind);
        break;
    case 2:
        multiply_group(p, 2, vectors, kind);
        break;
    case 3:
        multiply_group(p, 3, vectors, kind);
        break;
    case 4:
        multiply_group(p, 4, vectors, kind);
        break;
    case 5:
        multiply_group(p, 5, vectors, kind);
        break;
    default:
        multiply_group(p, 6, vectors, kind);
    }
}

typedef void group_fn(const struct attn_product *p, int rows);

#define GROUP(name, vectors, kind)                                                             \
    static __attribute__((noinline)) void name(const struct attn_product *p, int rows)         \
    {                                                                                          \
        multiply_rows(p, rows, vectors, kind);                                                 \
    }

GROUP(floats_16, 1, ATTN_FLOATS)
GROUP(floats_32, 2, ATTN_FLOATS)
GROUP(floats_48, 3, ATTN_FLOATS)
GROUP(floats_64, 4, ATTN_FLOATS)
GROUP(keys_16, 1, ATTN_KEYS)
GROUP(keys_32, 2, ATTN_KEYS)
GROUP(keys_48, 3, ATTN_KEYS)
GROUP(keys_64, 4, ATTN_KEYS)
GROUP(values_16, 1, ATTN_VALUES)
GROUP(values_32, 2, ATTN_VALUES)
GROUP(values_48, 3, ATTN_VALUES)
GROUP(values_64, 4, ATTN_VALUES)
GROUP(bytes_16, 1, ATTN_BYTES)
GROUP(bytes_32, 2, ATTN_BYTES)
GROUP(bytes_48, 3, ATTN_BYTES)
GROUP(bytes_64, 4, ATTN_BYTES)

/* The rows of a with the scales in them: into room for them. */
static void scale_rows(float *room, struct attn_product *p, int rows)
{
    for (int k = 0; k < p->n; k += 16) {
        __m512 by = load_halves16(p->scales + k);
        for (int r = 0; r < rows; r++) {
            int at = r * ATTN_SQUARE + k;
            _mm512_storeu_ps(room + at, _mm512_mul_ps(_mm512_loadu_ps(p->a + at), by));
        }
    }
    p->a = room;
}

static void multiply(const struct attn_product *product, int rows)
{
    static group_fn *const groups[4][4] = {
        [ATTN_FLOATS] = {floats_16, floats_32, floats_48, floats_64},
        [ATTN_KEYS] = {keys_16, keys_32, keys_48, keys_64},
        [ATTN_VALUES] = {values_16, values_32, values_48, values_64},
        [ATTN_BYTES] = {bytes_16, bytes_32, bytes_48, bytes_64},
    };
    float room[ATTN_GROUP * ATTN_SQUARE];
    int n = (rows + ATTN_GROUP - 1) / ATTN_GROUP;
    for (int i = 0; i < n; i++) {
        struct attn_product p;
        int count = attn_part(&p, product, rows, i, n);
        if (p.scales)
            scale_rows(room, &p, count);
        groups[p.kind][p.lanes / 16 - 1](&p, count);
    }
}

/* What the loops need is read from p first: out might be a part of it, for all that compilers know. */
TILE_INLINE void widen_kind(float *out, const struct attn_product *p, enum attn_matrix kind)
{
    const char *w = p->w;
    const size_t ld = p->ld, line = attn_matrix_at(kind, ld, 1, 0);
    const int n = p->n, vectors = p->lanes / 16;
    for (int k = 0; k < n; k++, w += line, out += ATTN_SQUARE)
        for (int v = 0; v < vectors; v++)
            _mm512_storeu_ps(out + 16 * v, load_vector(kind, w, ld, v));
}

static void widen(float *out, const struct attn_product *p)
{
    if (p->kind == ATTN_KEYS)
        widen_kind(out, p, ATTN_KEYS);
    else if (p->kind == ATTN_VALUES)
        widen_kind(out, p, ATTN_VALUES);
    else
        widen_kind(out, p, ATTN_BYTES);
}

static void scale(float *to, const float *from, float by, int n)
{
    for (int i = 0; i < n; i += 16)
        _mm512_storeu_ps(
            to + i, _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(from + i), _mm512_set1_ps(by)),
                                  _mm512_setzero_ps()));
}

/* ---- weights ---- */

typedef __m512 join_fn(__m512 a, __m512 b);

static inline __m512 join_max(__m512 a, __m512 b)
{
    return _mm512_max_ps(a, b);
}

static inline __m512 join_sum(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}

/* Lane r of the result is v[r]'s 16 lanes joined as fold16 joins them: l with l + 8, then 4, 2, 1. */
TILE_INLINE __m512 fold_rows(const __m512 v[BLOCK], join_fn *join)
{
    __m512 four[4], two[2];
    UNROLL
    for (int i = 0; i < 4; i++) { /* rows i, 4+i, 8+i, 12+i: four lanes of each are left */
        __m512 a = v[i], b = v[4 + i], c = v[8 + i], d = v[12 + i];
        __m512 ab = join(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
        __m512 cd = join(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
        four[i] = join(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    }
    UNROLL
    for (int i = 0; i < 2; i++) /* rows 4q + {2i, 2i+1} in lanes 4q + {0, 1}, {2, 3} */
        two[i] = join(_mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                      _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
    return join(_mm512_shuffle_ps(two[0], two[1], 0x88),
                _mm512_shuffle_ps(two[0], two[1], 0xdd));
}

/* Bits [0, n) of 64, n of any size. */
static inline uint64_t below(int n)
{
    return n <= 0 ? 0 : n >= 64 ? ~0ull : (1ull << n) - 1;
}

/* Up to 16 rows, in steps over all of them. */
TILE_INLINE void weigh_block(float *s, int rows, const struct attn_view *seen, float *max,
                             float *sum, float *shrink)
{
    enum { PAGE = KERN_PAGE_TOKENS };
    const __m512 none = _mm512_set1_ps(-INFINITY);
    const __mmask16 here = first_lanes(rows);
    __m512 v[BLOCK];
    float tops[BLOCK];
    UNROLL
    for (int r = 0; r < BLOCK; r++)
        v[r] = none;
    for (int r = 0; r < rows; r++) {
        float *x = s + r * PAGE;
        uint64_t keys = seen ? below(seen[r].end) & ~below(seen[r].begin) : ~0ull;
        v[r] = none;
        UNROLL
        for (int i = 0; i < 4; i++) {
            __m512 y = _mm512_mask_loadu_ps(none, (__mmask16)(keys >> 16 * i), x + 16 * i);
            v[r] = _mm512_max_ps(v[r], y);
            if (seen)
                _mm512_storeu_ps(x + 16 * i, y);
        }
    }
    __m512 old = _mm512_maskz_loadu_ps(here, max);
    __m512 top = _mm512_max_ps(fold_rows(v, join_max), old);
    _mm512_storeu_ps(tops, top);
    for (int r = 0; r < rows; r++) {
        float *x = s + r * PAGE;
        v[r] = _mm512_setzero_ps();
        UNROLL
        for (int i = 0; i < 4; i++) {
            __m512 e = exp16_below(
                _mm512_sub_ps(_mm512_loadu_ps(x + 16 * i), _mm512_set1_ps(tops[r])));
            v[r] = _mm512_add_ps(v[r], e);
            _mm512_storeu_ps(x + 16 * i, e);
        }
    }
    __m512 shrunk = exp16_below(_mm512_sub_ps(old, top));
    __m512 total =
        _mm512_fmadd_ps(_mm512_maskz_loadu_ps(here, sum), shrunk, fold_rows(v, join_sum));
    _mm512_mask_storeu_ps(shrink, here, shrunk);
    _mm512_mask_storeu_ps(sum, here, total);
    _mm512_mask_storeu_ps(max, here, top);
}

static void weigh(float *s, int rows, const struct attn_view *seen, float *max, float *sum,
                  float *shrink)
{
    for (int r = 0; r < rows; r += BLOCK) {
        int n = rows - r < BLOCK ? rows - r : BLOCK;
        float *at = s + r * KERN_PAGE_TOKENS;
        if (seen)
            weigh_block(at, n, seen + r, max + r, sum + r, shrink + r);
        else
            weigh_block(at, n, NULL, max + r, sum + r, shrink + r);
    }
}

void attn_avx512(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
                 int head_dim, void *scratch)
{
    static const struct attn_ops ops = {multiply, weigh, scale, widen};
    if (head_dim % 16 == 0)
        attn_tiles(&ops, calls, n_calls, n_head, n_kv_head, head_dim, scratch);
    else
        attn_ref(calls, n_calls, n_head, n_kv_head, head_dim, scratch);
}

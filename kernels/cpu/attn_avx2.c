/* Attention over pages: the products and the weights (attn_tiles.h).
 *
 * Six rows by 16 keys, or by 16 channels, are 12 sums: 2 loads and 6 broadcasts for 12 products. Up to three rows take 32
 * at a time, or their few sums would wait for themselves. Weights are made for 8 rows at a time, so that
 * their maxima and sums fold together. */
#include "kernels/cpu/attn_tiles.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd_avx2.h"

enum { BLOCK = 8 };

TILE_INLINE __m256 start_of(const struct attn_product *p, int r, int v)
{
    if (!p->go_on)
        return _mm256_setzero_ps();
    __m256 c = _mm256_loadu_ps(p->c + r * ATTN_SQUARE + 8 * v);
    return p->shrink ? _mm256_mul_ps(c, _mm256_broadcast_ss(p->shrink + r)) : c;
}

/* Half v of a vector of the matrix' row k, which begins at w. */
TILE_INLINE __m256 load_vector(enum attn_matrix kind, const char *w, size_t ld, int v)
{
    const char *p = w + attn_matrix_at(kind, ld, 0, (size_t)v / 2);
    return kind == ATTN_FLOATS  ? _mm256_loadu_ps((const float *)(const void *)p + v % 2 * 8)
           : kind == ATTN_BYTES ? load_signed(p + v % 2 * 8)
                                : load_halves((const uint16_t *)(const void *)p + v % 2 * 8);
}

/* One k: its row of the matrix at w, its values of a from `a` on. Two vectors at a time: 12 sums leave no room for more. */
TILE_INLINE void step(__m256 s[ATTN_GROUP][4], enum attn_matrix kind, const char *w, size_t ld,
                      const float *a, int rows, int vectors)
{
    UNROLL
    for (int v = 0; v < vectors; v += 2) {
        __m256 x0 = load_vector(kind, w, ld, v), x1 = load_vector(kind, w, ld, v + 1);
        PIN(x0); /* or they are loaded again for each row */
        PIN(x1);
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m256 y; /* as asm, or all rows' are kept, and sums spilled for them */
            __asm__ volatile("vbroadcastss %1, %0" : "=x"(y) : "m"(a[r * ATTN_SQUARE]));
            add_product8(&s[r][v], x0, y);
            add_product8(&s[r][v + 1], x1, y);
        }
    }
}

/* vectors: 2, or 4 for up to three rows. */
TILE_INLINE void multiply_group(const struct attn_product *p, int rows, int vectors,
                                enum attn_matrix kind)
{
    enum { STEPS = 4 };
    __m256 s[ATTN_GROUP][4];
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
                _mm_prefetch(ahead + i, _MM_HINT_T0);
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
        _mm256_storeu_ps(p->c + r * ATTN_SQUARE + 8 * v, s[r][v]);
}

TILE_INLINE void multiply_16(const struct attn_product *p, int rows, enum attn_matrix kind)
{
    switch (rows) {
    case 1:
        multiply_group(p, 1, 2, kind);
        break;
    case 2:
        multiply_group(p, 2, 2, kind);
        break;
    case 3:
        multiply_group(p, 3, 2, kind);
        break;
    case 4:
        multiply_group(p, 4, 2, kind);
        break;
    case 5:
        multiply_group(p, 5, 2, kind);
        break;
    default:
        multiply_group(p, 6, 2, kind);
    }
}

TILE_INLINE void multiply_32(const struct attn_product *p, int rows, enum attn_matrix kind)
{
    switch (rows) {
    case 1:
        multiply_group(p, 1, 4, kind);
        break;
    case 2:
        multiply_group(p, 2, 4, kind);
        break;
    default:
        multiply_group(p, 3, 4, kind);
    }
}

typedef void group_fn(const struct attn_product *p, int rows);

#define GROUP(name, lanes, kind)                                                               \
    static                                                                                     \
        __attribute__((noinline)) void name##_##lanes(const struct attn_product *p, int rows)  \
    {                                                                                          \
        multiply_##lanes(p, rows, kind);                                                       \
    }

GROUP(floats, 16, ATTN_FLOATS)
GROUP(floats, 32, ATTN_FLOATS)
GROUP(keys, 16, ATTN_KEYS)
GROUP(keys, 32, ATTN_KEYS)
GROUP(values, 16, ATTN_VALUES)
GROUP(values, 32, ATTN_VALUES)
GROUP(bytes, 16, ATTN_BYTES)
GROUP(bytes, 32, ATTN_BYTES)

/* The rows of a with the scales in them: into room for them. */
static void scale_rows(float *room, struct attn_product *p, int rows)
{
    for (int k = 0; k < p->n; k += 8) {
        __m256 by = load_halves(p->scales + k);
        for (int r = 0; r < rows; r++) {
            int at = r * ATTN_SQUARE + k;
            _mm256_storeu_ps(room + at, _mm256_mul_ps(_mm256_loadu_ps(p->a + at), by));
        }
    }
    p->a = room;
}

static void multiply(const struct attn_product *product, int rows)
{
    static group_fn *const groups[4][2] = {
        [ATTN_FLOATS] = {floats_16, floats_32},
        [ATTN_KEYS] = {keys_16, keys_32},
        [ATTN_VALUES] = {values_16, values_32},
        [ATTN_BYTES] = {bytes_16, bytes_32},
    };
    float room[ATTN_GROUP * ATTN_SQUARE];
    int n = (rows + ATTN_GROUP - 1) / ATTN_GROUP;
    for (int i = 0; i < n; i++) {
        struct attn_product p;
        int count = attn_part(&p, product, rows, i, n), strips = p.lanes / 16;
        if (p.scales)
            scale_rows(room, &p, count);
        for (int strip = 0, take; strip < strips; strip += take) {
            struct attn_product s = p;
            take = count <= 3 && strips - strip >= 2 ? 2 : 1;
            attn_ask(&s, i * strips + strip, n * strips);
            attn_skip_lanes(&s, strip);
            groups[s.kind][take - 1](&s, count);
        }
    }
}

/* What the loops need is read from p first: out might be a part of it, for all that compilers know. */
TILE_INLINE void widen_kind(float *out, const struct attn_product *p, enum attn_matrix kind)
{
    const char *w = p->w;
    const size_t ld = p->ld, line = attn_matrix_at(kind, ld, 1, 0);
    const int n = p->n, vectors = p->lanes / 8;
    for (int k = 0; k < n; k++, w += line, out += ATTN_SQUARE)
        for (int v = 0; v < vectors; v++)
            _mm256_storeu_ps(out + 8 * v, load_vector(kind, w, ld, v));
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
    for (int i = 0; i < n; i += 8)
        _mm256_storeu_ps(
            to + i, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(from + i), _mm256_set1_ps(by)),
                                  _mm256_setzero_ps()));
}

/* ---- weights ---- */

typedef __m256 join_fn(__m256 a, __m256 b);

static inline __m256 join_max(__m256 a, __m256 b)
{
    return _mm256_max_ps(a, b);
}

static inline __m256 join_sum(__m256 a, __m256 b)
{
    return _mm256_add_ps(a, b);
}

/* Lane r of the result is v[r]'s 8 lanes joined as fold16 joins them once 16 are 8: l with l + 4, then 2, 1. */
TILE_INLINE __m256 fold_rows(const __m256 v[BLOCK], join_fn *join)
{
    __m256 four[4], two[2];
    UNROLL
    for (int i = 0; i < 4; i++) /* rows i and 4+i: four lanes of each are left */
        four[i] = join(_mm256_permute2f128_ps(v[i], v[4 + i], 0x20),
                       _mm256_permute2f128_ps(v[i], v[4 + i], 0x31));
    UNROLL
    for (int i = 0; i < 2; i++) /* rows 4q + {2i, 2i+1} in lanes 4q + {0, 1}, {2, 3} */
        two[i] = join(_mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                      _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
    return join(_mm256_shuffle_ps(two[0], two[1], 0x88),
                _mm256_shuffle_ps(two[0], two[1], 0xdd));
}

/* Keys that a row does not see score -inf. */
static void hide(float *s, struct attn_view seen)
{
    const __m256 none = _mm256_set1_ps(-INFINITY);
    for (int i = 0; i < KERN_PAGE_TOKENS; i += 8) {
        __m256i here =
            _mm256_andnot_si256(lanes_below(seen.begin - i), lanes_below(seen.end - i));
        _mm256_storeu_ps(
            s + i, _mm256_blendv_ps(none, _mm256_loadu_ps(s + i), _mm256_castsi256_ps(here)));
    }
}

/* Up to 8 rows, in steps over all of them. */
static void weigh_block(float *s, int rows, float *max, float *sum, float *shrink)
{
    enum { PAGE = KERN_PAGE_TOKENS };
    float tops[BLOCK];
    __m256 v[BLOCK];
    for (int r = 0; r < BLOCK; r++)
        v[r] = _mm256_setzero_ps();
    for (int r = 0; r < rows; r++) {
        const float *x = s + r * PAGE;
        v[r] = _mm256_loadu_ps(x);
        UNROLL
        for (int i = 1; i < 8; i++)
            v[r] = _mm256_max_ps(v[r], _mm256_loadu_ps(x + 8 * i));
    }
    __m256 old = load_left(max, rows), top = _mm256_max_ps(fold_rows(v, join_max), old);
    _mm256_storeu_ps(tops, top);
    for (int r = 0; r < rows; r++) {
        float *x = s + r * PAGE;
        __m256 t = _mm256_broadcast_ss(tops + r), low = _mm256_setzero_ps(), high = low;
        UNROLL
        for (int i = 0; i < 8; i += 2) {
            __m256 e0 = exp8_below(_mm256_sub_ps(_mm256_loadu_ps(x + 8 * i), t));
            __m256 e1 = exp8_below(_mm256_sub_ps(_mm256_loadu_ps(x + 8 * i + 8), t));
            low = _mm256_add_ps(low, e0);
            high = _mm256_add_ps(high, e1);
            _mm256_storeu_ps(x + 8 * i, e0);
            _mm256_storeu_ps(x + 8 * i + 8, e1);
        }
        v[r] = _mm256_add_ps(low, high); /* the first step of fold16 */
    }
    __m256 shrunk = exp8_below(_mm256_sub_ps(old, top));
    __m256 total = _mm256_fmadd_ps(load_left(sum, rows), shrunk, fold_rows(v, join_sum));
    store_left(shrink, rows, shrunk);
    store_left(sum, rows, total);
    store_left(max, rows, top);
}

static void weigh(float *s, int rows, const struct attn_view *seen, float *max, float *sum,
                  float *shrink)
{
    for (int r = 0; seen && r < rows; r++)
        hide(s + r * KERN_PAGE_TOKENS, seen[r]);
    for (int r = 0; r < rows; r += BLOCK)
        weigh_block(s + r * KERN_PAGE_TOKENS, rows - r < BLOCK ? rows - r : BLOCK, max + r,
                    sum + r, shrink + r);
}

void attn_avx2(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
               int head_dim, void *scratch)
{
    static const struct attn_ops ops = {multiply, weigh, scale, widen};
    if (head_dim % 16 == 0)
        attn_tiles(&ops, calls, n_calls, n_head, n_kv_head, head_dim, scratch);
    else
        attn_ref(calls, n_calls, n_head, n_kv_head, head_dim, scratch);
}

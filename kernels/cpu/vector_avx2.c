#include "kernels/cpu/cpu.h"
#include "kernels/cpu/share_rows.h"
#include "kernels/cpu/simd_avx2.h"

static void add_row(float *out, const float *x, const float *y, int n, float c)
{
    (void)c;
    for (int i = 0; i < n; i += 8)
        store_left(out + i, n - i,
                   _mm256_add_ps(load_left(x + i, n - i), load_left(y + i, n - i)));
}

void add_avx2(float *x, const float *y, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){add_row, x, x, y, ld, ld, ld, n, 0}, rows);
}

void add_bias_avx2(float *x, const float *b, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){add_row, x, x, b, ld, ld, 0, n, 0}, rows);
}

static void scale_row(float *out, const float *x, const float *y, int n, float c)
{
    __m256 by = _mm256_set1_ps(c);
    (void)y;
    for (int i = 0; i < n; i += 8)
        store_left(out + i, n - i, _mm256_mul_ps(load_left(x + i, n - i), by));
}

void scale_avx2(float *x, float c, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){scale_row, x, x, x, ld, ld, ld, n, c}, rows);
}

/* Greatest of n values; NaN never wins (max takes its second operand then), -inf when there is no other. */
static float max_of(const float *x, int n)
{
    __m256 top = _mm256_set1_ps(-INFINITY);
    int i = 0;
    for (; i + 8 <= n; i += 8)
        top = _mm256_max_ps(_mm256_loadu_ps(x + i), top);
    if (i < n) {
        __m256 beyond = _mm256_castsi256_ps(lanes_below(n - i));
        top = _mm256_max_ps(_mm256_blendv_ps(top, load_left(x + i, n - i), beyond), top);
    }
    return max8(top);
}

/* e = exp(x - top) of the values from i on, in place; zero beyond the last. */
static __m256 exp_left(float *x, int n, __m256 top)
{
    __m256 e = exp8(_mm256_sub_ps(load_left(x, n), top));
    if (n < 8)
        e = _mm256_and_ps(e, _mm256_castsi256_ps(lanes_below(n)));
    store_left(x, n, e);
    return e;
}

/* The sign of a zero maximum may differ from the reference's: exp(+0) = exp(-0) hides it. */
void softmax_avx2(float *x, int n)
{
    __m256 top = _mm256_set1_ps(max_of(x, n)), low = _mm256_setzero_ps(), high = low;
    for (int i = 0; i < n; i += 16) {
        low = _mm256_add_ps(low, exp_left(x + i, n - i, top));
        high = _mm256_add_ps(high, exp_left(x + i + 8, n - i - 8, top));
    }
    __m256 r = _mm256_set1_ps(1.0f / fold16_avx2(low, high));
    for (int i = 0; i < n; i += 8)
        store_left(x + i, n - i, _mm256_mul_ps(load_left(x + i, n - i), r));
}

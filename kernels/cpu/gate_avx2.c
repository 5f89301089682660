#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/share_rows.h"
#include "kernels/cpu/simd_avx2.h"

/* g / (1 + exp(z)) * u */
static __m256 gate(__m256 g, __m256 z, __m256 u)
{
    __m256 below = _mm256_add_ps(_mm256_set1_ps(1.0f), exp8(z));
    return _mm256_mul_ps(_mm256_div_ps(g, below), u);
}

static void silu_row(float *out, const float *g, const float *u, int n, float c)
{
    (void)c;
    for (int i = 0; i < n; i += 8) {
        __m256 v = load_left(g + i, n - i);
        __m256 z = _mm256_sub_ps(_mm256_setzero_ps(), v);
        store_left(out + i, n - i, gate(v, z, load_left(u + i, n - i)));
    }
}

static void gelu_row(float *out, const float *g, const float *u, int n, float c)
{
    (void)c;
    const __m256 cube = _mm256_set1_ps(GELU_CUBE), linear = _mm256_set1_ps(GELU_LINEAR);
    for (int i = 0; i < n; i += 8) {
        __m256 v = load_left(g + i, n - i);
        __m256 z = _mm256_mul_ps(v, _mm256_fmadd_ps(_mm256_mul_ps(cube, v), v, linear));
        store_left(out + i, n - i, gate(v, z, load_left(u + i, n - i)));
    }
}

void silu_mul_avx2(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){silu_row, out, g, u, ld, ld, ld, n, 0}, rows);
}

void gelu_mul_avx2(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){gelu_row, out, g, u, ld, ld, ld, n, 0}, rows);
}

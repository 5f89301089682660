#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/share_rows.h"
#include "kernels/cpu/simd_avx512.h"

/* g / (1 + exp(z)) * u */
static __m512 gate(__m512 g, __m512 z, __m512 u)
{
    __m512 below = _mm512_add_ps(_mm512_set1_ps(1.0f), exp16(z));
    return _mm512_mul_ps(_mm512_div_ps(g, below), u);
}

static void silu_row(float *out, const float *g, const float *u, int n, float c)
{
    (void)c;
    for (int i = 0; i < n; i += 16) {
        __m512 v = load_left16(g + i, n - i);
        __m512 z = _mm512_sub_ps(_mm512_setzero_ps(), v);
        store_left16(out + i, n - i, gate(v, z, load_left16(u + i, n - i)));
    }
}

static void gelu_row(float *out, const float *g, const float *u, int n, float c)
{
    (void)c;
    const __m512 cube = _mm512_set1_ps(GELU_CUBE), linear = _mm512_set1_ps(GELU_LINEAR);
    for (int i = 0; i < n; i += 16) {
        __m512 v = load_left16(g + i, n - i);
        __m512 z = _mm512_mul_ps(v, _mm512_fmadd_ps(_mm512_mul_ps(cube, v), v, linear));
        store_left16(out + i, n - i, gate(v, z, load_left16(u + i, n - i)));
    }
}

void silu_mul_avx512(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){silu_row, out, g, u, ld, ld, ld, n, 0}, rows);
}

void gelu_mul_avx512(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){gelu_row, out, g, u, ld, ld, ld, n, 0}, rows);
}

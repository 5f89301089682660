#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd_avx512.h"

static float sum_of_squares(const float *x, int n)
{
    __m512 v = _mm512_setzero_ps();
    for (int i = 0; i < n; i += 16) {
        __m512 a = load_left16(x + i, n - i);
        v = _mm512_fmadd_ps(a, a, v);
    }
    return fold16_avx512(v);
}

void rms_norm_avx512(float *out, size_t ld_out, const float *x, size_t ld_x, const float *w,
                     int rows, int n, float eps)
{
#pragma omp parallel for if ((size_t)rows * (size_t)n > PARALLEL_VALUES)
    for (int row = 0; row < rows; row++) {
        const float *in = x + (size_t)row * ld_x;
        float *to = out + (size_t)row * ld_out;
        __m512 r = _mm512_set1_ps(1.0f / sqrtf(sum_of_squares(in, n) / (float)n + eps));
        for (int i = 0; i < n; i += 16) {
            __m512 scaled = _mm512_mul_ps(load_left16(in + i, n - i), r);
            store_left16(to + i, n - i, _mm512_mul_ps(scaled, load_left16(w + i, n - i)));
        }
    }
}

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/share_rows.h"
#include "kernels/cpu/simd_avx2.h"

static float sum_of_squares(const float *x, int n)
{
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (int i = 0; i < n; i += 16) {
        __m256 a = load_left(x + i, n - i), b = load_left(x + i + 8, n - i - 8);
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    return fold16_avx2(low, high);
}

static void norm_row(float *out, const float *x, const float *w, int n, float eps)
{
    __m256 r = _mm256_set1_ps(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
    for (int i = 0; i < n; i += 8) {
        __m256 scaled = _mm256_mul_ps(load_left(x + i, n - i), r);
        store_left(out + i, n - i, _mm256_mul_ps(scaled, load_left(w + i, n - i)));
    }
}

void rms_norm_avx2(float *out, size_t ld_out, const float *x, size_t ld_x, const float *w,
                   int rows, int n, float eps)
{
    share_op(&(struct row_op){norm_row, out, x, w, ld_out, ld_x, 0, n, eps}, rows);
}

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/share_rows.h"
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

static void norm_row(float *out, const float *x, const float *w, int n, float eps)
{
    __m512 r = _mm512_set1_ps(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
    for (int i = 0; i < n; i += 16) {
        __m512 scaled = _mm512_mul_ps(load_left16(x + i, n - i), r);
        store_left16(out + i, n - i, _mm512_mul_ps(scaled, load_left16(w + i, n - i)));
    }
}

void rms_norm_avx512(float *out, size_t ld_out, const float *x, size_t ld_x, const float *w,
                     int rows, int n, float eps)
{
    share_op(&(struct row_op){norm_row, out, x, w, ld_out, ld_x, 0, n, eps}, rows);
}

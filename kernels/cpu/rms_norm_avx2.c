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

static void norm_rows(void *arg, int begin, int end, int thread)
{
    const struct row_op *op = arg;
    int n = op->n;
    (void)thread;
    for (int row = begin; row < end; row++) {
        const float *in = op->x + (size_t)row * op->ld_x;
        float *to = op->out + (size_t)row * op->ld;
        __m256 r = _mm256_set1_ps(1.0f / sqrtf(sum_of_squares(in, n) / (float)n + op->c));
        for (int i = 0; i < n; i += 8) {
            __m256 scaled = _mm256_mul_ps(load_left(in + i, n - i), r);
            store_left(to + i, n - i, _mm256_mul_ps(scaled, load_left(op->y + i, n - i)));
        }
    }
}

void rms_norm_avx2(float *out, size_t ld_out, const float *x, size_t ld_x, const float *w,
                   int rows, int n, float eps)
{
    struct row_op op = {
        .out = out, .ld = ld_out, .x = x, .ld_x = ld_x, .y = w, .n = n, .c = eps};
    share_rows(rows, n, norm_rows, &op);
}

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

static void norm_rows(void *arg, int begin, int end, int thread)
{
    const struct row_op *op = arg;
    int n = op->n;
    (void)thread;
    for (int row = begin; row < end; row++) {
        const float *in = op->x + (size_t)row * op->ld_x;
        float *to = op->out + (size_t)row * op->ld;
        __m512 r = _mm512_set1_ps(1.0f / sqrtf(sum_of_squares(in, n) / (float)n + op->c));
        for (int i = 0; i < n; i += 16) {
            __m512 scaled = _mm512_mul_ps(load_left16(in + i, n - i), r);
            store_left16(to + i, n - i, _mm512_mul_ps(scaled, load_left16(op->y + i, n - i)));
        }
    }
}

void rms_norm_avx512(float *out, size_t ld_out, const float *x, size_t ld_x, const float *w,
                     int rows, int n, float eps)
{
    struct row_op op = {
        .out = out, .ld = ld_out, .x = x, .ld_x = ld_x, .y = w, .n = n, .c = eps};
    share_rows(rows, n, norm_rows, &op);
}

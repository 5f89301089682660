#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd_avx512.h"

/* Greatest of n values; NaN never wins (max takes its second operand then), -inf when there is no other. */
static float max_of(const float *x, int n)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 top = none;
    for (int i = 0; i < n; i += 16)
        top = _mm512_max_ps(_mm512_mask_loadu_ps(none, first_lanes(n - i), x + i), top);
    return max16(top);
}

/* The sign of a zero maximum may differ from the reference's: exp(+0) = exp(-0) hides it. */
void softmax_avx512(float *x, int n)
{
    __m512 top = _mm512_set1_ps(max_of(x, n)), sum = _mm512_setzero_ps();
    for (int i = 0; i < n; i += 16) {
        __m512 e = exp16(_mm512_sub_ps(load_left16(x + i, n - i), top));
        e = _mm512_maskz_mov_ps(first_lanes(n - i), e);
        store_left16(x + i, n - i, e);
        sum = _mm512_add_ps(sum, e);
    }
    __m512 r = _mm512_set1_ps(1.0f / fold16_avx512(sum));
    for (int i = 0; i < n; i += 16)
        store_left16(x + i, n - i, _mm512_mul_ps(load_left16(x + i, n - i), r));
}

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/input.h"
#include "kernels/cpu/prepare_rows.h"
#include "kernels/cpu/simd_avx512.h"

static __m512i magnitudes(__m512 v)
{
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}

static bool all_finite(const float *x, int n)
{
    __m512i top = _mm512_setzero_si512();
    for (int i = 0; i < n; i += 16)
        top = _mm512_max_epi32(top, magnitudes(load_left16(x + i, n - i)));
    return _mm512_cmpgt_epi32_mask(top, _mm512_set1_epi32(0x7f7fffff)) == 0;
}

/* The values of a block of n (32, or fewer at the end) and their 8 bits. Returns d. */
static inline float quantise(__m512i q[2], __m512 v[2], const float *x, int n)
{
    v[0] = load_left16(x, n);
    v[1] = n > 16 ? load_left16(x + 16, n - 16) : _mm512_setzero_ps();
    __m512i top = _mm512_max_epi32(magnitudes(v[0]), magnitudes(v[1]));
    float amax = max16(_mm512_castsi512_ps(top)); /* finite: ordered as integers are */
    bool zero = amax < INPUT_TINY;
    __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / amax);
    for (int i = 0; i < 2; i++)
        q[i] = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], inverse));
    return zero ? 0.0f : amax / 127.0f;
}

/* Row r of a group. */
static void prepare_block(struct input_block *out, int r, const float *x, int n)
{
    __m512 v[2];
    __m512i q[2];
    out->d[r] = quantise(q, v, x, n);
    int high = _mm512_reduce_add_epi32(q[1]), sum = _mm512_reduce_add_epi32(q[0]) + high;
    int32_t word[8];
    for (int i = 0; i < 2; i++)
        _mm_storeu_si128((__m128i *)(word + 4 * i), _mm512_cvtepi32_epi8(q[i]));
    for (int i = 0; i < 8; i++)
        memcpy(out->q[i][r], &word[i], 4);
    out->s[r] = out->d[r] * (float)sum;
    out->n[r] = sum;
    out->n_high[r] = high;
}

void prepare_avx512(struct kern_input *in, uint8_t *bad)
{
    struct input_block *blocks = in->mem;
    int groups = input_groups(in->rows), n_blocks = input_blocks(in->k);
#pragma omp parallel for if ((size_t)in->rows * (size_t)in->k > PARALLEL_VALUES)
    for (int g = 0; g < groups; g++)
        prepare_group(blocks + (size_t)g * (size_t)n_blocks, in, g * ROW_GROUP, bad, all_finite,
                      prepare_block);
}

static void remainder_block(float *out, const float *x, int n)
{
    __m512 v[2];
    __m512i q[2];
    __m512 d = _mm512_set1_ps(quantise(q, v, x, n));
    for (int i = 0; i < 2 && 16 * i < n; i++)
        store_left16(out + 16 * i, n - 16 * i,
                     _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(q[i]), v[i]));
}

void remainder_avx512(float *out, const float *x, int rows, int n)
{
#pragma omp parallel for if ((size_t)rows * (size_t)n > PARALLEL_VALUES)
    for (int row = 0; row < rows; row++) {
        const float *from = x + (size_t)row * (size_t)n;
        float *to = out + (size_t)row * (size_t)n;
        if (!all_finite(from, n))
            memset(to, 0, (size_t)n * sizeof *to);
        else
            for (int i = 0; i < n; i += 32)
                remainder_block(to + i, from + i, n - i);
    }
}

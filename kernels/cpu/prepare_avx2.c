#include "kernels/cpu/cpu.h"
#include "kernels/cpu/input.h"
#include "kernels/cpu/prepare_rows.h"
#include "kernels/cpu/simd_avx2.h"

static __m256i magnitudes(__m256 v)
{
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

static bool all_finite(const float *x, int n)
{
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8)
        top = _mm256_max_epi32(top, magnitudes(load_left(x + i, n - i)));
    __m256i over = _mm256_cmpgt_epi32(top, _mm256_set1_epi32(0x7f7fffff));
    return _mm256_testz_si256(over, over);
}

static int sum8(__m256i v)
{
    __m128i v4 = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    __m128i v2 = _mm_add_epi32(v4, _mm_shuffle_epi32(v4, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(v2, _mm_shuffle_epi32(v2, 0xb1)));
}

/* The values of a block of n (32, or fewer at the end) and their 8 bits. Returns d. */
static inline float quantise(__m256i q[4], __m256 v[4], const float *x, int n)
{
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = load_left(x + 8 * i, n - 8 * i);
        top = _mm256_max_epi32(top, magnitudes(v[i]));
    }
    float amax =
        max8(_mm256_castsi256_ps(top)); /* finite, not negative: ordered as integers are */
    bool zero = amax < INPUT_TINY;
    __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 127.0f / amax);
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    return zero ? 0.0f : amax / 127.0f;
}

/* Row r of a group. */
static void prepare_block(struct input_block *out, int r, const float *x, int n)
{
    __m256 v[4];
    __m256i q[4];
    out->d[r] = quantise(q, v, x, n);
    int high = sum8(_mm256_add_epi32(q[2], q[3]));
    int sum = sum8(_mm256_add_epi32(q[0], q[1])) + high;
    /* packs interleaves the 128-bit halves: words come as steps 0 2 4 6 1 3 5 7 */
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    int32_t word[8];
    _mm256_storeu_si256((__m256i *)word, bytes);
    for (int i = 0; i < 8; i++)
        memcpy(out->q[i % 4 * 2 + i / 4][r], &word[i], 4);
    out->s[r] = out->d[r] * (float)sum;
    out->n[r] = sum;
    out->n_high[r] = high;
}

static void group(const struct preparation *p, int g)
{
    prepare_group(p, g, all_finite, prepare_block);
}

void prepare_avx2(struct kern_input *in, uint8_t *bad)
{
    prepare_all((struct preparation){in, bad, group});
}

static void remainder_block(float *out, const float *x, int n)
{
    __m256 v[4];
    __m256i q[4];
    __m256 d = _mm256_set1_ps(quantise(q, v, x, n));
    for (int i = 0; i < 4; i++)
        store_left(out + 8 * i, n - 8 * i, _mm256_fnmadd_ps(d, _mm256_cvtepi32_ps(q[i]), v[i]));
}

static void remainder_row(float *out, const float *x, const float *y, int n, float c)
{
    (void)y;
    (void)c;
    prepare_remainder(out, x, n, all_finite, remainder_block);
}

void remainder_avx2(float *out, const float *x, int rows, int n)
{
    size_t ld = (size_t)n;
    share_op(&(struct row_op){remainder_row, out, x, x, ld, ld, ld, n, 0}, rows);
}

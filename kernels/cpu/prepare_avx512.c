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

/* Row r of a group. Sums are made while four bytes are a word: no reduction of 16 lanes. */
static void prepare_block(struct input_block *out, int r, const float *x, int n)
{
    __m512 v[2];
    __m512i q[2];
    out->d[r] = quantise(q, v, x, n);
    /* Lane i of four has words i and 4 + i of the block. */
    __m512i words = _mm512_packs_epi32(q[0], q[1]);
    words = _mm512_packs_epi16(words, words);
    __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), words);
    __m256i two =
        _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
    __m128i one = _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    int high = _mm_extract_epi32(one, 1), sum = _mm_cvtsi128_si32(one) + high;
    int32_t word[16];
    _mm512_storeu_si512(word, words);
    for (int i = 0; i < 4; i++) {
        memcpy(out->q[i][r], &word[4 * i], 4);
        memcpy(out->q[4 + i][r], &word[4 * i + 1], 4);
    }
    out->s[r] = out->d[r] * (float)sum;
    out->n[r] = sum;
    out->n_high[r] = high;
}

static void group(const struct preparation *p, int g)
{
    prepare_group(p, g, all_finite, prepare_block);
}

void prepare_avx512(struct kern_input *in, uint8_t *bad)
{
    prepare_all((struct preparation){in, bad, group});
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

static void remainder_row(float *out, const float *x, const float *y, int n, float c)
{
    (void)y;
    (void)c;
    prepare_remainder(out, x, n, all_finite, remainder_block);
}

void remainder_avx512(float *out, const float *x, int rows, int n)
{
    size_t ld = (size_t)n;
    share_op(&(struct row_op){remainder_row, out, x, x, ld, ld, ld, n, 0}, rows);
}

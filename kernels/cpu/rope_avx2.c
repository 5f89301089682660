#include "kernels/cpu/cpu.h"
#include "kernels/cpu/share_rows.h"
#include "kernels/cpu/simd_avx2.h"

/* Pairs (x0, x1) of 8 angles: x0' = fma(x0, c, -(x1*s)), x1' = fma(x0, s, x1*c). */
static void rotate(__m256 *x0, __m256 *x1, __m256 c, __m256 s)
{
    __m256 a = *x0, b = *x1;
    *x0 = _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s));
    *x1 = _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c));
}

static void rotate_halves(float *x, int half, const float *cos_sin)
{
    for (int i = 0; i < half; i += 8) {
        int n = half - i;
        __m256 x0 = load_left(x + i, n), x1 = load_left(x + half + i, n);
        rotate(&x0, &x1, load_left(cos_sin + i, n), load_left(cos_sin + half + i, n));
        store_left(x + i, n, x0);
        store_left(x + half + i, n, x1);
    }
}

/* Neighbours: 16 values are taken apart into 8 even and 8 odd ones and put together again. */
static void rotate_neighbours(float *x, int half, const float *cos_sin)
{
    const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
    for (int i = 0; i < half; i += 8) {
        int n = half - i;
        float *p = x + 2 * i;
        __m256 a = load_left(p, 2 * n), b = load_left(p + 8, 2 * n - 8);
        __m256 x0 = _mm256_shuffle_ps(a, b, 0x88), x1 = _mm256_shuffle_ps(a, b, 0xdd);
        /* both are in the order 0 1 4 5 2 3 6 7, and so must be the angles */
        __m256 c = _mm256_permutevar8x32_ps(load_left(cos_sin + i, n), order);
        __m256 s = _mm256_permutevar8x32_ps(load_left(cos_sin + half + i, n), order);
        rotate(&x0, &x1, c, s);
        store_left(p, 2 * n, _mm256_unpacklo_ps(x0, x1));
        store_left(p + 8, 2 * n - 8, _mm256_unpackhi_ps(x0, x1));
    }
}

struct rope_op {
    float *x;
    size_t ld;
    int n_head, head_dim, rot;
    bool neox;
    const float *cos_sin;
};

static void rotate_rows(void *arg, int begin, int end, int thread)
{
    const struct rope_op *op = arg;
    (void)thread;
    for (int row = begin; row < end; row++)
        for (int head = 0; head < op->n_head; head++) {
            float *at = op->x + (size_t)row * op->ld + (size_t)head * (size_t)op->head_dim;
            const float *angles = op->cos_sin + (size_t)row * (size_t)op->rot;
            if (op->neox)
                rotate_halves(at, op->rot / 2, angles);
            else
                rotate_neighbours(at, op->rot / 2, angles);
        }
}

void rope_avx2(float *x, size_t ld, int rows, int n_head, int head_dim, int rot, bool neox,
               const float *cos_sin)
{
    struct rope_op op = {x, ld, n_head, head_dim, rot, neox, cos_sin};
    share_rows(rows, n_head * rot, rotate_rows, &op);
}

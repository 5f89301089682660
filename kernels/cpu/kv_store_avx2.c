#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_slice.h"
#include "kernels/cpu/share_rows.h"
#include "kernels/cpu/simd_avx2.h"

/* Eight values as halves; true when one of them is not finite. */
static bool to_halves(uint16_t *out, const float *x, int n)
{
    __m128i h = _mm256_cvtps_ph(load_left(x, n), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)out, h);
    const __m128i exponent = _mm_set1_epi16(0x7c00);
    return _mm_movemask_epi8(_mm_cmpeq_epi16(_mm_and_si128(h, exponent), exponent)) != 0;
}

static bool store_head(uint16_t *slice, int j, const float *k, const float *v, int head_dim)
{
    bool bad = false;
    for (int c = 0; c < head_dim; c += 8) {
        int n = head_dim - c < 8 ? head_dim - c : 8;
        uint16_t key[8], value[8];
        bad |= to_halves(key, k + c, n);
        bad |= to_halves(value, v + c, n);
        for (int i = 0; i < n; i++)
            slice[page_key_at(j, c + i, head_dim)] = key[i];
        memcpy(slice + page_value_at(j, c, head_dim), value, (size_t)n * sizeof *value);
    }
    return bad;
}

struct store_op {
    void *const *slices;
    int pos, n_kv_head, head_dim;
    const float *k, *v;
    size_t ld;
    uint8_t *bad;
};

static void store_rows(void *arg, int begin, int end, int thread)
{
    const struct store_op *op = arg;
    (void)thread;
    for (int row = begin; row < end; row++) {
        int page = (op->pos + row) / KERN_PAGE_TOKENS, j = (op->pos + row) % KERN_PAGE_TOKENS;
        for (int head = 0; head < op->n_kv_head; head++) {
            size_t at = (size_t)row * op->ld + (size_t)head * (size_t)op->head_dim;
            uint16_t *slice = (uint16_t *)op->slices[page] + page_head_at(head, op->head_dim);
            if (store_head(slice, j, op->k + at, op->v + at, op->head_dim))
                op->bad[row] = 1;
        }
    }
}

void kv_store_avx2(void *const *slices, int pos, const float *k, const float *v, size_t ld,
                   int rows, int n_kv_head, int head_dim, uint8_t *bad)
{
    struct store_op op = {slices, pos, n_kv_head, head_dim, k, v, ld, bad};
    share_rows(rows, n_kv_head * head_dim, store_rows, &op);
}

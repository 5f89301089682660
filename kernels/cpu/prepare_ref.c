#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fma.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/input.h"

#include <math.h>

static uint32_t max_magnitude(const float *x, int n)
{
    uint32_t top = 0;
    for (int i = 0; i < n; i++)
        if (float_magnitude(x[i]) > top)
            top = float_magnitude(x[i]);
    return top;
}

/* Row r of a group, block of n values (32, or fewer at the end). */
static void prepare_block(struct input_block *out, int r, const float *x, int n)
{
    float amax = float_of_bits(max_magnitude(x, n));
    if (amax < INPUT_TINY)
        return; /* already zero */
    float inverse = 127.0f / amax;
    int sum = 0, high = 0;
    for (int i = 0; i < n; i++) {
        int q = (int)lrintf(x[i] * inverse);
        out->q[i / 4][r][i % 4] = (int8_t)q;
        sum += q;
        if (i >= 16)
            high += q;
    }
    out->d[r] = amax / 127.0f;
    out->s[r] = out->d[r] * (float)sum;
    out->n[r] = sum;
    out->n_high[r] = high;
}

void prepare_ref(struct kern_input *in, uint8_t *bad)
{
    struct input_block *blocks = in->mem;
    int k = in->k, n_blocks = input_blocks(k);
    memset(blocks, 0, kern_input_bytes(in->rows, k));
    for (int row = 0; row < in->rows; row++) {
        const float *x = in->x + (size_t)row * (size_t)k;
        if (max_magnitude(x, k) >= 0x7f800000) {
            bad[row] = 1;
            continue;
        }
        struct input_block *group = blocks + (size_t)(row / ROW_GROUP) * (size_t)n_blocks;
        for (int b = 0; b < n_blocks; b++)
            prepare_block(group + b, row % ROW_GROUP, x + 32 * b,
                          k - 32 * b < 32 ? k - 32 * b : 32);
    }
}

static void remainder_block(float *out, const float *x, int n)
{
    float amax = float_of_bits(max_magnitude(x, n));
    bool tiny = amax < INPUT_TINY;
    float d = tiny ? 0.0f : amax / 127.0f, inverse = tiny ? 0.0f : 127.0f / amax;
    for (int i = 0; i < n; i++)
        out[i] = fma32(-d, (float)lrintf(x[i] * inverse), x[i]);
}

void remainder_ref(float *out, const float *x, int rows, int n)
{
    for (int row = 0; row < rows; row++, x += n, out += n) {
        if (max_magnitude(x, n) >= 0x7f800000)
            memset(out, 0, (size_t)n * sizeof *out);
        else
            for (int i = 0; i < n; i += 32)
                remainder_block(out + i, x + i, n - i < 32 ? n - i : 32);
    }
}

/* Where products take their inputs as floats, nothing is left of them. */
void remainder_zero(float *out, const float *x, int rows, int n)
{
    (void)x;
    memset(out, 0, (size_t)rows * (size_t)n * sizeof *out);
}

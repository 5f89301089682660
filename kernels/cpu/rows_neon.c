/* The ops over rows: norm, gates, sums, softmax. Rotation and storing gain too little from vectors. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/share_rows.h"
#include "kernels/cpu/simd_neon.h"

static void norm_rows(void *arg, int begin, int end, int thread)
{
    const struct row_op *op = arg;
    int n = op->n;
    (void)thread;
    for (int row = begin; row < end; row++) {
        const float *x = op->x + (size_t)row * op->ld_x;
        float *to = op->out + (size_t)row * op->ld;
        float32x4_t v[4];
        for (int i = 0; i < 4; i++)
            v[i] = vdupq_n_f32(0);
        for (int i = 0; i < n;
             i += 4) { /* past the end: fma(0, 0, v) is v, which is never -0 */
            float32x4_t a = load_left4(x + i, n - i);
            v[i / 4 % 4] = vfmaq_f32(v[i / 4 % 4], a, a);
        }
        float r = 1.0f / sqrtf(fold16_neon(v) / (float)n + op->c);
        for (int i = 0; i < n; i += 4)
            store_left4(to + i, n - i,
                        vmulq_f32(vmulq_n_f32(load_left4(x + i, n - i), r),
                                  load_left4(op->y + i, n - i)));
    }
}

void rms_norm_neon(float *out, size_t ld_out, const float *x, size_t ld_x, const float *w,
                   int rows, int n, float eps)
{
    struct row_op op = {
        .out = out, .ld = ld_out, .x = x, .ld_x = ld_x, .y = w, .n = n, .c = eps};
    share_rows(rows, n, norm_rows, &op);
}

static inline float32x4_t gate(float32x4_t g, float32x4_t z, float32x4_t u)
{
    return vmulq_f32(vdivq_f32(g, vaddq_f32(vdupq_n_f32(1.0f), exp4(z))), u);
}

static void silu_rows(void *arg, int begin, int end, int thread)
{
    const struct row_op *op = arg;
    (void)thread;
    for (int row = begin; row < end; row++)
        for (int i = 0; i < op->n; i += 4) {
            size_t at = (size_t)row * op->ld + (size_t)i;
            float32x4_t g = load_left4(op->x + at, op->n - i);
            float32x4_t z = vsubq_f32(vdupq_n_f32(0), g);
            store_left4(op->out + at, op->n - i, gate(g, z, load_left4(op->y + at, op->n - i)));
        }
}

void silu_mul_neon(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    struct row_op op = {.out = out, .x = g, .y = u, .ld = ld, .n = n};
    share_rows(rows, n, silu_rows, &op);
}

static void gelu_rows(void *arg, int begin, int end, int thread)
{
    const struct row_op *op = arg;
    const float32x4_t linear = vdupq_n_f32(GELU_LINEAR);
    (void)thread;
    for (int row = begin; row < end; row++)
        for (int i = 0; i < op->n; i += 4) {
            size_t at = (size_t)row * op->ld + (size_t)i;
            float32x4_t g = load_left4(op->x + at, op->n - i);
            float32x4_t z = vmulq_f32(g, vfmaq_f32(linear, vmulq_n_f32(g, GELU_CUBE), g));
            store_left4(op->out + at, op->n - i, gate(g, z, load_left4(op->y + at, op->n - i)));
        }
}

void gelu_mul_neon(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    struct row_op op = {.out = out, .x = g, .y = u, .ld = ld, .n = n};
    share_rows(rows, n, gelu_rows, &op);
}

/* Each row and that of y; with ld_y 0 they all meet the same one. */
static void add_rows(void *arg, int begin, int end, int thread)
{
    const struct row_op *op = arg;
    (void)thread;
    for (int row = begin; row < end; row++) {
        float *a = op->out + (size_t)row * op->ld;
        const float *b = op->y + (size_t)row * op->ld_y;
        for (int i = 0; i < op->n; i += 4)
            store_left4(a + i, op->n - i,
                        vaddq_f32(load_left4(a + i, op->n - i), load_left4(b + i, op->n - i)));
    }
}

void add_neon(float *x, const float *y, size_t ld, int rows, int n)
{
    struct row_op op = {.out = x, .y = y, .ld = ld, .ld_y = ld, .n = n};
    share_rows(rows, n, add_rows, &op);
}

void add_bias_neon(float *x, const float *b, size_t ld, int rows, int n)
{
    struct row_op op = {.out = x, .y = b, .ld = ld, .ld_y = 0, .n = n};
    share_rows(rows, n, add_rows, &op);
}

static void scale_rows(void *arg, int begin, int end, int thread)
{
    const struct row_op *op = arg;
    (void)thread;
    for (int row = begin; row < end; row++) {
        float *a = op->out + (size_t)row * op->ld;
        for (int i = 0; i < op->n; i += 4)
            store_left4(a + i, op->n - i, vmulq_n_f32(load_left4(a + i, op->n - i), op->c));
    }
}

void scale_neon(float *x, float c, size_t ld, int rows, int n)
{
    struct row_op op = {.out = x, .ld = ld, .n = n, .c = c};
    share_rows(rows, n, scale_rows, &op);
}

void softmax_neon(float *x, int n)
{
    float top = -INFINITY;
    float32x4_t v[4];
    for (int i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < 4; i++)
        v[i] = vdupq_n_f32(0);
    for (int i = 0; i < n; i += 4) {
        store_left4(x + i, n - i, exp4(vsubq_f32(load_left4(x + i, n - i), vdupq_n_f32(top))));
        v[i / 4 % 4] = vaddq_f32(v[i / 4 % 4], load_left4(x + i, n - i));
    }
    float r = 1.0f / fold16_neon(v);
    for (int i = 0; i < n; i += 4)
        store_left4(x + i, n - i, vmulq_n_f32(load_left4(x + i, n - i), r));
}

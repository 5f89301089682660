/* The ops over rows: norm, gates, sums, softmax. Rotation and storing gain too little from vectors. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/share_rows.h"
#include "kernels/cpu/simd_neon.h"

static void norm_row(float *out, const float *x, const float *w, int n, float eps)
{
    float32x4_t v[4];
    for (int i = 0; i < 4; i++)
        v[i] = vdupq_n_f32(0);
    for (int i = 0; i < n; i += 4) { /* past the end: fma(0, 0, v) is v, which is never -0 */
        float32x4_t a = load_left4(x + i, n - i);
        v[i / 4 % 4] = vfmaq_f32(v[i / 4 % 4], a, a);
    }
    float r = 1.0f / sqrtf(fold16_neon(v) / (float)n + eps);
    for (int i = 0; i < n; i += 4)
        store_left4(
            out + i, n - i,
            vmulq_f32(vmulq_n_f32(load_left4(x + i, n - i), r), load_left4(w + i, n - i)));
}

void rms_norm_neon(float *out, size_t ld_out, const float *x, size_t ld_x, const float *w,
                   int rows, int n, float eps)
{
    share_op(&(struct row_op){norm_row, out, x, w, ld_out, ld_x, 0, n, eps}, rows);
}

static inline float32x4_t gate(float32x4_t g, float32x4_t z, float32x4_t u)
{
    return vmulq_f32(vdivq_f32(g, vaddq_f32(vdupq_n_f32(1.0f), exp4(z))), u);
}

static void silu_row(float *out, const float *g, const float *u, int n, float c)
{
    (void)c;
    for (int i = 0; i < n; i += 4) {
        float32x4_t v = load_left4(g + i, n - i);
        float32x4_t z = vsubq_f32(vdupq_n_f32(0), v);
        store_left4(out + i, n - i, gate(v, z, load_left4(u + i, n - i)));
    }
}

void silu_mul_neon(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){silu_row, out, g, u, ld, ld, ld, n, 0}, rows);
}

static void gelu_row(float *out, const float *g, const float *u, int n, float c)
{
    const float32x4_t linear = vdupq_n_f32(GELU_LINEAR);
    (void)c;
    for (int i = 0; i < n; i += 4) {
        float32x4_t v = load_left4(g + i, n - i);
        float32x4_t z = vmulq_f32(v, vfmaq_f32(linear, vmulq_n_f32(v, GELU_CUBE), v));
        store_left4(out + i, n - i, gate(v, z, load_left4(u + i, n - i)));
    }
}

void gelu_mul_neon(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){gelu_row, out, g, u, ld, ld, ld, n, 0}, rows);
}

static void add_row(float *out, const float *x, const float *y, int n, float c)
{
    (void)c;
    for (int i = 0; i < n; i += 4)
        store_left4(out + i, n - i,
                    vaddq_f32(load_left4(x + i, n - i), load_left4(y + i, n - i)));
}

void add_neon(float *x, const float *y, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){add_row, x, x, y, ld, ld, ld, n, 0}, rows);
}

void add_bias_neon(float *x, const float *b, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){add_row, x, x, b, ld, ld, 0, n, 0}, rows);
}

static void scale_row(float *out, const float *x, const float *y, int n, float c)
{
    (void)y;
    for (int i = 0; i < n; i += 4)
        store_left4(out + i, n - i, vmulq_n_f32(load_left4(x + i, n - i), c));
}

void scale_neon(float *x, float c, size_t ld, int rows, int n)
{
    share_op(&(struct row_op){scale_row, x, x, x, ld, ld, ld, n, c}, rows);
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

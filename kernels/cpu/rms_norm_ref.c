#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"

void rms_norm_ref(float *out, size_t ld_out, const float *x, size_t ld_x, const float *w,
                  int rows, int n, float eps)
{
    for (int row = 0; row < rows; row++, out += ld_out, x += ld_x) {
        float v[16] = {0};
        for (int i = 0; i < n; i++)
            v[i % 16] = fma32(x[i], x[i], v[i % 16]);
        float r = 1.0f / sqrtf(fold16(v) / (float)n + eps);
        for (int i = 0; i < n; i++)
            out[i] = (x[i] * r) * w[i];
    }
}

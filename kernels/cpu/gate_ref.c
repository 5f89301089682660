#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/gelu.h"

void silu_mul_ref(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    for (int row = 0; row < rows; row++, out += ld, g += ld, u += ld)
        for (int i = 0; i < n; i++)
            out[i] = (g[i] / (1.0f + exp_scalar(0.0f - g[i]))) * u[i];
}

void gelu_mul_ref(float *out, const float *g, const float *u, size_t ld, int rows, int n)
{
    for (int row = 0; row < rows; row++, out += ld, g += ld, u += ld)
        for (int i = 0; i < n; i++) {
            float z = g[i] * fma32(GELU_CUBE * g[i], g[i], GELU_LINEAR);
            out[i] = (g[i] / (1.0f + exp_scalar(z))) * u[i];
        }
}

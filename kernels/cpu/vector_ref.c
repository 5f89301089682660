#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"

void add_ref(float *x, const float *y, size_t ld, int rows, int n)
{
    for (int row = 0; row < rows; row++, x += ld, y += ld)
        for (int i = 0; i < n; i++)
            x[i] = x[i] + y[i];
}

void scale_ref(float *x, float c, size_t ld, int rows, int n)
{
    for (int row = 0; row < rows; row++, x += ld)
        for (int i = 0; i < n; i++)
            x[i] = x[i] * c;
}

void add_bias_ref(float *x, const float *b, size_t ld, int rows, int n)
{
    for (int row = 0; row < rows; row++, x += ld)
        for (int i = 0; i < n; i++)
            x[i] = x[i] + b[i];
}

void softmax_ref(float *x, int n)
{
    float top = -INFINITY, v[16] = {0};
    for (int i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++) {
        x[i] = exp_scalar(x[i] - top);
        v[i % 16] = v[i % 16] + x[i];
    }
    float r = 1.0f / fold16(v);
    for (int i = 0; i < n; i++)
        x[i] = x[i] * r;
}

float kern_exp(float x)
{
    return exp_scalar(x);
}

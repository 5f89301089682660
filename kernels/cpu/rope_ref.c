#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fma.h"

void rope_ref(float *x, size_t ld, int rows, int n_head, int head_dim, int rot, bool neox,
              const float *cos_sin)
{
    int half = rot / 2;
    for (int row = 0; row < rows; row++, x += ld, cos_sin += rot)
        for (int head = 0; head < n_head; head++)
            for (int i = 0; i < half; i++) {
                float *first = x + head * head_dim + (neox ? i : 2 * i);
                float *second = first + (neox ? half : 1);
                float x0 = *first, x1 = *second, c = cos_sin[i], s = cos_sin[half + i];
                *first = fma32(x0, c, -(x1 * s));
                *second = fma32(x0, s, x1 * c);
            }
}

/* Products of quantised weights on any CPU of 64-bit Arm. */
#include "kernels/cpu/matmul_tile_neon.h"

void matmul_neon(float *out, size_t ld, const struct kern_weights *w,
                 const struct kern_input *in, void *scratch)
{
    if (record_forms[w->type].bits)
        quantised(out, ld, w, in, scratch);
    else
        matmul_float_neon(out, ld, w, in, scratch);
}

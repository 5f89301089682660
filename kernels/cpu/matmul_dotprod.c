/* Products of quantised weights for CPUs with the dot product of bytes. */
#include "kernels/cpu/matmul_tile_neon.h"

void matmul_dotprod(float *out, size_t ld, const struct kern_weights *w,
                    const struct kern_input *in, void *scratch)
{
    if (record_forms[w->type].bits)
        quantised(out, ld, w, in, scratch);
    else
        matmul_float_neon(out, ld, w, in, scratch);
}

#include "kernels/qtypes.h"

const struct kern_type_info kern_types[KERN_TYPE_COUNT] = {
    [KERN_F32] = {"F32", 1, 4, 0},        [KERN_F16] = {"F16", 1, 2, 1},
    [KERN_BF16] = {"BF16", 1, 2, 30},     [KERN_Q4_0] = {"Q4_0", 32, 18, 2},
    [KERN_Q4_1] = {"Q4_1", 32, 20, 3},    [KERN_Q5_0] = {"Q5_0", 32, 22, 6},
    [KERN_Q5_1] = {"Q5_1", 32, 24, 7},    [KERN_Q8_0] = {"Q8_0", 32, 34, 8},
    [KERN_Q4_K] = {"Q4_K", 256, 144, 12}, [KERN_Q5_K] = {"Q5_K", 256, 176, 13},
    [KERN_Q6_K] = {"Q6_K", 256, 210, 14},
};

int kern_type_of_gguf(unsigned gguf_id)
{
    for (int t = 0; t < KERN_TYPE_COUNT; t++)
        if ((unsigned)kern_types[t].gguf_id == gguf_id)
            return t;
    return -1;
}

size_t kern_row_bytes(enum kern_type t, size_t n)
{
    return n / (size_t)kern_types[t].block_values * (size_t)kern_types[t].block_bytes;
}

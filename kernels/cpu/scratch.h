/* kernels/cpu/scratch.h - working memory of one thread.
 *
 * What:   matmul: a chunk of a panel, unpacked once and used for all rows; small enough for L1.
 */
#ifndef QUIRE_KERNELS_CPU_SCRATCH_H
#define QUIRE_KERNELS_CPU_SCRATCH_H

#include "kernels/kernels.h"

enum {
    CHUNK_BLOCKS = 20, /* of 32 k: unpacked weights of a quantised type */
    CHUNK_K = 512,     /* weights of a float type as floats */
    SCALE_FLOATS = 64, /* per block, see matmul_avx2.c */
};

/* Three panels side by side, see matmul_tile_avx512.h. */
struct wide_scratch {
    float scales[3 * CHUNK_BLOCKS * SCALE_FLOATS];
    float shared[3][2][16];
    uint8_t weights[3 * CHUNK_BLOCKS * 512];
};

struct matmul_scratch {
    union {
        struct wide_scratch wide;
        struct {
            float scales[CHUNK_BLOCKS][SCALE_FLOATS];
            uint8_t weights[CHUNK_BLOCKS * 1024];
        };
        float values[CHUNK_K][16];
    };
};

#endif

/* kernels/cpu/input.h - prepared rows, as kern_input.mem holds them.
 *
 * What:   blocks[(row/6) * n_blocks + b]: six rows side by side, as a tile of the products takes them. Four
 *         int8 of a row are one 32-bit word, k = 4*step .. 4*step+3. Rows past the last are zero,
 *         and so are values past k when k is no multiple of 32.
 */
#ifndef QUIRE_KERNELS_CPU_INPUT_H
#define QUIRE_KERNELS_CPU_INPUT_H

#include "kernels/kernels.h"

enum { ROW_GROUP = KERN_INPUT_GROUP };

struct input_block {
    int8_t q[8][ROW_GROUP][4];
    float d[ROW_GROUP];        /* scale */
    float s[ROW_GROUP];        /* d * n */
    int32_t n[ROW_GROUP];      /* sum of q */
    int32_t n_high[ROW_GROUP]; /* sum of q for k 16..31 */
};

static inline int input_blocks(int k)
{
    return (k + 31) / 32;
}

static inline int input_groups(int rows)
{
    return (rows + ROW_GROUP - 1) / ROW_GROUP;
}

/* Below this a block counts as zero: every later term of a product stays a normal number. */
#define INPUT_TINY 0x1p-90f

#endif

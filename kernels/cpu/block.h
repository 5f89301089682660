/* kernels/cpu/block.h - quantised blocks as files hold them, read 32 values at a time.
 *
 * What:   one form for all quantised types: w = d*(q - off), or d*q + m for the types with a minimum.
 * Source: the GGUF specification; qtypes.h lists the layouts.
 */
#ifndef QUIRE_KERNELS_CPU_BLOCK_H
#define QUIRE_KERNELS_CPU_BLOCK_H

#include "kernels/qtypes.h"

#include <stdbool.h>
#include <stdint.h>

struct block32 {
    uint8_t q[32]; /* stored value, unsigned; Q8_0: plus 128 */
    float d[2];    /* scale of values 0..15 and 16..31: alike but for Q6_K */
    float m;       /* minimum; 0 for types without */
    /* What these are products of, in the types whose blocks share halves: d[i] = half(shared_d) * small[i],
     * m = half(shared_m) * small[n], n the number of scales. */
    uint16_t shared_d, shared_m;
    int8_t small[3];
};

/* Values 32*b .. 32*b+31 of a row of a quantised type. */
void block32_read(struct block32 *out, enum kern_type t, const void *row, int b);

#endif

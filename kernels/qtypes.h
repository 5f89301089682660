/* kernels/qtypes.h - the tensor types of GGUF files: bytes, values per block, layout.
 *
 * Every type is a sequence of blocks along a row. All integers are little-endian, `half` is binary16.
 * Values of a block, in the file's order (source: the GGUF specification and ggml's quantisation docs):
 *
 *   F32   4 B / 1      F16  2 B / 1      BF16  2 B / 1
 *   Q4_0  18 B / 32    half d; u8 q[16]                    x[i] = d*(low(q[i])-8), x[i+16] = d*(high(q[i])-8)
 *   Q4_1  20 B / 32    half d, m; u8 q[16]                 x = d*q + m
 *   Q5_0  22 B / 32    half d; u32 h; u8 q[16]             fifth bit of x[i] is bit i of h; x = d*(q-16)
 *   Q5_1  24 B / 32    half d, m; u32 h; u8 q[16]          x = d*q + m
 *   Q8_0  34 B / 32    half d; i8 q[32]                    x = d*q
 *   Q4_K  144 B / 256  half d, dmin; u8 scales[12]; u8 q[128]         8 sub-blocks of 32: (d*sc)*q - (dmin*mn)
 *   Q5_K  176 B / 256  half d, dmin; u8 scales[12]; u8 h[32]; u8 q[128]
 *   Q6_K  210 B / 256  u8 ql[128]; u8 qh[64]; i8 scales[16]; half d   16 sub-blocks of 16: (d*sc)*(q-32)
 */
#ifndef QUIRE_KERNELS_QTYPES_H
#define QUIRE_KERNELS_QTYPES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kern_type {
    KERN_F32,
    KERN_F16,
    KERN_BF16,
    KERN_Q4_0,
    KERN_Q4_1,
    KERN_Q5_0,
    KERN_Q5_1,
    KERN_Q8_0,
    KERN_Q4_K,
    KERN_Q5_K,
    KERN_Q6_K,
    KERN_TYPE_COUNT
};

struct kern_type_info {
    const char *name;
    int block_values, block_bytes;
    int gguf_id; /* the number that GGUF files use */
};

extern const struct kern_type_info kern_types[KERN_TYPE_COUNT];

/* The type of a GGUF number, or -1 for one that is not read here. */
int kern_type_of_gguf(unsigned gguf_id);

/* Bytes of a row of n values (n a multiple of block_values). */
size_t kern_row_bytes(enum kern_type t, size_t n);

#ifdef __cplusplus
}
#endif
#endif

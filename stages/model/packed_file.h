/* stages/model/packed_file.h - the bytes of a file of packed weights: its head and the sums of its blocks.
 *
 * What:   head, sums, padding to PACKED_ALIGN, then the packed weights as they lie in memory:
 *
 *             0   8        "QPACK" 1 "\r\n"
 *             8   32       key: what the weights are, and how they are packed (packed_cache.h)
 *             40  8        bytes of weights
 *             48  8        XXH3-64 of the bytes 0..47 and of the sums
 *             56  8        zero
 *             64  8 * n    XXH3-64 of each block of PACKED_BLOCK bytes; the last may be short
 *
 *         Numbers are little-endian.
 * Not:    no file, no memory of its own.
 * Rules:  1. A head is taken only whole, with its sum right, and for the key and size that were asked for; so the
 *            sums of the blocks can be trusted as far as the disk can.
 *         2. The size of the file is what packed_file_bytes() says, to the byte.
 * Thread: pure.
 */
#ifndef QUIRE_MODEL_PACKED_FILE_H
#define QUIRE_MODEL_PACKED_FILE_H

#include "stages/base/hash.h"

enum { PACKED_HEAD = 64, PACKED_ALIGN = 4096, PACKED_BLOCK = 1 << 20 };

static inline uint64_t packed_blocks(uint64_t bytes)
{
    return bytes / PACKED_BLOCK + (bytes % PACKED_BLOCK != 0);
}

/* Where the weights begin. bytes <= 2^50. */
static inline uint64_t packed_data_at(uint64_t bytes)
{
    return (PACKED_HEAD + 8 * packed_blocks(bytes) + PACKED_ALIGN - 1) / PACKED_ALIGN *
           PACKED_ALIGN;
}

static inline uint64_t packed_file_bytes(uint64_t bytes)
{
    return packed_data_at(bytes) + bytes;
}

/* Write head and padding around the sums that lie at out + PACKED_HEAD: [packed_data_at(bytes)]. */
void packed_head_put(uint8_t *out, const uint8_t key[HASH_BYTES], uint64_t bytes);
/* Is this the head of a file of n bytes that holds `bytes` bytes of weights of this key? */
bool packed_head_ok(const uint8_t *file, uint64_t n, const uint8_t key[HASH_BYTES],
                    uint64_t bytes);

void packed_sum_put(uint8_t *head, uint64_t block, uint64_t sum);
uint64_t packed_sum_get(const uint8_t *head, uint64_t block);
/* Of the block of weights that begins at data + block * PACKED_BLOCK. */
uint64_t packed_sum_of(const uint8_t *data, uint64_t bytes, uint64_t block);

#endif

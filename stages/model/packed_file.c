#include "stages/model/packed_file.h"

#include "stages/base/le.h"

#include <string.h>
/* The state of the streaming hash lies on the stack, so hashing cannot run out of memory. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

enum { AT_KEY = 8, AT_BYTES = 40, AT_SUM = 48, AT_ZERO = 56 };
static const uint64_t bytes_max = UINT64_C(1) << 50;
static const char magic[8] = {'Q', 'P', 'A', 'C', 'K', 1, '\r', '\n'};

static uint64_t head_sum(const uint8_t *head, uint64_t bytes)
{
    XXH3_state_t s;
    XXH3_INITSTATE(&s);
    XXH3_64bits_reset(&s);
    XXH3_64bits_update(&s, head, AT_SUM);
    XXH3_64bits_update(&s, head + PACKED_HEAD, (size_t)(8 * packed_blocks(bytes)));
    return XXH3_64bits_digest(&s);
}

void packed_head_put(uint8_t *out, const uint8_t key[HASH_BYTES], uint64_t bytes)
{
    uint64_t end = PACKED_HEAD + 8 * packed_blocks(bytes);
    memcpy(out, magic, sizeof(magic));
    memcpy(out + AT_KEY, key, HASH_BYTES);
    le64_put(out + AT_BYTES, bytes);
    le64_put(out + AT_SUM, head_sum(out, bytes));
    le64_put(out + AT_ZERO, 0);
    memset(out + end, 0, (size_t)(packed_data_at(bytes) - end));
}

bool packed_head_ok(const uint8_t *file, uint64_t n, const uint8_t key[HASH_BYTES],
                    uint64_t bytes)
{
    return bytes <= bytes_max && n == packed_file_bytes(bytes) &&
           memcmp(file, magic, sizeof(magic)) == 0 &&
           memcmp(file + AT_KEY, key, HASH_BYTES) == 0 && le64_get(file + AT_BYTES) == bytes &&
           le64_get(file + AT_ZERO) == 0 && le64_get(file + AT_SUM) == head_sum(file, bytes);
}

void packed_sum_put(uint8_t *head, uint64_t block, uint64_t sum)
{
    le64_put(head + PACKED_HEAD + 8 * block, sum);
}

uint64_t packed_sum_get(const uint8_t *head, uint64_t block)
{
    return le64_get(head + PACKED_HEAD + 8 * block);
}

uint64_t packed_sum_of(const uint8_t *data, uint64_t bytes, uint64_t block)
{
    uint64_t at = block * PACKED_BLOCK, left = bytes - at;
    return XXH3_64bits(data + at, (size_t)(left < PACKED_BLOCK ? left : PACKED_BLOCK));
}

/* Property: whatever the bytes, they are refused, or they are the head of a file of exactly this key and size, whose
 * head, written again from its sums, is the same bytes; nothing beyond the input is read.
 *
 * Input: the bytes of weights that were asked for, in units of 1000 (1 byte); the file. The key is 0, 1, 2 ... */
#include "stages/model/packed_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t key[HASH_BYTES];
    for (int i = 0; i < HASH_BYTES; i++)
        key[i] = (uint8_t)i;
    if (size < 1)
        return 0;
    uint64_t bytes = 1000 * (uint64_t)data[0], n = size - 1;
    uint8_t *file = malloc(n + 1); /* of its own: the sanitizer sees every byte beyond */
    must(file != NULL);
    memcpy(file, data + 1, n);
    if (packed_head_ok(file, n, key, bytes)) {
        size_t head_bytes = (size_t)packed_data_at(bytes);
        uint8_t *again = malloc(head_bytes);
        must(again != NULL && n == packed_file_bytes(bytes));
        for (uint64_t i = 0; i < packed_blocks(bytes); i++) {
            packed_sum_put(again, i, packed_sum_get(file, i));
            (void)packed_sum_of(file + head_bytes, bytes, i);
        }
        packed_head_put(again, key, bytes);
        must(memcmp(again, file, PACKED_HEAD + 8 * (size_t)packed_blocks(bytes)) == 0);
        key[0] ^= 1;
        must(!packed_head_ok(file, n, key, bytes));
        free(again);
    }
    free(file);
    return 0;
}

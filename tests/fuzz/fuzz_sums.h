/* The checksums of a segment's heads made right, so that a fuzzer gets past them. */
#ifndef QUIRE_TESTS_FUZZ_SUMS_H
#define QUIRE_TESTS_FUZZ_SUMS_H

#include "stages/base/le.h"
#include "stages/kv/record.h"

#include <string.h>

enum { SUM_AT = 48 };

/* Put right what has a magic. */
static inline void fix_sums(uint8_t *p, size_t n)
{
    for (size_t at = 0; at + RECORD_ALIGN <= n; at += RECORD_ALIGN) {
        uint8_t *head = p + at;
        if (memcmp(head, "QKVN", 4) == 0) {
            le64_put(head + SUM_AT, record_hash(head, SUM_AT));
        } else if (memcmp(head, "QKVR", 4) == 0 && le32_get(head + 8) <= PAGE_TOKENS) {
            size_t bytes = record_head_bytes((int)le32_get(head + 8));
            if (bytes > n - at)
                continue;
            uint8_t state = head[RECORD_STATE_AT];
            head[RECORD_STATE_AT] = 0;
            memset(head + SUM_AT, 0, 8);
            le64_put(head + SUM_AT, record_hash(head, bytes));
            head[RECORD_STATE_AT] = state;
        }
    }
}

#endif

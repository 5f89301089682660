/* stages/kv/uses.h - when keys were used, over many runs: what eviction goes by.
 *
 * What:   the last USES_KEPT times of each key, also of keys that have no record, and the bytes of the file
 *         that keeps them.
 * Not:    no file; what counts as a use, and what uses are worth, says lru_k.h.
 * Rules:  1. Bytes that are not what uses_print() writes are refused as a whole: the history starts anew.
 *         2. There are at most `cap` keys; those used longest ago make room.
 * Thread: one at a time.
 */
#ifndef QUIRE_KV_USES_H
#define QUIRE_KV_USES_H

#include "stages/base/buf.h"
#include "stages/base/hash.h"
#include "stages/kv/lru_k.h"

#include <stdint.h>

enum { USES_KEPT = LRU_K, USES_HEAD = 24, USES_ENTRY = 8 + 4 * USES_KEPT };

struct use {
    uint64_t key;              /* the first 8 bytes; 0: an empty slot */
    uint32_t times[USES_KEPT]; /* seconds since 1970, newest first; 0: none */
    uint32_t earlier;          /* 1: a process before this one used it */
};

struct uses {
    struct use *slots;
    uint32_t n_slots, n, cap;
    uint64_t seed; /* of the table: a file of keys made to collide does not slow it down */
    bool changed;  /* since uses_print() */
};

void uses_init(struct uses *u, uint32_t cap);
void uses_release(struct uses *u);

uint64_t uses_key(const uint8_t key[HASH_BYTES]);
void uses_touch(struct uses *u, uint64_t key, uint32_t now);
double uses_worth(const struct uses *u, uint64_t key, uint32_t now, uint32_t cost);
/* NULL when it was never used; valid until the next call that changes u. */
const struct use *uses_find(const struct uses *u, uint64_t key);

/* Add what a file holds. `earlier` marks its keys as those of earlier processes. False: not such a file. */
bool uses_merge(struct uses *u, const uint8_t *data, size_t n, bool earlier);
/* The bytes of the file. */
int uses_print(struct uses *u, struct buf *out, struct err *e) MUST_CHECK;

#endif

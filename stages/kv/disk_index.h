/* stages/kv/disk_index.h - where the record of a key is: a hash table in memory.
 *
 * What:   entries of 64 bytes in chunks that never move, and an open-addressed table of their numbers.
 * Not:    no file; which of two records of a key counts is the caller's business.
 * Rules:  1. The table is seeded at random, so a folder made to collide does not slow it down.
 *         2. Out of memory is a miss: index_add() returns NULL and nothing has changed.
 * Thread: one at a time.
 */
#ifndef QUIRE_KV_DISK_INDEX_H
#define QUIRE_KV_DISK_INDEX_H

#include "stages/kv/record.h"

struct disk_entry {
    uint8_t key[HASH_BYTES];
    uint64_t offset, owner;
    uint32_t segment, body_bytes, written;
    uint8_t n_tokens, kind, codec;
    uint8_t state; /* enum record_state; 0: a free entry */
};

struct disk_index {
    struct disk_entry **chunks; /* [n_chunks][INDEX_CHUNK] */
    uint32_t n_chunks, n_made;  /* n_made: entries in use or in the list of free ones */
    uint32_t live, first_free;  /* first_free: number + 1, 0: none */
    uint32_t *slots, n_slots;   /* entry number + 1; 0: empty. n_slots: a power of two */
    uint64_t seed;
    int cut_bits; /* tests: keys are compared by so many bits; 0: all */
};

void index_init(struct disk_index *x, int cut_bits);
void index_release(struct disk_index *x);

struct disk_entry *index_find(const struct disk_index *x, const uint8_t key[HASH_BYTES]);
/* A new entry with this key, the rest zero; the key must not be there. */
struct disk_entry *index_add(struct disk_index *x, const uint8_t key[HASH_BYTES]) MUST_CHECK;
void index_remove(struct disk_index *x, struct disk_entry *entry);

/* Entries by number, [0, n_made): NULL for a free one. */
struct disk_entry *index_at(const struct disk_index *x, uint32_t i);
/* Bytes of memory it takes. */
size_t index_bytes(const struct disk_index *x);

#endif

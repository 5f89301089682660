/* stages/model/text_index.h - the texts of a vocabulary, and which token has a given text.
 *
 * What:   `strings` holds n texts back to back; `text_index` is an open-addressing table of their numbers;
 *         `pair_index` finds what two neighbouring tokens merge to.
 * Rules:  tables are at most half full, and their hash is seeded from the system, so that a file cannot
 *         choose texts that collide.
 * Thread: immutable after it is built.
 */
#ifndef QUIRE_MODEL_TEXT_INDEX_H
#define QUIRE_MODEL_TEXT_INDEX_H

#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct strings {
    char *data;
    uint32_t *at; /* [n + 1] offsets into data */
    int n;
};

static inline const char *strings_get(const struct strings *s, int32_t i, size_t *len)
{
    *len = s->at[i + 1] - s->at[i];
    return s->data + s->at[i];
}

struct text_index {
    const struct strings *strings; /* borrowed */
    int32_t *slots;                /* [mask + 1], -1: empty */
    size_t mask;
    uint64_t seed;
};

/* Room for n entries; false when there is no memory. */
bool text_index_init(struct text_index *x, const struct strings *s, size_t n) MUST_CHECK;
void text_index_release(struct text_index *x);
/* Returns the number that has the same text already, or -1 when i was added. */
int32_t text_index_add(struct text_index *x, int32_t i);
int32_t text_index_find(const struct text_index *x, const char *s, size_t len); /* -1: none */

struct pair_slot {
    uint64_t pair; /* left token << 32 | right token; UINT64_MAX: empty */
    uint32_t rank; /* smaller merges first */
    int32_t id;    /* what they merge to */
};

struct pair_index {
    struct pair_slot *slots;
    size_t mask;
    uint64_t seed;
};

bool pair_index_init(struct pair_index *x, size_t n) MUST_CHECK;
void pair_index_release(struct pair_index *x);
/* The first of two equal pairs counts. */
void pair_index_add(struct pair_index *x, int32_t left, int32_t right, uint32_t rank,
                    int32_t id);
const struct pair_slot *pair_index_find(const struct pair_index *x, int32_t left,
                                        int32_t right); /* or NULL */

#endif

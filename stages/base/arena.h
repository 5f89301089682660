/* stages/base/arena.h - many small objects that live and die together.
 *
 *     head -> [block: used | free] -> [older block, full] -> ...
 *
 * Rules:  1. Objects are zeroed, aligned to 16 and never freed one by one.
 *         2. The total is capped; past the cap arena_alloc() returns NULL.
 */
#ifndef QUIRE_BASE_ARENA_H
#define QUIRE_BASE_ARENA_H

#include "stages/base/err.h"

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head;
    size_t used; /* bytes handed out, alignment included */
    size_t cap;
};

void arena_init(struct arena *a, size_t cap);
void arena_release(struct arena *a); /* frees everything; safe on a zeroed struct */

void *arena_alloc(struct arena *a, size_t n) MUST_CHECK;
/* A NUL-terminated copy of n bytes, or NULL. */
char *arena_strndup(struct arena *a, const char *s, size_t n) MUST_CHECK;

#endif

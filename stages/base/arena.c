#include "stages/base/arena.h"

#include "stages/base/mem.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 * 1024 };

struct arena_block {
    struct arena_block *older;
    size_t used, size;
    alignas(16) char data[];
};

void arena_init(struct arena *a, size_t cap)
{
    *a = (struct arena){.cap = cap};
}

void arena_release(struct arena *a)
{
    for (struct arena_block *b = a->head, *older; b; b = older) {
        older = b->older;
        free(b);
    }
    *a = (struct arena){.cap = a->cap};
}

void *arena_alloc(struct arena *a, size_t n)
{
    size_t padded, total;
    if (!size_add(n ? n : 1, 15, &padded))
        return NULL;
    padded &= ~(size_t)15;
    if (!size_add(a->used, padded, &total) || total > a->cap)
        return NULL;
    struct arena_block *b = a->head;
    if (!b || b->size - b->used < padded) {
        size_t size = padded > BLOCK_BYTES ? padded : BLOCK_BYTES;
        b = mem_alloc(sizeof(*b) + size);
        if (!b)
            return NULL;
        b->size = size;
        b->older = a->head;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += padded;
    a->used = total;
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;
    if (p && n)
        memcpy(p, s, n);
    return p;
}

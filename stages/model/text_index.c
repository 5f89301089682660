#include "stages/model/text_index.h"

#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Odd constants with mixed bits (the first digits of the golden ratio and of the root of 2). */
#define MIX_A UINT64_C(0x9e3779b97f4a7c15)
#define MIX_B UINT64_C(0x6a09e667f3bcc909)

static uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

static uint64_t hash_text(uint64_t seed, const char *s, size_t n)
{
    uint64_t h = seed ^ n, w;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = mix(h ^ w, MIX_A);
    }
    w = 0;
    memcpy(&w, s, n);
    return mix(h ^ w, MIX_B) ^ seed;
}

static uint64_t new_seed(void)
{
    uint64_t seed;
    if (getentropy(&seed, sizeof(seed)) != 0)
        seed = (uint64_t)time(NULL) *
               MIX_A; /* without a random source: only the defence is weaker */
    return seed;
}

static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

bool text_index_init(struct text_index *x, const struct strings *s, size_t n)
{
    size_t size = table_size(n);
    *x = (struct text_index){.strings = s, .mask = size - 1, .seed = new_seed()};
    x->slots = mem_alloc(size * sizeof(*x->slots));
    if (x->slots)
        memset(x->slots, 0xff, size * sizeof(*x->slots));
    return x->slots != NULL;
}

void text_index_release(struct text_index *x)
{
    free(x->slots);
    *x = (struct text_index){0};
}

/* The slot that holds this text, or the empty one where it belongs. */
static size_t text_slot(const struct text_index *x, const char *s, size_t len)
{
    size_t i = (size_t)hash_text(x->seed, s, len) & x->mask;
    for (; x->slots[i] >= 0; i = (i + 1) & x->mask) {
        size_t n;
        const char *have = strings_get(x->strings, x->slots[i], &n);
        if (n == len && memcmp(have, s, n) == 0)
            break;
    }
    return i;
}

int32_t text_index_add(struct text_index *x, int32_t i)
{
    size_t len;
    const char *s = strings_get(x->strings, i, &len);
    size_t slot = text_slot(x, s, len);
    int32_t had = x->slots[slot];
    if (had < 0)
        x->slots[slot] = i;
    return had;
}

int32_t text_index_find(const struct text_index *x, const char *s, size_t len)
{
    return x->slots ? x->slots[text_slot(x, s, len)] : -1;
}

bool pair_index_init(struct pair_index *x, size_t n)
{
    size_t size = table_size(n);
    *x = (struct pair_index){.mask = size - 1, .seed = new_seed()};
    x->slots = mem_alloc(size * sizeof(*x->slots));
    for (size_t i = 0; x->slots && i < size; i++)
        x->slots[i].pair = UINT64_MAX;
    return x->slots != NULL;
}

void pair_index_release(struct pair_index *x)
{
    free(x->slots);
    *x = (struct pair_index){0};
}

static struct pair_slot *pair_slot(const struct pair_index *x, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (size_t)mix(pair ^ x->seed, MIX_A) & x->mask;
    while (x->slots[i].pair != pair && x->slots[i].pair != UINT64_MAX)
        i = (i + 1) & x->mask;
    return &x->slots[i];
}

void pair_index_add(struct pair_index *x, int32_t left, int32_t right, uint32_t rank,
                    int32_t id)
{
    struct pair_slot *slot = pair_slot(x, left, right);
    if (slot->pair == UINT64_MAX)
        *slot = (struct pair_slot){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, rank, id};
}

const struct pair_slot *pair_index_find(const struct pair_index *x, int32_t left, int32_t right)
{
    const struct pair_slot *slot = pair_slot(x, left, right);
    return slot->pair == UINT64_MAX ? NULL : slot;
}

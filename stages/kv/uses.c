#include "stages/kv/uses.h"

#include "stages/base/clock.h"
#include "stages/base/le.h"
#include "stages/base/mem.h"
#include "stages/kv/lru_k.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FIRST_SLOTS = 1024, AT_COUNT = 8, AT_SUM = 16 };

static const char magic[8] = {'Q', 'K', 'V', 'U', 1, 0, 0, 0};

void uses_init(struct uses *u, uint32_t cap)
{
    *u = (struct uses){.cap = cap, .seed = (uint64_t)clock_us() * 0x9e3779b97f4a7c15u};
}

void uses_release(struct uses *u)
{
    free(u->slots);
    uses_init(u, u->cap);
}

uint64_t uses_key(const uint8_t key[HASH_BYTES])
{
    uint64_t k = le64_get(key);
    return k ? k : 1; /* 0 marks an empty slot */
}

static struct use *slot_of(const struct uses *u, uint64_t key)
{
    uint32_t i = (uint32_t)XXH3_64bits_withSeed(&key, sizeof(key), u->seed) & (u->n_slots - 1);
    while (u->slots[i].key && u->slots[i].key != key)
        i = (i + 1) & (u->n_slots - 1);
    return &u->slots[i];
}

static int newest_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x > y ? -1 : x < y;
}

/* The time that the newer half of the keys is at or after. */
static uint32_t median(const struct uses *u)
{
    uint32_t *times = mem_alloc((size_t)u->n * sizeof(*times)), n = 0;
    if (!times)
        return 0;
    for (uint32_t i = 0; i < u->n_slots; i++)
        if (u->slots[i].key)
            times[n++] = u->slots[i].times[0];
    qsort(times, n, sizeof(*times), newest_first);
    uint32_t t = times[n / 2];
    free(times);
    return t;
}

/* Into a table of n_slots: at most `most` keys, none that was last used before `since`. */
static bool rebuild(struct uses *u, uint32_t n_slots, uint32_t since, uint32_t most)
{
    struct use *slots = mem_alloc((size_t)n_slots * sizeof(*slots));
    if (!slots)
        return false;
    struct uses to = *u;
    to.slots = slots;
    to.n_slots = n_slots;
    to.n = 0;
    for (uint32_t i = 0; i < u->n_slots && to.n < most; i++)
        if (u->slots[i].key && u->slots[i].times[0] >= since) {
            *slot_of(&to, u->slots[i].key) = u->slots[i];
            to.n++;
        }
    free(u->slots);
    *u = to;
    return true;
}

/* The slot of key, made if need be; NULL when there is no room and no memory. */
static struct use *slot_for(struct uses *u, uint64_t key)
{
    if (u->cap == 0)
        return NULL;
    if (u->n_slots) {
        struct use *s = slot_of(u, key);
        if (s->key)
            return s;
    }
    if (u->n >= u->cap && !rebuild(u, u->n_slots, median(u), (u->cap + 1) / 2))
        return NULL;
    if (u->n >= u->n_slots / 4 * 3 &&
        !rebuild(u, u->n_slots ? 2 * u->n_slots : FIRST_SLOTS, 0, UINT32_MAX))
        return NULL;
    struct use *s = slot_of(u, key);
    *s = (struct use){.key = key};
    u->n++;
    return s;
}

static int count(const uint32_t times[USES_KEPT])
{
    int n = 0;
    while (n < USES_KEPT && times[n])
        n++;
    return n;
}

/* Enter the times of another list, as if all uses had been entered in their order. */
static void merge_times(struct use *s, const uint32_t times[USES_KEPT])
{
    uint32_t all[2 * USES_KEPT];
    memcpy(all, s->times, sizeof(s->times));
    memcpy(all + USES_KEPT, times, sizeof(s->times));
    qsort(all, ARRAY_LEN(all), sizeof(all[0]), newest_first);
    memset(s->times, 0, sizeof(s->times));
    for (size_t i = ARRAY_LEN(all); i-- > 0;)
        if (all[i])
            lru_k_use(s->times, count(s->times), all[i]);
}

void uses_touch(struct uses *u, uint64_t key, uint32_t now)
{
    struct use *s = slot_for(u, key);
    if (!s)
        return;
    lru_k_use(s->times, count(s->times), now);
    u->changed = true;
}

double uses_worth(const struct uses *u, uint64_t key, uint32_t now, uint32_t cost)
{
    const struct use *s = uses_find(u, key);
    return s ? lru_k_worth(s->times, count(s->times), now, cost) : 0;
}

const struct use *uses_find(const struct uses *u, uint64_t key)
{
    if (!u->n_slots)
        return NULL;
    const struct use *s = slot_of(u, key);
    return s->key ? s : NULL;
}

bool uses_merge(struct uses *u, const uint8_t *data, size_t n, bool earlier)
{
    if (n < USES_HEAD || memcmp(data, magic, sizeof(magic)) != 0 ||
        (n - USES_HEAD) % USES_ENTRY != 0 ||
        le64_get(data + AT_COUNT) != (n - USES_HEAD) / USES_ENTRY ||
        le64_get(data + AT_SUM) != XXH3_64bits(data + USES_HEAD, n - USES_HEAD))
        return false;
    for (size_t at = USES_HEAD; at < n; at += USES_ENTRY) {
        uint64_t key = le64_get(data + at);
        struct use *s = key ? slot_for(u, key) : NULL;
        if (!s)
            continue;
        uint32_t times[USES_KEPT];
        for (size_t i = 0; i < USES_KEPT; i++)
            times[i] = le32_get(data + at + 8 + 4 * i);
        merge_times(s, times);
        if (earlier)
            s->earlier = 1;
    }
    return true;
}

int uses_print(struct uses *u, struct buf *out, struct err *e)
{
    size_t bytes = USES_HEAD + (size_t)u->n * USES_ENTRY;
    char *room = buf_room(out, bytes, e);
    if (!room)
        return -(int)e->code;
    uint8_t *p = (uint8_t *)room, *entry = p + USES_HEAD;
    for (uint32_t i = 0; i < u->n_slots; i++) {
        if (!u->slots[i].key)
            continue;
        le64_put(entry, u->slots[i].key);
        for (size_t t = 0; t < USES_KEPT; t++)
            le32_put(entry + 8 + 4 * t, u->slots[i].times[t]);
        entry += USES_ENTRY;
    }
    memcpy(p, magic, sizeof(magic));
    le64_put(p + AT_COUNT, u->n);
    le64_put(p + AT_SUM, XXH3_64bits(p + USES_HEAD, bytes - USES_HEAD));
    out->len += bytes;
    u->changed = false;
    return 0;
}

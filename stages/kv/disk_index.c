#include "stages/kv/disk_index.h"

#include "stages/base/clock.h"
#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

enum { INDEX_CHUNK = 4096, FIRST_SLOTS = 1024 };

void index_init(struct disk_index *x, int cut_bits)
{
    *x = (struct disk_index){.cut_bits = cut_bits, .seed = (uint64_t)clock_us()};
    uint64_t random;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) == (ssize_t)sizeof(random))
        x->seed = random;
}

void index_release(struct disk_index *x)
{
    for (uint32_t i = 0; i < x->n_chunks; i++)
        free(x->chunks[i]);
    free(x->chunks);
    free(x->slots);
    index_init(x, x->cut_bits);
}

struct disk_entry *index_at(const struct disk_index *x, uint32_t i)
{
    struct disk_entry *entry = &x->chunks[i / INDEX_CHUNK][i % INDEX_CHUNK];
    return entry->state ? entry : NULL;
}

static struct disk_entry *entry_of(const struct disk_index *x, uint32_t i)
{
    return &x->chunks[i / INDEX_CHUNK][i % INDEX_CHUNK];
}

/* The bits of a key that count. */
static void cut(const struct disk_index *x, const uint8_t *key, uint8_t out[HASH_BYTES])
{
    memcpy(out, key, HASH_BYTES);
    if (x->cut_bits <= 0 || x->cut_bits >= 8 * HASH_BYTES)
        return;
    size_t whole = (size_t)x->cut_bits / 8;
    memset(out + whole + 1, 0, HASH_BYTES - whole - 1);
    out[whole] = (uint8_t)(out[whole] & ~(0xff >> x->cut_bits % 8));
}

static uint32_t home(const struct disk_index *x, const uint8_t *key)
{
    uint8_t k[HASH_BYTES];
    cut(x, key, k);
    return (uint32_t)XXH3_64bits_withSeed(k, HASH_BYTES, x->seed) & (x->n_slots - 1);
}

static bool same(const struct disk_index *x, const uint8_t *a, const uint8_t *b)
{
    uint8_t ka[HASH_BYTES], kb[HASH_BYTES];
    if (x->cut_bits <= 0)
        return memcmp(a, b, HASH_BYTES) == 0;
    cut(x, a, ka);
    cut(x, b, kb);
    return memcmp(ka, kb, HASH_BYTES) == 0;
}

/* The slot that holds key, or the empty one where it would go. */
static uint32_t slot_of(const struct disk_index *x, const uint8_t *key)
{
    uint32_t i = home(x, key);
    while (x->slots[i] && !same(x, entry_of(x, x->slots[i] - 1)->key, key))
        i = (i + 1) & (x->n_slots - 1);
    return i;
}

struct disk_entry *index_find(const struct disk_index *x, const uint8_t key[HASH_BYTES])
{
    if (x->n_slots == 0)
        return NULL;
    uint32_t i = x->slots[slot_of(x, key)];
    return i ? entry_of(x, i - 1) : NULL;
}

/* At most three quarters of the slots are taken. */
static bool grow_slots(struct disk_index *x)
{
    if (x->live < x->n_slots / 4 * 3)
        return true;
    uint32_t n = x->n_slots ? 2 * x->n_slots : FIRST_SLOTS;
    if (n < x->n_slots)
        return false;
    uint32_t *old = x->slots, n_old = x->n_slots;
    uint32_t *slots = mem_alloc((size_t)n * sizeof(*slots));
    if (!slots)
        return false;
    x->slots = slots;
    x->n_slots = n;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i])
            slots[slot_of(x, entry_of(x, old[i] - 1)->key)] = old[i];
    free(old);
    return true;
}

static bool grow_chunks(struct disk_index *x)
{
    if (x->first_free || x->n_made < x->n_chunks * INDEX_CHUNK)
        return true;
    struct disk_entry **chunks =
        mem_resize(x->chunks, ((size_t)x->n_chunks + 1) * sizeof(struct disk_entry *));
    if (!chunks)
        return false;
    x->chunks = chunks;
    chunks[x->n_chunks] = mem_alloc(INDEX_CHUNK * sizeof(struct disk_entry));
    if (!chunks[x->n_chunks])
        return false;
    x->n_chunks++;
    return true;
}

struct disk_entry *index_add(struct disk_index *x, const uint8_t key[HASH_BYTES])
{
    if (!grow_slots(x) || !grow_chunks(x))
        return NULL;
    uint32_t i = x->first_free ? x->first_free - 1 : x->n_made++;
    struct disk_entry *entry = entry_of(x, i);
    if (x->first_free)
        x->first_free = entry->segment;
    *entry = (struct disk_entry){.state = RECORD_KEPT};
    memcpy(entry->key, key, HASH_BYTES);
    x->slots[slot_of(x, key)] = i + 1;
    x->live++;
    return entry;
}

void index_remove(struct disk_index *x, struct disk_entry *entry)
{
    uint32_t hole = slot_of(x, entry->key), i = hole, mask = x->n_slots - 1;
    uint32_t number = x->slots[hole];
    /* Close the gap: move back every later slot of the run that would not be found behind it. */
    for (;;) {
        i = (i + 1) & mask;
        if (!x->slots[i])
            break;
        uint32_t want = home(x, entry_of(x, x->slots[i] - 1)->key);
        if (((i - want) & mask) >= ((i - hole) & mask)) {
            x->slots[hole] = x->slots[i];
            hole = i;
        }
    }
    x->slots[hole] = 0;
    *entry = (struct disk_entry){.segment = x->first_free};
    x->first_free = number;
    x->live--;
}

size_t index_bytes(const struct disk_index *x)
{
    return (size_t)x->n_chunks * (INDEX_CHUNK * sizeof(struct disk_entry) + sizeof(void *)) +
           (size_t)x->n_slots * sizeof(uint32_t);
}

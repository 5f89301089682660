/* Keys form a chain: the key of page i covers the context and all tokens up to the end of page i, so one
 * look-up per page decides whether the whole prefix is the same. Keys depend on content alone: when a page
 * in the middle is evicted and computed again, its old successors are found again.
 *
 *     bucket[hash of key] -> entry of page a -> entry of page b -> none
 *
 * There is one entry for each page of the pool, so the map never grows and forgetting is an unlink.
 */
#include "stages/kv/prefix.h"

#include "stages/base/le.h"
#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    uint8_t key[HASH_BYTES]; /* valid for every page that was sealed here, private ones too */
    int32_t tokens[PAGE_TOKENS];
    page_id next; /* in the bucket */
};

struct prefix_index {
    struct page_pool *pool;
    uint8_t context[HASH_BYTES];
    struct entry *entries; /* [pages of the pool] */
    page_id *buckets;      /* [n_buckets], a power of two */
    uint32_t n_buckets;
};

static page_id *bucket(struct prefix_index *x, const uint8_t key[HASH_BYTES])
{
    return &x->buckets[le32_get(key) & (x->n_buckets - 1)];
}

static void forget(void *ctx, page_id id)
{
    struct prefix_index *x = ctx;
    page_id *at = bucket(x, x->entries[id].key);
    while (*at != id) {
        assert(*at != PAGE_NONE);
        at = &x->entries[*at].next;
    }
    *at = x->entries[id].next;
}

struct prefix_index *prefix_index_new(struct page_pool *pool, const uint8_t context[HASH_BYTES])
{
    struct page_stats s;
    page_pool_stats(pool, &s);
    struct prefix_index *x = mem_need(sizeof(*x));
    x->pool = pool;
    memcpy(x->context, context, HASH_BYTES);
    x->n_buckets = 16;
    while (x->n_buckets < (uint32_t)s.total)
        x->n_buckets *= 2;
    x->entries = mem_need((size_t)s.total * sizeof(*x->entries));
    x->buckets = mem_need(x->n_buckets * sizeof(*x->buckets));
    for (uint32_t i = 0; i < x->n_buckets; i++)
        x->buckets[i] = PAGE_NONE;
    page_pool_on_evict(pool, forget, x);
    return x;
}

void prefix_index_free(struct prefix_index *x)
{
    if (!x)
        return;
    page_pool_on_evict(x->pool, NULL, NULL);
    free(x->entries);
    free(x->buckets);
    free(x);
}

static void page_key(uint8_t out[HASH_BYTES], const uint8_t parent[HASH_BYTES],
                     const int32_t *tokens)
{
    uint8_t ids[4 * PAGE_TOKENS];
    for (int i = 0; i < PAGE_TOKENS; i++)
        le32_put(ids + 4 * i, (uint32_t)tokens[i]);
    struct hash h;
    hash_init(&h);
    hash_field(&h, "parent", parent, HASH_BYTES);
    hash_field(&h, "tokens", ids, sizeof(ids));
    hash_end(&h, out);
}

/* The ids are compared too: they are at hand, and a wrong page would be a wrong answer. */
static page_id look_up(struct prefix_index *x, const uint8_t key[HASH_BYTES],
                       const int32_t *tokens)
{
    page_id id = *bucket(x, key);
    while (id != PAGE_NONE &&
           (memcmp(x->entries[id].key, key, HASH_BYTES) != 0 ||
            memcmp(x->entries[id].tokens, tokens, sizeof(x->entries[id].tokens)) != 0))
        id = x->entries[id].next;
    return id;
}

int prefix_match(struct prefix_index *x, const int32_t *tokens, int n, struct block_table *t)
{
    assert(t->n_pages == 0);
    uint8_t key[HASH_BYTES];
    memcpy(key, x->context, HASH_BYTES);
    int found = 0;
    while (found + PAGE_TOKENS < n) {
        page_key(key, key, tokens + found);
        page_id id = look_up(x, key, tokens + found);
        if (id == PAGE_NONE)
            break;
        page_ref(x->pool, id);
        block_table_append(t, id);
        found += PAGE_TOKENS;
    }
    return found;
}

void prefix_insert(struct prefix_index *x, const int32_t *tokens, int n, struct block_table *t)
{
    int full = n / PAGE_TOKENS, first = full;
    assert(full <= t->n_pages);
    while (first > 0 && !page_is_sealed(x->pool, t->pages[first - 1]))
        first--;
    uint8_t key[HASH_BYTES];
    memcpy(key, first > 0 ? x->entries[t->pages[first - 1]].key : x->context, HASH_BYTES);
    for (int i = first; i < full; i++) {
        const int32_t *own = tokens + (size_t)i * PAGE_TOKENS;
        page_id id = t->pages[i];
        struct entry *entry = &x->entries[id];
        page_key(key, key, own);
        bool known = look_up(x, key, own) != PAGE_NONE;
        memcpy(entry->key, key, HASH_BYTES);
        memcpy(entry->tokens, own, sizeof(entry->tokens));
        if (!known) {
            page_id *at = bucket(x, key);
            entry->next = *at;
            *at = id;
        }
        page_seal(x->pool, id, !known);
    }
}

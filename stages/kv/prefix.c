/* Keys form a chain: the key of page i covers the context and all tokens up to the end of page i, so one
 * look-up per page decides whether the whole prefix is the same. Keys depend on content alone: when a page
 * in the middle is evicted and computed again, its old successors are found again.
 *
 *     bucket[hash of key] -> entry of page a -> entry of page b -> none
 *
 * There is one entry for each page of the pool, so the map never grows and forgetting is an unlink.
 *
 * Prompts rarely part at the end of a page. So for each parent key the index also knows one page that follows
 * it, the donor: where the tokens of a request agree with the donor's for a while and then differ, the donor
 * is copied and computing goes on behind the part that agrees. A copy is right because K and V of a position
 * depend on the tokens up to it alone; what lies behind is overwritten before any row sees it.
 */
#include "stages/kv/prefix.h"

#include "stages/base/le.h"
#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL_MIN = 8 }; /* tokens; fewer are computed as fast as a page is copied */

struct entry {
    uint8_t key[HASH_BYTES]; /* valid for every page that was sealed here, private ones too */
    uint8_t parent[HASH_BYTES];
    int32_t tokens[PAGE_TOKENS];
    page_id next;       /* in the bucket of key */
    page_id next_donor; /* in the bucket of parent */
    bool donor;
};

struct prefix_index {
    struct page_pool *pool;
    uint8_t context[HASH_BYTES];
    struct entry *entries; /* [pages of the pool] */
    page_id *buckets;      /* [n_buckets], a power of two: pages by key */
    page_id *donors;       /* [n_buckets]: pages by parent, one for each */
    uint32_t n_buckets;
};

static uint32_t slot_of(const struct prefix_index *x, const uint8_t key[HASH_BYTES])
{
    return le32_get(key) & (x->n_buckets - 1);
}

static page_id donor_of(const struct prefix_index *x, const uint8_t parent[HASH_BYTES])
{
    page_id id = x->donors[slot_of(x, parent)];
    while (id != PAGE_NONE && memcmp(x->entries[id].parent, parent, HASH_BYTES) != 0)
        id = x->entries[id].next_donor;
    return id;
}

static void forget(void *ctx, page_id id)
{
    struct prefix_index *x = ctx;
    struct entry *gone = &x->entries[id];
    page_id *at = &x->buckets[slot_of(x, gone->key)];
    while (*at != id) {
        assert(*at != PAGE_NONE);
        at = &x->entries[*at].next;
    }
    *at = gone->next;
    if (!gone->donor)
        return;
    at = &x->donors[slot_of(x, gone->parent)];
    while (*at != id) {
        assert(*at != PAGE_NONE);
        at = &x->entries[*at].next_donor;
    }
    *at = gone->next_donor;
    gone->donor = false;
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
    x->donors = mem_need(x->n_buckets * sizeof(*x->donors));
    for (uint32_t i = 0; i < x->n_buckets; i++)
        x->buckets[i] = x->donors[i] = PAGE_NONE;
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
    free(x->donors);
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
    page_id id = x->buckets[slot_of(x, key)];
    while (id != PAGE_NONE &&
           (memcmp(x->entries[id].key, key, HASH_BYTES) != 0 ||
            memcmp(x->entries[id].tokens, tokens, sizeof(x->entries[id].tokens)) != 0))
        id = x->entries[id].next;
    return id;
}

/* Append a private copy of the page that agrees with tokens[0, n) at its beginning; parent is the key of the
 * pages before it. Returns how many tokens agree, 0 when nothing was appended. */
static int copy_tail(struct prefix_index *x, const uint8_t parent[HASH_BYTES],
                     const int32_t *tokens, int n, struct block_table *t)
{
    page_id donor = donor_of(x, parent);
    int same = 0;
    while (donor != PAGE_NONE && same < PAGE_TOKENS && same < n &&
           x->entries[donor].tokens[same] == tokens[same])
        same++;
    if (same < TAIL_MIN)
        return 0;
    page_ref(x->pool, donor); /* or page_alloc() might evict it */
    page_id id = page_alloc(x->pool);
    if (id != PAGE_NONE) {
        page_copy(x->pool, id, donor);
        block_table_append(t, id);
    }
    page_unref(x->pool, donor);
    return id != PAGE_NONE ? same : 0;
}

int prefix_match(struct prefix_index *x, const int32_t *tokens, int n, struct block_table *t)
{
    assert(t->n_pages == 0);
    uint8_t key[HASH_BYTES], next[HASH_BYTES];
    memcpy(key, x->context, HASH_BYTES);
    int found = 0;
    while (found + PAGE_TOKENS < n) {
        page_key(next, key, tokens + found);
        page_id id = look_up(x, next, tokens + found);
        if (id == PAGE_NONE)
            break;
        memcpy(key, next, HASH_BYTES);
        page_ref(x->pool, id);
        block_table_append(t, id);
        found += PAGE_TOKENS;
    }
    return found + copy_tail(x, key, tokens + found, n - 1 - found, t);
}

static void publish(struct prefix_index *x, page_id id)
{
    struct entry *entry = &x->entries[id];
    page_id *at = &x->buckets[slot_of(x, entry->key)];
    entry->next = *at;
    *at = id;
    entry->donor = donor_of(x, entry->parent) == PAGE_NONE;
    if (!entry->donor)
        return;
    at = &x->donors[slot_of(x, entry->parent)];
    entry->next_donor = *at;
    *at = id;
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
        memcpy(entry->parent, key, HASH_BYTES);
        page_key(key, key, own);
        bool known = look_up(x, key, own) != PAGE_NONE;
        memcpy(entry->key, key, HASH_BYTES);
        memcpy(entry->tokens, own, sizeof(entry->tokens));
        if (!known)
            publish(x, id);
        page_seal(x->pool, id, !known);
    }
}

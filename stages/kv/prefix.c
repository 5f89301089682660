/* Keys depend on content alone: when a page in the middle is evicted and computed again, its old successors
 * are found again.
 *
 *     bucket[hash of key] -> entry of page a -> entry of page b -> none
 *
 * There is one entry for each page of the pool, so the map never grows and forgetting is an unlink.
 *
 * Prompts rarely part at the end of a page. So for each parent key the index also knows one page that follows
 * it, the donor: where the tokens of a request agree with the donor's for a while and then differ, the donor
 * is copied and computing goes on behind the part that agrees. A copy is right because K and V of a position
 * depend on the tokens up to it alone; what lies behind is overwritten before any row sees it. (Of a page that
 * a lossy codec rounded this is not true: its scales come from all of its tokens. Such pages are no donors.)
 */
#include "stages/kv/prefix.h"

#include "stages/base/le.h"
#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { COPY_MIN = 8 }; /* tokens; fewer are computed as fast as a page is copied */

struct entry {
    uint8_t key[HASH_BYTES];
    uint8_t parent[HASH_BYTES];
    int32_t tokens[PAGE_TOKENS];
    int n;
    page_id next;       /* in the bucket of key */
    page_id next_donor; /* in the bucket of parent */
    bool donor;
};

struct prefix_index {
    struct page_pool *pool;
    struct entry *entries; /* [pages of the pool] */
    page_id *buckets;      /* [n_buckets], a power of two: pages by key */
    page_id *donors;       /* [n_buckets]: pages by parent, one for each */
    uint32_t n_buckets;
    uint32_t key_mask; /* of the first four bytes; the others count when it is full */
};

/* ---- keys ---- */

static void page_key(uint8_t out[HASH_BYTES], const char *tag, const uint8_t parent[HASH_BYTES],
                     const int32_t *tokens, int n)
{
    uint8_t ids[4 * PAGE_TOKENS];
    for (int i = 0; i < n; i++)
        le32_put(ids + 4 * i, (uint32_t)tokens[i]);
    struct hash h;
    hash_init(&h);
    hash_field(&h, "parent", parent, HASH_BYTES);
    hash_field(&h, tag, ids, 4 * (size_t)n);
    hash_end(&h, out);
}

int prefix_keys_make(struct prefix_keys *out, const uint8_t context[HASH_BYTES],
                     const int32_t *tokens, int n, struct err *e)
{
    int full = n / PAGE_TOKENS;
    *out = (struct prefix_keys){.n_full = full, .n_tokens = n};
    out->key = mem_alloc(((size_t)full + 2) * HASH_BYTES);
    if (!out->key)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for the keys of %d tokens", n);
    memcpy(out->key[0], context, HASH_BYTES);
    for (int i = 0; i < full; i++)
        page_key(out->key[i + 1], "tokens", out->key[i], tokens + (size_t)i * PAGE_TOKENS,
                 PAGE_TOKENS);
    page_key(out->key[full + 1], "tail", out->key[full], tokens + (size_t)full * PAGE_TOKENS,
             n % PAGE_TOKENS);
    return 0;
}

void prefix_keys_release(struct prefix_keys *k)
{
    free(k->key);
    *k = (struct prefix_keys){0};
}

/* ---- the map ---- */

static uint32_t slot_of(const struct prefix_index *x, const uint8_t key[HASH_BYTES])
{
    return le32_get(key) & x->key_mask & (x->n_buckets - 1);
}

static bool same_key(const struct prefix_index *x, const uint8_t *a, const uint8_t *b)
{
    if (x->key_mask != UINT32_MAX)
        return ((le32_get(a) ^ le32_get(b)) & x->key_mask) == 0;
    return memcmp(a, b, HASH_BYTES) == 0;
}

static page_id donor_of(const struct prefix_index *x, const uint8_t parent[HASH_BYTES])
{
    page_id id = x->donors[slot_of(x, parent)];
    while (id != PAGE_NONE && memcmp(x->entries[id].parent, parent, HASH_BYTES) != 0)
        id = x->entries[id].next_donor;
    return id;
}

struct prefix_index *prefix_index_new(struct page_pool *pool, int cut_key_bits)
{
    struct page_stats s;
    page_pool_stats(pool, &s);
    struct prefix_index *x = mem_need(sizeof(*x));
    x->pool = pool;
    x->key_mask = cut_key_bits > 0 ? (UINT32_C(1) << cut_key_bits) - 1 : UINT32_MAX;
    x->n_buckets = 16;
    while (x->n_buckets < (uint32_t)s.total)
        x->n_buckets *= 2;
    x->entries = mem_need((size_t)s.total * sizeof(*x->entries));
    x->buckets = mem_need(x->n_buckets * sizeof(*x->buckets));
    x->donors = mem_need(x->n_buckets * sizeof(*x->donors));
    for (uint32_t i = 0; i < x->n_buckets; i++)
        x->buckets[i] = x->donors[i] = PAGE_NONE;
    return x;
}

void prefix_index_free(struct prefix_index *x)
{
    if (!x)
        return;
    free(x->entries);
    free(x->buckets);
    free(x->donors);
    free(x);
}

page_id prefix_find(const struct prefix_index *x, const uint8_t key[HASH_BYTES],
                    const uint8_t parent[HASH_BYTES], const int32_t *tokens, int n)
{
    page_id id = x->buckets[slot_of(x, key)];
    for (; id != PAGE_NONE; id = x->entries[id].next) {
        const struct entry *e = &x->entries[id];
        if (e->n == n && same_key(x, e->key, key) &&
            memcmp(e->parent, parent, HASH_BYTES) == 0 &&
            memcmp(e->tokens, tokens, (size_t)n * sizeof(*tokens)) == 0)
            break;
    }
    return id;
}

int prefix_copy(struct prefix_index *x, const uint8_t parent[HASH_BYTES], const int32_t *tokens,
                int n, struct block_table *t)
{
    page_id donor = donor_of(x, parent);
    int same = 0;
    while (donor != PAGE_NONE && same < x->entries[donor].n && same < n &&
           x->entries[donor].tokens[same] == tokens[same])
        same++;
    if (same < COPY_MIN)
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

static void link_entry(struct prefix_index *x, page_id id, bool copies)
{
    struct entry *entry = &x->entries[id];
    page_id *at = &x->buckets[slot_of(x, entry->key)];
    entry->next = *at;
    *at = id;
    entry->donor = copies && donor_of(x, entry->parent) == PAGE_NONE;
    if (!entry->donor)
        return;
    at = &x->donors[slot_of(x, entry->parent)];
    entry->next_donor = *at;
    *at = id;
}

bool prefix_publish(struct prefix_index *x, page_id id, const uint8_t key[HASH_BYTES],
                    const uint8_t parent[HASH_BYTES], const int32_t *tokens, int n, bool copies)
{
    struct entry *entry = &x->entries[id];
    bool is_new = prefix_find(x, key, parent, tokens, n) == PAGE_NONE;
    memcpy(entry->key, key, HASH_BYTES);
    memcpy(entry->parent, parent, HASH_BYTES);
    memcpy(entry->tokens, tokens, (size_t)n * sizeof(*tokens));
    entry->n = n;
    if (is_new)
        link_entry(x, id, copies);
    page_seal(x->pool, id, is_new);
    return is_new;
}

void prefix_forget(struct prefix_index *x, page_id id)
{
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

const uint8_t *prefix_key_of(const struct prefix_index *x, page_id id)
{
    return x->entries[id].key;
}

const uint8_t *prefix_parent_of(const struct prefix_index *x, page_id id)
{
    return x->entries[id].parent;
}

const int32_t *prefix_tokens_of(const struct prefix_index *x, page_id id, int *n)
{
    *n = x->entries[id].n;
    return x->entries[id].tokens;
}

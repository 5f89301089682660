/* stages/kv/prefix.h - which pages of the pool hold the KV of a token prefix.
 *
 * What:   a radix tree over pages, as a map. The key of page i is SHA-256 over tagged fields: the key of page i-1
 *         (or the context digest) and its 64 token ids; so one look-up per page decides whether the whole
 *         prefix is the same. A tail is the end of a prompt, fewer than 64 tokens, under a tag of its own.
 * Rules:  1. The ids and the parent's key are kept and compared on every hit, so that even two equal keys could not
 *            give a wrong page, which would be a wrong answer.
 *         2. The index holds no references: an idle page stays until the pool evicts it.
 *         3. Full pages are shared as they are. A request that parts from one in its middle gets a private copy.
 * Thread: as the pool.
 */
#ifndef QUIRE_KV_PREFIX_H
#define QUIRE_KV_PREFIX_H

#include "stages/kv/block_table.h"

/* The keys of one prompt. */
struct prefix_keys {
    uint8_t (*key)[HASH_BYTES]; /* [n_full + 2]: the context, the full pages, the tail */
    int n_full;                 /* n_tokens / 64 */
    int n_tokens;
};

/* Key of page i, of what comes before it, and of the tail (of n_tokens % 64 tokens, which may be none). */
static inline const uint8_t *prefix_key(const struct prefix_keys *k, int page)
{
    return k->key[page + 1];
}
static inline const uint8_t *prefix_parent(const struct prefix_keys *k, int page)
{
    return k->key[page];
}

/* context: digest of everything that changes the numbers (model_context_digest()). -ERR_NOMEM, reach DOC. */
int prefix_keys_make(struct prefix_keys *out, const uint8_t context[HASH_BYTES],
                     const int32_t *tokens, int n, struct err *e) MUST_CHECK;
void prefix_keys_release(struct prefix_keys *k); /* safe on a zeroed struct */

struct prefix_index;

/* cut_key_bits: tests only; keys are then equal when that many bits are. 0: all. */
struct prefix_index *prefix_index_new(struct page_pool *pool, int cut_key_bits);
void prefix_index_free(struct prefix_index *x);

/* The page of this key and parent that holds exactly tokens[0, n), or PAGE_NONE. Takes no reference. */
page_id prefix_find(const struct prefix_index *x, const uint8_t key[HASH_BYTES],
                    const uint8_t parent[HASH_BYTES], const int32_t *tokens, int n);

/* Append a private OPEN copy of a page that follows `parent` and begins as tokens[0, n) does, if one is known.
 * Returns how many tokens agree; 0: nothing was appended. */
int prefix_copy(struct prefix_index *x, const uint8_t parent[HASH_BYTES], const int32_t *tokens,
                int n, struct block_table *t) MUST_CHECK;

/* Seal the OPEN page, which holds tokens[0, n), and make it findable; copies: prefix_copy() may take it. When its key
 * is indexed already it stays private (and still correct), and this is false. */
bool prefix_publish(struct prefix_index *x, page_id id, const uint8_t key[HASH_BYTES],
                    const uint8_t parent[HASH_BYTES], const int32_t *tokens, int n,
                    bool copies);
/* Called by the pool's owner when it evicts a page (page_hooks). */
void prefix_forget(struct prefix_index *x, page_id id);

/* What is known of a page that was published: its key, its parent's, the tokens in it. */
const uint8_t *prefix_key_of(const struct prefix_index *x, page_id id);
const uint8_t *prefix_parent_of(const struct prefix_index *x, page_id id);
const int32_t *prefix_tokens_of(const struct prefix_index *x, page_id id, int *n);

#endif

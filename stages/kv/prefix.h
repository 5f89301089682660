/* stages/kv/prefix.h - which sealed pages hold the KV of a token prefix.
 *
 * What:   key of page i = SHA-256 over tagged fields: key of page i-1 (or the context digest), and its
 *         64 token ids. The ids are kept and compared on every hit. Only full pages are indexed;
 *         a request that parts from one in its middle gets a private copy of it.
 * Rules:  the index holds no references: an idle page stays until the pool evicts it.
 * Thread: as the pool.
 */
#ifndef QUIRE_KV_PREFIX_H
#define QUIRE_KV_PREFIX_H

#include "stages/kv/block_table.h"

struct prefix_index;

/* context: digest of everything that changes the numbers (weights, vocabulary, RoPE, KV type,
 * attention mode, page layout version, arithmetic version). */
struct prefix_index *prefix_index_new(struct page_pool *pool,
                                      const uint8_t context[HASH_BYTES]);
void prefix_index_free(struct prefix_index *x);

/* Append to t (empty) the pages of the longest indexed prefix of tokens[0, n), each with a reference;
 * when the number of tokens found is not a multiple of 64, the last page is a private OPEN copy whose
 * positions from there on are to be written. Returns that number, at most n-1, so that the last token is
 * always computed and gives logits. */
int prefix_match(struct prefix_index *x, const int32_t *tokens, int n, struct block_table *t);

/* Seal the full pages of t that cover tokens[0, n) and are not sealed yet, and index them. A page whose key
 * is indexed already stays private (and still correct). */
void prefix_insert(struct prefix_index *x, const int32_t *tokens, int n, struct block_table *t);

#endif

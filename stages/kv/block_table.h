/* stages/kv/block_table.h - the pages of one sequence, in the order of its positions.
 *
 * Rules:  entry i holds positions 64*i .. 64*i+63 and one reference. Only the last page may be OPEN. Small pages come
 *         before all others.
 * Thread: as the pool.
 */
#ifndef QUIRE_KV_BLOCK_TABLE_H
#define QUIRE_KV_BLOCK_TABLE_H

#include "stages/kv/page.h"

struct block_table {
    struct page_pool *pool;
    page_id *pages; /* [n_pages] heap */
    int n_pages, cap;
};

struct block_table *block_table_new(struct page_pool *pool);
/* Drops all references. NULL is fine. */
void block_table_free(struct block_table *t);

/* Make room for positions up to n_tokens (exclusive) by allocating OPEN pages.
 * Returns 0, or -ERR_NOMEM (reach DOC) when the pool has none; what was added stays. */
int block_table_reserve(struct block_table *t, int n_tokens, struct err *e) MUST_CHECK;
/* The same of pages that are going to be small (page_alloc_small). */
int block_table_reserve_small(struct block_table *t, int n_tokens, struct err *e) MUST_CHECK;
/* Append a page whose reference the caller gives. */
void block_table_append(struct block_table *t, page_id id);
/* Slices of one layer for all pages: out[n_pages], as kernels take them. Returns how many are small: the first. */
int block_table_slices(const struct block_table *t, int layer, void **out);

#endif

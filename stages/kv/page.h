/* stages/kv/page.h - fixed-size KV pages, counted and shared by sequences with a common prefix.
 *
 * What:   a pool of pages; each holds K and V of 64 positions of every layer, as the attention kernels
 *         read them: per layer one slice of slice_bytes (kernels.h).
 * Not:    knows no prompts (prefix.h), no transformer; bytes with a shape and a key.
 *
 *     FREE --page_alloc--> OPEN --page_seal--> SEALED --last unref, not in the index--> FREE
 *                           |                    |  ^
 *                           +--last unref--> FREE|  +-- page_ref (by prefix match)
 *                                                +--last unref, in the index--> SEALED, idle (evictable)
 *
 * Rules:  1. An OPEN page has one owner. 2. A SEALED page never changes. 3. refs >= 0 always; an
 *         underflow is a bug. 4. An idle sealed page is given up, oldest first, when the pool is empty.
 *         5. used + free = total; page_pool_audit() checks it.
 * Thread: one owner thread calls everything but page_pool_stats().
 * Source: paged KV: Kwon et al. 2023 (PagedAttention); the block states are our own.
 */
#ifndef QUIRE_KV_PAGE_H
#define QUIRE_KV_PAGE_H

#include "stages/base/err.h"
#include "stages/base/hash.h"

#include <stddef.h>
#include <stdint.h>

enum { PAGE_TOKENS = 64 };

typedef int32_t page_id; /* index into the pool; PAGE_NONE: no page */
#define PAGE_NONE (-1)

struct page_pool;

struct page_stats {
    int total, used, idle,
        peak_used; /* pages; used = referenced, idle = sealed and kept in the index */
    int64_t allocs, evictions, underflows;
};

/* A pool of n_pages pages of n_layer slices. The memory is reserved at once and touched page by page.
 * -ERR_NOMEM (reach JOB) when it cannot be had. */
int page_pool_new(struct page_pool **out, int n_pages, int n_layer, size_t slice_bytes,
                  struct err *e) MUST_CHECK;
void page_pool_free(struct page_pool *p); /* NULL is fine */

/* An OPEN page with one reference, or PAGE_NONE when every page is referenced. Evicts the oldest idle page
 * if there is no free one; the evict callback tells its index to forget it. */
page_id page_alloc(struct page_pool *p) MUST_CHECK;
void page_pool_on_evict(struct page_pool *p, void (*forget)(void *ctx, page_id id), void *ctx);

void page_ref(struct page_pool *p, page_id id);
void page_unref(struct page_pool *p, page_id id);
/* OPEN -> SEALED; in_index says whether an index keeps it findable after the last unref. */
void page_seal(struct page_pool *p, page_id id, bool in_index);

/* The slice of a layer: slice_bytes, aligned to 64. Writing is allowed while the page is OPEN. */
void *page_slice(struct page_pool *p, page_id id, int layer);
/* Make the OPEN page `to` equal to `from`, all layers. Cost: the bytes of a page. */
void page_copy(struct page_pool *p, page_id to, page_id from);
int page_refs(const struct page_pool *p, page_id id);
bool page_is_sealed(const struct page_pool *p, page_id id);

void page_pool_stats(const struct page_pool *p, struct page_stats *out);
/* Sum of references, free + idle + used = total, no underflow. 0, or -ERR_BUG with the first difference. */
int page_pool_audit(const struct page_pool *p, int64_t expected_refs, struct err *e) MUST_CHECK;

#endif

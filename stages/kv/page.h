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
 * Rules:  1. An OPEN page has one owner. 2. A SEALED page never changes, so it may be read by a thread that holds
 *         a reference. 3. refs >= 0 always; an underflow is a bug. 4. When the pool is empty, an idle sealed
 *         page is given up: which one, next_use.h says. 5. used + idle + free = total; page_pool_audit()
 *         checks it. 6. The memory of a page that becomes FREE goes back to the kernel.
 *         7. Where pages have a small form (page_pool_use_small), the pool counts room in units of one: a page takes
 *         page_full_units() of them, one that is small takes 1, and the memory that it does not need any more
 *         goes back to the kernel. Elsewhere a unit is a page.
 * Thread: one owner thread calls everything but page_pool_stats().
 * Source: paged KV: Kwon et al. 2023 (PagedAttention); the block states are our own.
 */
#ifndef QUIRE_KV_PAGE_H
#define QUIRE_KV_PAGE_H

#include "stages/base/err.h"
#include "stages/base/hash.h"
#include "stages/kv/next_use.h"
#include "stages/kv/trace.h"

#include <stddef.h>
#include <stdint.h>

enum { PAGE_TOKENS = 64 };

typedef int32_t page_id; /* index into the pool; PAGE_NONE: no page */
#define PAGE_NONE (-1)

struct page_pool;

struct page_stats {
    int total, used, idle,
        peak_used; /* units; used = referenced, idle = sealed and kept in the index */
    int64_t allocs, evictions, underflows;
};

/* A pool of n_pages pages (or units) of n_layer slices. The memory is reserved at once and touched page by page.
 * -ERR_NOMEM (reach JOB) when it cannot be had. */
int page_pool_new(struct page_pool **out, int n_pages, int n_layer, size_t slice_bytes,
                  struct err *e) MUST_CHECK;
void page_pool_free(struct page_pool *p); /* NULL is fine */
/* Before the first page is allocated: pages can be small, with slices of so many bytes, a multiple of 64, at least
 * half of the full ones and less than they. */
void page_pool_use_small(struct page_pool *p, size_t small_slice_bytes);
/* Units that a full page takes: 2 where pages can be small, else 1. */
int page_full_units(const struct page_pool *p);

/* What the owner of the pool is asked. All may be NULL. */
struct page_hooks {
    /* The page is given up: its index must forget it. */
    void (*evict)(void *ctx, page_id id);
    /* The page becomes idle: which request looks it up next (or NEXT_USE_NEVER), and is it on disk? Without the
     * hook never and no, which gives up the page that became idle first. */
    uint32_t (*next_use)(void *ctx, page_id id, bool *on_disk);
    void *ctx;
    struct kv_ring *ring; /* where events go */
};
void page_pool_hook(struct page_pool *p, const struct page_hooks *hooks); /* NULL: none */

/* An OPEN page with one reference, or PAGE_NONE when every page is referenced. Evicts an idle page if there
 * is no free one. */
page_id page_alloc(struct page_pool *p) MUST_CHECK;
/* The same of a page that takes one unit, because it is going to be small. Until then it may be written in full
 * only while a page that is allocated in full with it is not written at all. */
page_id page_alloc_small(struct page_pool *p) MUST_CHECK;
/* Ask next_use again for an idle page; nothing happens to another one. */
void page_replan(struct page_pool *p, page_id id);

void page_ref(struct page_pool *p, page_id id);
void page_unref(struct page_pool *p, page_id id);
/* OPEN -> SEALED; in_index says whether an index keeps it findable after the last unref. */
void page_seal(struct page_pool *p, page_id id, bool in_index);

/* The slice of a layer: slice_bytes, or small ones, aligned to 64. Writing is allowed while the page is OPEN. */
void *page_slice(struct page_pool *p, page_id id, int layer);
/* All slices, one after the other: page_bytes(). */
void *page_data(struct page_pool *p, page_id id);
size_t page_bytes(const struct page_pool *p, page_id id);
size_t page_pool_page_bytes(const struct page_pool *p); /* of a full page */
/* The OPEN page's data begins with its small form now: the rest is given up. */
void page_shrink(struct page_pool *p, page_id id);
bool page_is_small(const struct page_pool *p, page_id id);
/* Make the OPEN page `to` equal to `from`, all layers; both are full. Cost: the bytes of a page. */
void page_copy(struct page_pool *p, page_id to, page_id from);
int page_refs(const struct page_pool *p, page_id id);
bool page_is_sealed(const struct page_pool *p, page_id id);

void page_pool_stats(const struct page_pool *p, struct page_stats *out);
/* Sum of references, free + idle + used = total, no underflow. 0, or -ERR_BUG with the first difference. */
int page_pool_audit(const struct page_pool *p, int64_t expected_refs, struct err *e) MUST_CHECK;

#endif

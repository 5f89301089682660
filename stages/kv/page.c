/* The page store. Read the state diagram in page.h first.
 *
 * Invariants, checked by page_check() in asserts and by page_pool_audit():
 *   1. FREE:   refs = 0, not in the index, on the free stack.
 *   2. OPEN:   refs = 1, not in the index, on no list.
 *   3. SEALED: refs > 0: not in the idle set; refs = 0: in the index and in the idle set.
 *   4. used = units of pages with refs > 0, idle = units of the idle set, free = total - used - idle.
 *   5. The index knows a page exactly while the page is SEALED with in_index set; it is told before the
 *      page becomes FREE.
 *
 *   transition                 | function
 *   FREE -> OPEN               | page_alloc
 *   OPEN -> SEALED             | page_seal
 *   OPEN -> FREE               | page_unref
 *   SEALED -> SEALED, idle     | page_unref, in the index
 *   SEALED -> FREE             | page_unref, not in the index
 *   SEALED, idle -> SEALED     | page_ref
 *   SEALED, idle -> FREE       | evict, from page_alloc
 *
 * Each page has a place of full size in the reservation; one that is small uses the front of it. As a page takes a
 * unit at least, there are as many places as units.
 *
 * Memory: one reservation for all pages. A page costs memory once it is written, and none when it is FREE
 * again: its range goes back to the kernel (0.1 ms a page of 1.5 MB, and the kernel's zeroes when it is written
 * anew; computing its content takes 50 ms). So what the process holds is what is used and what is kept.
 * Debug builds fill a page with 0xff when it becomes FREE and when it is first allocated: as halves that is
 * NaN everywhere, so an attention kernel that reads a key nobody wrote is seen at once.
 */
#include "stages/kv/page.h"

#include "stages/base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum page_state { FREE, OPEN, SEALED };

struct page {
    int refs;
    uint8_t state; /* enum page_state */
    bool in_index, small;
    uint8_t units; /* what it takes of the pool, unless it is FREE */
    page_id next;  /* on the free stack */
};

struct page_pool {
    uint8_t *memory; /* [total][page_bytes] */
    size_t page_bytes, slice_bytes;
    size_t small_bytes, small_slice; /* 0: pages are never small */
    int total, n_layer;
    int fresh; /* pages from here on were never allocated; they are FREE but on no stack */
    page_id free_top;
    struct next_use *idle_set;
    struct page_hooks hooks;
    /* Read by page_pool_stats() from other threads. */
    atomic_int used, idle, peak_used;
    _Atomic int64_t allocs, evictions, underflows;
    struct page pages[];
};

int page_pool_new(struct page_pool **out, int n_pages, int n_layer, size_t slice_bytes,
                  struct err *e)
{
    assert(n_pages > 0 && n_layer > 0 && slice_bytes > 0);
    size_t slice, page_bytes, bytes;
    if (!size_add(slice_bytes, 63, &slice) ||
        !size_mul(slice & ~(size_t)63, (size_t)n_layer, &page_bytes) ||
        !size_mul(page_bytes, (size_t)n_pages, &bytes))
        return err_set(e, REACH_JOB, ERR_NOMEM,
                       "KV pool: %d pages are more than memory can address", n_pages);
    struct page_pool *p = mem_alloc(sizeof(*p) + (size_t)n_pages * sizeof(p->pages[0]));
    void *memory = p ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                     : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(p);
        return err_set(e, REACH_JOB, ERR_NOMEM, "KV pool: no memory for %d pages (%zu bytes)",
                       n_pages, bytes);
    }
    p->memory = memory;
    p->slice_bytes = slice & ~(size_t)63;
    p->page_bytes = page_bytes;
    p->total = n_pages;
    p->n_layer = n_layer;
    p->free_top = PAGE_NONE;
    p->idle_set = next_use_new(n_pages);
    *out = p;
    return 0;
}

void page_pool_free(struct page_pool *p)
{
    if (!p)
        return;
    munmap(p->memory, p->page_bytes * (size_t)p->total);
    next_use_free(p->idle_set);
    free(p);
}

void page_pool_hook(struct page_pool *p, const struct page_hooks *hooks)
{
    p->hooks = hooks ? *hooks : (struct page_hooks){0};
}

void page_pool_use_small(struct page_pool *p, size_t small_slice_bytes)
{
    assert(p->fresh == 0 && small_slice_bytes % 64 == 0);
    assert(small_slice_bytes < p->slice_bytes && 2 * small_slice_bytes >= p->slice_bytes);
    p->small_slice = small_slice_bytes;
    p->small_bytes = small_slice_bytes * (size_t)p->n_layer;
    /* Or the kernel might back with huge pages what was given up. */
    (void)madvise(p->memory, p->page_bytes * (size_t)p->total, MADV_NOHUGEPAGE);
}

int page_full_units(const struct page_pool *p)
{
    return p->small_bytes ? 2 : 1;
}

static void trace(const struct page_pool *p, enum kv_op op, page_id id)
{
    kv_trace(p->hooks.ring, op, KV_RAM, id, 0, page_bytes(p, id));
}

/* Invariants 1 to 3 of one page. */
static bool page_check(const struct page_pool *p, page_id id)
{
    if (id < 0 || id >= p->total)
        return false;
    const struct page *g = &p->pages[id];
    switch (g->state) {
    case FREE:
        return g->refs == 0 && !g->in_index;
    case OPEN:
        return g->refs == 1 && !g->in_index && id < p->fresh;
    default:
        return g->state == SEALED && g->refs >= 0 && (g->refs > 0 || g->in_index) &&
               id < p->fresh;
    }
}

static void *bytes_of(const struct page_pool *p, page_id id)
{
    return p->memory + (size_t)id * p->page_bytes;
}

static void fill_with_nan(struct page_pool *p, page_id id)
{
#ifdef NDEBUG
    (void)p;
    (void)id;
#else
    memset(bytes_of(p, id), 0xff, p->page_bytes);
#endif
}

/* What is behind the first `keep` bytes of its place. Whole pages of the kernel only; what is left at the ends belongs
 * to neighbours, too. */
static void give_back(struct page_pool *p, page_id id, size_t keep)
{
    uintptr_t kernel = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)bytes_of(p, id);
    uintptr_t begin = (at + keep + kernel - 1) & ~(kernel - 1),
              end = (at + p->page_bytes) & ~(kernel - 1);
    if (end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED); /* only advice */
}

static void plan_idle(struct page_pool *p, page_id id)
{
    bool on_disk = false;
    uint32_t next =
        p->hooks.next_use ? p->hooks.next_use(p->hooks.ctx, id, &on_disk) : NEXT_USE_NEVER;
    next_use_set(p->idle_set, id, next, on_disk);
}

static void leave_idle(struct page_pool *p, page_id id)
{
    next_use_remove(p->idle_set, id);
    p->idle -= p->pages[id].units;
}

void page_replan(struct page_pool *p, page_id id)
{
    if (next_use_has(p->idle_set, id))
        plan_idle(p, id);
}

static void release(struct page_pool *p, page_id id)
{
    struct page *g = &p->pages[id];
    give_back(p, id, 0);
    fill_with_nan(p, id);
    g->state = FREE;
    g->in_index = g->small = false;
    g->next = p->free_top;
    p->free_top = id;
    assert(page_check(p, id));
}

static void evict(struct page_pool *p, page_id id)
{
    trace(p, KV_EVICT, id);
    if (p->hooks.evict)
        p->hooks.evict(p->hooks.ctx, id);
    leave_idle(p, id);
    release(p, id);
    p->evictions++;
}

static page_id take_free(struct page_pool *p, int units)
{
    while (p->total - p->used - p->idle < units && next_use_count(p->idle_set) > 0)
        evict(p, next_use_pick(p->idle_set));
    if (p->total - p->used - p->idle < units)
        return PAGE_NONE;
    page_id id = p->free_top;
    if (id != PAGE_NONE) {
        p->free_top = p->pages[id].next;
        return id;
    }
    assert(p->fresh < p->total);
    fill_with_nan(p, p->fresh);
    return p->fresh++;
}

static void count_used(struct page_pool *p, int units)
{
    p->used += units;
    int used = p->used;
    if (used > p->peak_used)
        p->peak_used = used;
}

static page_id alloc(struct page_pool *p, int units)
{
    page_id id = take_free(p, units);
    if (id == PAGE_NONE)
        return PAGE_NONE;
    assert(p->pages[id].state == FREE && page_check(p, id));
    p->pages[id].state = OPEN;
    p->pages[id].refs = 1;
    p->pages[id].units = (uint8_t)units;
    p->allocs++;
    count_used(p, units);
    trace(p, KV_ALLOC, id);
    assert(page_check(p, id));
    return id;
}

page_id page_alloc(struct page_pool *p)
{
    return alloc(p, page_full_units(p));
}

page_id page_alloc_small(struct page_pool *p)
{
    return alloc(p, 1);
}

void page_shrink(struct page_pool *p, page_id id)
{
    struct page *g = &p->pages[id];
    assert(page_check(p, id) && g->state == OPEN && p->small_bytes && !g->small);
    p->used -= g->units - 1;
    g->units = 1;
    g->small = true;
    give_back(p, id, p->small_bytes);
}

bool page_is_small(const struct page_pool *p, page_id id)
{
    assert(page_check(p, id));
    return p->pages[id].small;
}

void page_ref(struct page_pool *p, page_id id)
{
    assert(page_check(p, id) && p->pages[id].state == SEALED);
    struct page *g = &p->pages[id];
    if (g->refs++ == 0) {
        leave_idle(p, id);
        count_used(p, g->units);
    }
    trace(p, KV_REF, id);
}

void page_unref(struct page_pool *p, page_id id)
{
    assert(page_check(p, id));
    struct page *g = &p->pages[id];
    if (g->refs == 0) {
        p->underflows++;
        assert(0 && "page_unref() of a page without references");
        return;
    }
    trace(p, KV_UNREF, id);
    if (--g->refs > 0)
        return;
    p->used -= g->units;
    if (g->in_index) {
        p->idle += g->units;
        plan_idle(p, id);
    } else {
        trace(p, KV_FREE, id);
        release(p, id);
    }
    assert(page_check(p, id));
}

void page_seal(struct page_pool *p, page_id id, bool in_index)
{
    assert(page_check(p, id) && p->pages[id].state == OPEN);
    p->pages[id].state = SEALED;
    p->pages[id].in_index = in_index;
    assert(page_check(p, id));
}

void *page_slice(struct page_pool *p, page_id id, int layer)
{
    assert(page_check(p, id) && p->pages[id].state != FREE);
    assert(layer >= 0 && layer < p->n_layer);
    size_t slice = p->pages[id].small ? p->small_slice : p->slice_bytes;
    return (uint8_t *)bytes_of(p, id) + (size_t)layer * slice;
}

void *page_data(struct page_pool *p, page_id id)
{
    assert(page_check(p, id) && p->pages[id].state != FREE);
    return bytes_of(p, id);
}

size_t page_bytes(const struct page_pool *p, page_id id)
{
    return p->pages[id].small ? p->small_bytes : p->page_bytes;
}

size_t page_pool_page_bytes(const struct page_pool *p)
{
    return p->page_bytes;
}

void page_copy(struct page_pool *p, page_id to, page_id from)
{
    assert(page_check(p, to) && page_check(p, from) && p->pages[to].state == OPEN);
    assert(!p->pages[to].small && !p->pages[from].small);
    memcpy(bytes_of(p, to), bytes_of(p, from), p->page_bytes);
}

int page_refs(const struct page_pool *p, page_id id)
{
    assert(page_check(p, id));
    return p->pages[id].refs;
}

bool page_is_sealed(const struct page_pool *p, page_id id)
{
    assert(page_check(p, id));
    return p->pages[id].state == SEALED;
}

void page_pool_stats(const struct page_pool *p, struct page_stats *out)
{
    *out = (struct page_stats){.total = p->total,
                               .used = p->used,
                               .idle = p->idle,
                               .peak_used = p->peak_used,
                               .allocs = p->allocs,
                               .evictions = p->evictions,
                               .underflows = p->underflows};
}

static int broken(struct err *e, const char *what, int64_t found, int64_t expected)
{
    return err_set(e, REACH_JOB, ERR_BUG, "KV pool: %s: %" PRId64 ", expected %" PRId64, what,
                   found, expected);
}

int page_pool_audit(const struct page_pool *p, int64_t expected_refs, struct err *e)
{
    int64_t refs = 0;
    int used = 0, idle = 0, idle_pages = 0, unused = 0;
    for (page_id id = 0; id < p->total; id++) {
        const struct page *g = &p->pages[id];
        if (!page_check(p, id))
            return err_set(e, REACH_JOB, ERR_BUG, "KV pool: page %d is in no valid state", id);
        refs += g->refs;
        used += g->refs > 0 ? g->units : 0;
        idle += g->state == SEALED && g->refs == 0 ? g->units : 0;
        idle_pages += g->state == SEALED && g->refs == 0;
        unused += g->state == FREE;
    }
    int listed_free = p->total - p->fresh, listed_idle = next_use_count(p->idle_set);
    for (page_id id = p->free_top; id != PAGE_NONE && listed_free <= p->total;
         id = p->pages[id].next)
        listed_free++;
    if (p->underflows)
        return broken(e, "reference underflows", p->underflows, 0);
    if (refs != expected_refs)
        return broken(e, "references", refs, expected_refs);
    if (used != p->used)
        return broken(e, "units counted as used", p->used, used);
    if (idle != p->idle)
        return broken(e, "units counted as idle", p->idle, idle);
    if (idle_pages != listed_idle)
        return broken(e, "pages in the idle set", listed_idle, idle_pages);
    if (used + idle > p->total)
        return broken(e, "units in use", used + idle, p->total);
    if (unused != listed_free)
        return broken(e, "pages on the free stack", listed_free, unused);
    return 0;
}

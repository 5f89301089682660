/* A binary heap whose top is the page to give up, and for each page its place in the heap, so that a page in
 * the middle can be changed or removed.
 *
 *     heap[0] is the top; heap[i] goes before heap[2i+1] and heap[2i+2];   heap[place[page]].page == page
 */
#include "stages/kv/next_use.h"

#include "stages/base/mem.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

struct item {
    uint64_t since; /* number of the insertion: smaller is longer in the set */
    uint32_t request;
    int32_t page;
    bool clean;
};

struct next_use {
    int n, n_pages;
    uint64_t insertions;
    struct item *heap; /* [n] of n_pages */
    int32_t *place;    /* [n_pages]; -1: not in the set */
};

struct next_use *next_use_new(int n_pages)
{
    assert(n_pages >= 0);
    struct next_use *u = mem_need(sizeof(*u));
    u->n_pages = n_pages;
    u->heap = mem_need((size_t)n_pages * sizeof(*u->heap));
    u->place = mem_need((size_t)n_pages * sizeof(*u->place));
    for (int i = 0; i < n_pages; i++)
        u->place[i] = -1;
    return u;
}

void next_use_free(struct next_use *u)
{
    if (!u)
        return;
    free(u->heap);
    free(u->place);
    free(u);
}

/* NEXT_USE_NEVER is the greatest number, so these pages come first by themselves. Whether they are clean does
 * not matter: what is not used again need not be written. */
static bool goes_before(const struct item *a, const struct item *b)
{
    if (a->request != b->request)
        return a->request > b->request;
    if (a->request != NEXT_USE_NEVER && a->clean != b->clean)
        return a->clean;
    return a->since < b->since;
}

static void put(struct next_use *u, int at, struct item item)
{
    u->heap[at] = item;
    u->place[item.page] = at;
}

/* Place item at `at` or, so that the order holds, above or below it. heap[at] is a hole. */
static void settle(struct next_use *u, int at, struct item item)
{
    while (at > 0 && goes_before(&item, &u->heap[(at - 1) / 2])) {
        put(u, at, u->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (int child; (child = 2 * at + 1) < u->n; at = child) {
        if (child + 1 < u->n && goes_before(&u->heap[child + 1], &u->heap[child]))
            child++;
        if (!goes_before(&u->heap[child], &item))
            break;
        put(u, at, u->heap[child]);
    }
    put(u, at, item);
}

void next_use_set(struct next_use *u, int page, uint32_t request, bool clean)
{
    assert(page >= 0 && page < u->n_pages);
    int at = u->place[page];
    struct item item = {.request = request, .page = page, .clean = clean};
    item.since = at >= 0 ? u->heap[at].since : u->insertions++;
    settle(u, at >= 0 ? at : u->n++, item);
}

void next_use_remove(struct next_use *u, int page)
{
    assert(page >= 0 && page < u->n_pages);
    int at = u->place[page];
    if (at < 0)
        return;
    u->place[page] = -1;
    struct item last = u->heap[--u->n];
    if (at < u->n)
        settle(u, at, last);
}

int next_use_pick(const struct next_use *u)
{
    return u->n > 0 ? u->heap[0].page : -1;
}

int next_use_count(const struct next_use *u)
{
    return u->n;
}

bool next_use_has(const struct next_use *u, int page)
{
    assert(page >= 0 && page < u->n_pages);
    return u->place[page] >= 0;
}

#include "stages/kv/block_table.h"

#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct block_table *block_table_new(struct page_pool *pool)
{
    struct block_table *t = mem_need(sizeof(*t));
    t->pool = pool;
    return t;
}

void block_table_free(struct block_table *t)
{
    if (!t)
        return;
    /* Last page first: of a chain that becomes idle, the end is then the oldest and is evicted first, so
     * that what is left of the chain can still be found from its start. */
    while (t->n_pages > 0)
        page_unref(t->pool, t->pages[--t->n_pages]);
    free(t->pages);
    free(t);
}

void block_table_append(struct block_table *t, page_id id)
{
    if (t->n_pages == t->cap) {
        int cap = t->cap ? 2 * t->cap : 16;
        page_id *pages = mem_need((size_t)cap * sizeof(*pages));
        if (t->n_pages)
            memcpy(pages, t->pages, (size_t)t->n_pages * sizeof(*pages));
        free(t->pages);
        t->pages = pages;
        t->cap = cap;
    }
    t->pages[t->n_pages++] = id;
}

static int reserve(struct block_table *t, int n_tokens, page_id (*alloc)(struct page_pool *p),
                   struct err *e)
{
    int need = n_tokens / PAGE_TOKENS + (n_tokens % PAGE_TOKENS != 0);
    while (t->n_pages < need) {
        page_id id = alloc(t->pool);
        if (id == PAGE_NONE) {
            struct page_stats s;
            page_pool_stats(t->pool, &s);
            return err_set(e, REACH_DOC, ERR_NOMEM, "all %d KV pages are in use", s.total);
        }
        block_table_append(t, id);
    }
    return 0;
}

int block_table_reserve(struct block_table *t, int n_tokens, struct err *e)
{
    return reserve(t, n_tokens, page_alloc, e);
}

int block_table_reserve_small(struct block_table *t, int n_tokens, struct err *e)
{
    return reserve(t, n_tokens, page_alloc_small, e);
}

int block_table_slices(const struct block_table *t, int layer, void **out)
{
    int small = 0;
    for (int i = 0; i < t->n_pages; i++) {
        out[i] = page_slice(t->pool, t->pages[i], layer);
        small += page_is_small(t->pool, t->pages[i]);
    }
    return small;
}

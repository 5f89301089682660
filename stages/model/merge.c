#include "stages/model/merge.h"

#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>

int merger_start(struct merger *m, size_t n, struct err *e)
{
    m->n = m->n_heap = 0;
    if (n <= m->cap)
        return 0;
    size_t cap = n < 64 ? 64 : n + n / 4;
    /* Nothing in them is worth copying. */
    free(m->symbols);
    free(m->heap);
    m->cap = 0;
    m->symbols = mem_resize(NULL, cap * sizeof(*m->symbols));
    m->heap = mem_resize(NULL, 2 * cap * sizeof(*m->heap));
    if (!m->symbols || !m->heap)
        return err_set(e, REACH_DOC, ERR_NOMEM,
                       "no memory to tokenize a word of %zu characters", n);
    m->cap = cap;
    return 0;
}

void merger_release(struct merger *m)
{
    free(m->symbols);
    free(m->heap);
    *m = (struct merger){0};
}

void merger_add(struct merger *m, size_t at, size_t len, int32_t id)
{
    int32_t i = (int32_t)m->n;
    assert(m->n < m->cap);
    m->symbols[m->n++] = (struct symbol){(uint32_t)at, (uint32_t)len, i - 1, -1, id};
    if (i > 0)
        m->symbols[i - 1].next = i;
}

static void sift_down(struct candidate *heap, size_t n, size_t i)
{
    struct candidate c = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order)
            child++;
        if (heap[child].order >= c.order)
            break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

static void push(struct merger *m, struct candidate c)
{
    size_t i = m->n_heap++;
    assert(i < 2 * m->cap);
    while (i > 0 && m->heap[(i - 1) / 2].order > c.order) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = c;
}

static struct candidate pop(struct merger *m)
{
    struct candidate best = m->heap[0];
    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap > 0)
        sift_down(m->heap, m->n_heap, 0);
    return best;
}

/* The candidate of symbol left and its right neighbour. */
static bool propose(const struct merger *m, const struct vocab *v, const char *text,
                    merge_find_fn *find, int32_t left, struct candidate *c)
{
    uint32_t rank;
    if (left < 0 || m->symbols[left].next < 0)
        return false;
    const struct symbol *l = &m->symbols[left], *r = &m->symbols[l->next];
    if (!find(v, text, l, r, &rank, &c->id))
        return false;
    c->order = (uint64_t)rank << 32 | (uint32_t)left;
    c->len = l->len + r->len;
    return true;
}

void merger_run(struct merger *m, const struct vocab *v, const char *text, merge_find_fn *find)
{
    struct candidate c;
    for (size_t i = 0; i + 1 < m->n; i++)
        if (propose(m, v, text, find, (int32_t)i, &c))
            m->heap[m->n_heap++] = c;
    for (size_t i = m->n_heap / 2; i-- > 0;)
        sift_down(m->heap, m->n_heap, i);
    while (m->n_heap > 0) {
        struct candidate best = pop(m);
        int32_t left = (int32_t)(uint32_t)best.order;
        struct symbol *l = &m->symbols[left];
        if (l->len == 0 || l->next < 0)
            continue;
        /* Symbols only grow, so equal length means that neither of the two has changed. */
        struct symbol *r = &m->symbols[l->next];
        if (l->len + r->len != best.len)
            continue;
        l->len = best.len;
        l->id = best.id;
        l->next = r->next;
        r->len = 0;
        if (l->next >= 0)
            m->symbols[l->next].prev = left;
        if (propose(m, v, text, find, l->prev, &c))
            push(m, c);
        if (propose(m, v, text, find, left, &c))
            push(m, c);
    }
}

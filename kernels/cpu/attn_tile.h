/* kernels/cpu/attn_tile.h - attention cut into tiles, for tables that compute a tile at a time.
 *
 * What:   a tile is some heads of one kv head times some rows: they read the same K and V. Here is which tiles a call
 *         has, their scratch, and how rows come into it and leave it. Scores of a page are [rows][64], one lane per key;
 *         outputs [rows][head_dim], one lane per channel: so every sum runs in the contract's order. Keys that a
 *         row does not see have a weight of +0 and are multiplied all the same, and a page that no row of
 *         the tile sees is skipped: both leave the bytes as they are (see attn_ref.c).
 */
#ifndef QUIRE_KERNELS_CPU_ATTN_TILE_H
#define QUIRE_KERNELS_CPU_ATTN_TILE_H

#include "kernels/cpu/kv_slice.h"
#include "kernels/cpu/scratch.h"

#include <string.h>

enum { PAGE = KERN_PAGE_TOKENS };

/* Rows [first, end) of a call, heads [head, head + n_heads) that share a kv head. */
struct attn_tile {
    const struct kern_attn_rows *call;
    int first, end, head, n_heads, kv_head, head_dim;
};

/* Scratch of a tile: row i of it is row first + i / n_heads of the call, head head + i % n_heads. */
struct tile_mem {
    float *q, *out, *scores, *keys, *values, *max, *sum;
};

static inline struct tile_mem tile_mem_at(float *scratch, int rows, int head_dim)
{
    size_t n = (size_t)rows, d = (size_t)head_dim;
    struct tile_mem m = {.keys = scratch};
    m.values = m.keys + PAGE * d;
    m.q = m.values + PAGE * d;
    m.out = m.q + n * d;
    m.scores = m.out + n * d;
    m.max = m.scores + n * PAGE;
    m.sum = m.max + n;
    return m;
}

static inline int tile_rows(const struct attn_tile *t)
{
    return (t->end - t->first) * t->n_heads;
}

static inline void tile_begin(const struct attn_tile *t, const struct tile_mem *m)
{
    size_t d = (size_t)t->head_dim, n = (size_t)t->n_heads * d;
    int rows = tile_rows(t);
    const struct kern_attn_rows *call = t->call;
    for (int r = t->first; r < t->end; r++)
        memcpy(m->q + (size_t)(r - t->first) * n,
               call->q + (size_t)r * call->ld_q + (size_t)t->head * d, n * sizeof(float));
    memset(m->out, 0, (size_t)rows * d * sizeof(float));
    for (int i = 0; i < rows; i++) {
        m->max[i] = ATTN_LOWEST;
        m->sum[i] = 0.0f;
    }
}

static inline void tile_end(const struct attn_tile *t, const struct tile_mem *m)
{
    size_t d = (size_t)t->head_dim, n = (size_t)t->n_heads * d;
    const struct kern_attn_rows *call = t->call;
    for (int r = t->first; r < t->end; r++)
        memcpy(call->out + (size_t)r * call->ld_out + (size_t)t->head * d,
               m->out + (size_t)(r - t->first) * n, n * sizeof(float));
}

/* What some rows of a tile see of a page. */
struct page_view {
    int begin[6],
        end[6];  /* keys of the page, per row; outside [0, 64) where it sees less or more */
    int written; /* values from here on were never written: no number at all */
    bool any;
};

static inline struct page_view page_seen(const struct attn_tile *t, int i, int rows, int page)
{
    struct page_view v = {.written = 0};
    for (int r = 0; r < rows; r++) {
        struct key_range keys = visible_keys(t->call, t->first + (i + r) / t->n_heads);
        v.begin[r] = keys.begin - page * PAGE;
        v.end[r] = keys.end - page * PAGE;
        v.written = v.end[r] > v.written ? v.end[r] : v.written;
        v.any |= v.begin[r] < PAGE && v.end[r] > 0;
    }
    v.written = v.written < PAGE ? v.written : PAGE;
    return v;
}

/* Work in equal pieces: tiles of `positions` rows by `n_heads` heads. */
struct attn_plan {
    const struct kern_attn_rows *calls;
    int n_calls, group, n_heads, positions, parts, n_kv_head, head_dim;
};

static inline int tiles_of(const struct attn_plan *p, const struct kern_attn_rows *call)
{
    return (call->rows + p->positions - 1) / p->positions * p->n_kv_head * p->parts;
}

static inline struct attn_tile tile_at(const struct attn_plan *p, int i)
{
    const struct kern_attn_rows *call = p->calls;
    for (; i >= tiles_of(p, call); call++)
        i -= tiles_of(p, call);
    int heads = p->n_kv_head * p->parts, part = i % heads % p->parts;
    /* the last rows first: they see the most keys, and short pieces even out the end */
    int first = ((call->rows - 1) / p->positions - i / heads) * p->positions;
    struct attn_tile t = {
        .call = call, .first = first, .kv_head = i % heads / p->parts, .head_dim = p->head_dim};
    t.end = call->rows - first < p->positions ? call->rows : first + p->positions;
    t.head = t.kv_head * p->group + part * p->n_heads;
    t.n_heads =
        p->group - part * p->n_heads < p->n_heads ? p->group - part * p->n_heads : p->n_heads;
    return t;
}

/* Returns the number of tiles. */
static inline int attn_plan_make(struct attn_plan *p, const struct kern_attn_rows *calls,
                                 int n_calls, int n_head, int n_kv_head, int head_dim,
                                 int threads)
{
    int group = n_head / n_kv_head, total = 0;
    *p = (struct attn_plan){calls, n_calls,   group,   group, attn_tile_positions(group),
                            1,     n_kv_head, head_dim};
    for (int i = 0; i < n_calls; i++)
        total += tiles_of(p, &calls[i]);
    if (total <
        threads) { /* split the heads of a group: they read K and V again, but from cache */
        int parts = (threads + total - 1) / total;
        p->n_heads = (group + parts - 1) / parts;
        p->parts = (group + p->n_heads - 1) / p->n_heads;
        total *= p->parts;
    }
    return total;
}

#endif

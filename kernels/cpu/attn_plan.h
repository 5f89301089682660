/* kernels/cpu/attn_plan.h - attention cut into tiles: which rows are worked on together.
 *
 * What:   a tile is some rows, by some heads that share a kv head. Rows of one sequence read the same keys and values, and
 *         so do those of sequences with a common prefix, as far as it goes: their slices have equal addresses. Calls are
 *         put into an order in which those that share most are neighbours, and neighbours that share enough
 *         pages to be worth it are one bundle: one list of rows, cut into tiles.
 * Not:    no arithmetic. The plan decides speed alone: a row's bytes do not depend on its tile, and who works on a
 *         tile compares addresses page by page.
 * Rules:  1. Every row and head is in one tile.  2. Tiles of a bundle differ by one row at most.  3. Among few
 *         tiles, each is cut further when that lets the threads finish sooner.
 */
#ifndef QUIRE_KERNELS_CPU_ATTN_PLAN_H
#define QUIRE_KERNELS_CPU_ATTN_PLAN_H

#include "kernels/kernels.h"

enum {
    ATTN_TILE_ROWS = 96, /* rows times heads of a tile, at most */
    ATTN_CALLS = 64,     /* calls of one plan, at most */
    ATTN_GROUP = 6,      /* rows that a product takes at once */
    ATTN_FEW = 12, /* rows that read halves as they are; for more a page is widened first */
};

struct attn_bundle {
    int first, end; /* calls: places in `order` */
    int rows;       /* of all its calls */
};

struct attn_plan {
    const struct kern_attn_rows *calls;
    int order[ATTN_CALLS];
    struct attn_bundle bundles[ATTN_CALLS];
    int n_bundles, n_tiles;
    int n_kv_head, group;
    int rows, heads; /* of a tile, at most */
};

/* n_calls <= ATTN_CALLS; they must outlive the plan. */
void attn_plan_make(struct attn_plan *p, const struct kern_attn_rows *calls, int n_calls,
                    int n_head, int n_kv_head, int threads);

struct attn_tile {
    int kv_head, head, n_heads, n_rows;
    struct attn_row {
        const struct kern_attn_rows *call;
        int row;
    } rows[ATTN_TILE_ROWS];
};

/* Tile i of n_tiles. Of a bundle a kv head comes after the other, so that its pages may still be in a cache for its next tile;
 * and of these the last rows first: they see the most keys, and short tiles even out the end. */
void attn_plan_tile(const struct attn_plan *p, int i, struct attn_tile *t);

/* Pages that two calls both see and share, from the first that either sees on. */
int attn_shared_pages(const struct kern_attn_rows *a, const struct kern_attn_rows *b);

#endif

/* kernels/cpu/attn_tiles.h - attention a tile at a time, for tables that bring the vector operations.
 *
 * What:   a tile (attn_plan.h) goes through its pages in rising order. Those of its rows that see a page at one address are
 *         a run: scores for all of them, weights, weighted values. Scores of a page are [rows][64], one lane per
 *         key; outputs [rows][head_dim], one lane per channel: so every sum runs in the contract's order. Keys
 *         that a row does not see have a weight of +0 and may be multiplied all the same: the bytes stay
 *         (see attn_ref.c).
 *         Many rows have a page widened to floats first, in squares of 64 keys by up to 64 channels: one is read from the
 *         first-level cache by all rows before the next is made. Few rows read the page as it is, and ask
 *         for the next page meanwhile. Scales of a page in 8 bits go into the rows, a few at a time: into queries, and into
 *         weights once they are summed up.
 */
#ifndef QUIRE_KERNELS_CPU_ATTN_TILES_H
#define QUIRE_KERNELS_CPU_ATTN_TILES_H

#include "kernels/cpu/attn_plan.h"
#include "kernels/cpu/kv_slice.h"

enum {
    ATTN_SQUARE =
        64, /* channels, at most: head_dim is cut into squares as equal as steps of 16 allow */
};

/* Keys of the page that a row sees; outside [0, 64) where it sees less or more. */
struct attn_view {
    int begin, end;
};

/* A matrix times some rows, 16 to 64 lanes wide: c[r][lane] = start + sum_k a[r][k] * w(k, lane), k rising from 0.
 * Rows of a and c are ATTN_SQUARE floats apart. */
struct attn_product {
    enum attn_matrix { /* where w(k, lane) is: attn_matrix_at() */
                       ATTN_FLOATS,
                       ATTN_KEYS,   /* of a page: halves, lanes are keys */
                       ATTN_VALUES, /* k are keys */
                       ATTN_BYTES, /* keys or values of a page in 8 bits, without their scales */
    } kind;
    const void *w;
    size_t ld;
    int n, lanes; /* of k; a multiple of 16 */
    const float *a;
    /* Halves of k: a[r][k] times this; NULL: a as it is. Both are read up to a multiple of 16. */
    const uint16_t *scales;
    float *c;
    bool go_on;          /* start is c[r], else +0 */
    const float *shrink; /* times this of the row; NULL: not */

    /* Where lanes are keys: those that no row of a part sees may be left out. NULL: all are seen. */
    const struct attn_view *seen;

    const char *ahead; /* what is read next, n*lanes of the same kind; NULL: nothing */
    int ask_from,
        ask_to; /* of it, 64 values are asked for with each k while so many of n are left */
};

/* Bytes from w to vector v (16 lanes) of row k. */
static inline size_t attn_matrix_at(enum attn_matrix kind, size_t ld, size_t k, size_t v)
{
    return kind == ATTN_FLOATS  ? (k * ATTN_SQUARE + v * 16) * sizeof(float)
           : kind == ATTN_KEYS  ? (k * 16 + v * ld) * sizeof(uint16_t)
           : kind == ATTN_BYTES ? k * ld + v * 16
                                : (k * ld + v * 16) * sizeof(uint16_t);
}

/* Bytes of 64 values. */
static inline size_t attn_ask_bytes(enum attn_matrix kind)
{
    return kind == ATTN_BYTES ? 64 : 128;
}

/* The lanes from vector v on. */
static inline void attn_skip_lanes(struct attn_product *p, int v)
{
    p->w = (const char *)p->w + attn_matrix_at(p->kind, p->ld, 0, (size_t)v);
    p->c += 16 * v;
    p->lanes -= 16 * v;
}

/* Part i of n: some rows, ATTN_GROUP at most, of the keys that one of them sees. Returns how many rows. */
int attn_part(struct attn_product *part, const struct attn_product *all, int rows, int i,
              int n);

/* Part i of the n parts that a product is done in asks for its share of what is read next: a burst of requests
 * would have all else wait. */
static inline void attn_ask(struct attn_product *p, int i, int n)
{
    int all = p->ahead ? p->n * p->lanes / ATTN_SQUARE : 0;
    p->ask_from = p->n - all * i / n;
    p->ask_to = p->n - all * (i + 1) / n;
}

struct attn_ops {
    void (*multiply)(const struct attn_product *p, int rows);
    /* Scores s[rows][64] become weights, +0 for keys that are not seen (seen NULL: all are). max and sum go on by a
     * page, shrink is what older sums shrink by: [rows]. */
    void (*weigh)(float *s, int rows, const struct attn_view *seen, float *max, float *sum,
                  float *shrink);
    /* to = from * by + 0, n values. */
    void (*scale)(float *to, const float *from, float by, int n);
    /* The matrix of a product in a page (all but its kind, w, ld, n and lanes is ignored) as ATTN_FLOATS. */
    void (*widen)(float *out, const struct attn_product *p);
};

/* kern_attn_fn; head_dim is a multiple of 16. */
void attn_tiles(const struct attn_ops *ops, const struct kern_attn_rows *calls, int n_calls,
                int n_head, int n_kv_head, int head_dim, void *scratch);
size_t attn_thread_floats(int head_dim);

#endif

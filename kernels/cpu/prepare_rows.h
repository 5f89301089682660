/* kernels/cpu/prepare_rows.h - inputs in groups of rows, for tables that quantise a block at a time.
 *
 * What:   the way of a group: which rows and blocks it has, and what becomes of a row that is not finite; and the way of
 *         a row's remainder. A table gives the functions that do the arithmetic; they are inlined.
 */
#ifndef QUIRE_KERNELS_CPU_PREPARE_ROWS_H
#define QUIRE_KERNELS_CPU_PREPARE_ROWS_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/input.h"
#include "kernels/cpu/share_rows.h"

#include <string.h>

/* Are all of x[n] finite? */
typedef bool finite_fn(const float *x, int n);
/* Row r of a group, block of the n values that are left (n <= 0: none, which gives zeros). */
typedef void prepare_block_fn(struct input_block *out, int r, const float *x, int n);

/* What quantising leaves of the block of the n values that are left (n < 32: the last). */
typedef void remainder_block_fn(float *out, const float *x, int n);

struct preparation {
    struct kern_input *in;
    uint8_t *bad;
    void (*group)(const struct preparation *p, int g); /* a table's prepare_group() */
};

/* Group g of the rows: ROW_GROUP of them, or those that are left. */
static inline __attribute__((always_inline)) void prepare_group(const struct preparation *p,
                                                                int g, finite_fn *all_finite,
                                                                prepare_block_fn *prepare_block)
{
    const struct kern_input *in = p->in;
    int k = in->k, n_blocks = input_blocks(k), first = g * ROW_GROUP;
    struct input_block *blocks = (struct input_block *)in->mem + (size_t)g * (size_t)n_blocks;
    int rows = in->rows - first < ROW_GROUP ? in->rows - first : ROW_GROUP;
    if (rows < ROW_GROUP)
        memset(blocks, 0, (size_t)n_blocks * sizeof *blocks);
    for (int r = 0; r < rows; r++) {
        const float *x = in->x + (size_t)(first + r) * (size_t)k;
        bool ok = all_finite(x, k);
        if (!ok)
            p->bad[first + r] = 1;
        for (int b = 0; b < n_blocks; b++)
            prepare_block(blocks + b, r, x + 32 * b, !ok ? 0 : k - 32 * b);
    }
}

/* A row_fn but for what the table gives. */
static inline __attribute__((always_inline)) void
prepare_remainder(float *out, const float *x, int n, finite_fn *all_finite,
                  remainder_block_fn *remainder_block)
{
    if (!all_finite(x, n))
        memset(out, 0, (size_t)n * sizeof *out);
    else
        for (int i = 0; i < n; i += 32)
            remainder_block(out + i, x + i, n - i);
}

static inline void prepare_some_groups(void *arg, int begin, int end, int thread)
{
    const struct preparation *p = arg;
    (void)thread;
    for (int g = begin; g < end; g++)
        p->group(p, g);
}

static inline void prepare_all(struct preparation p)
{
    share_rows(input_groups(p.in->rows), ROW_GROUP * p.in->k, prepare_some_groups, &p);
}

#endif

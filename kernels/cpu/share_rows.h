/* kernels/cpu/share_rows.h - ops over rows, shared out over the team of the calling thread. */
#ifndef QUIRE_KERNELS_CPU_SHARE_ROWS_H
#define QUIRE_KERNELS_CPU_SHARE_ROWS_H

#include "kernels/team.h"

#include <stddef.h>

/* fn over rows of `values` values each. Handing out takes about a microsecond: fewer values than that many
 * are done sooner by the caller. */
void share_rows(int rows, int values, team_part_fn *fn, void *arg);

/* One row: out[n] from x[n], y[n] and c, as far as the op has them. out may be x. */
typedef void row_fn(float *out, const float *x, const float *y, int n, float c);

/* Rows that are ld, ld_x and ld_y values apart; with 0 all rows meet the same one. */
struct row_op {
    row_fn *row;
    float *out;
    const float *x, *y;
    size_t ld, ld_x, ld_y;
    int n;
    float c;
};

void share_op(const struct row_op *op, int rows);

#endif

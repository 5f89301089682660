/* kernels/cpu/share_rows.h - ops over rows, shared out over the team of the calling thread. */
#ifndef QUIRE_KERNELS_CPU_SHARE_ROWS_H
#define QUIRE_KERNELS_CPU_SHARE_ROWS_H

#include "kernels/team.h"

#include <stddef.h>

/* What an op over rows is called with: where it writes and reads, and how far rows are apart, n values each. */
struct row_op {
    float *out;
    const float *x, *y;
    size_t ld, ld_x, ld_y;
    int n;
    float c;
};

/* fn over rows of `values` values each. Handing out takes about a microsecond: fewer values than that many
 * are done sooner by the caller. */
static inline void share_rows(int rows, int values, team_part_fn *fn, void *arg)
{
    enum { WORTH_SHARING = 1 << 13, PARTS_EACH = 4 };
    int parts = (size_t)rows * (size_t)values < WORTH_SHARING ? 1 : PARTS_EACH * team_threads();
    team_run(rows, (rows + parts - 1) / parts, fn, arg);
}

#endif

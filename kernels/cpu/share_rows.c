#include "kernels/cpu/share_rows.h"

void share_rows(int rows, int values, team_part_fn *fn, void *arg)
{
    enum { WORTH_SHARING = 1 << 13, PARTS_EACH = 4 };
    int parts = (size_t)rows * (size_t)values < WORTH_SHARING ? 1 : PARTS_EACH * team_threads();
    team_run(rows, (rows + parts - 1) / parts, fn, arg);
}

static void some_rows(void *arg, int begin, int end, int thread)
{
    const struct row_op *op = arg;
    (void)thread;
    for (size_t row = (size_t)begin; row < (size_t)end; row++)
        op->row(op->out + row * op->ld, op->x + row * op->ld_x, op->y + row * op->ld_y, op->n,
                op->c);
}

void share_op(const struct row_op *op, int rows)
{
    struct row_op copy = *op; /* parts take an argument that they might change */
    share_rows(rows, op->n, some_rows, &copy);
}

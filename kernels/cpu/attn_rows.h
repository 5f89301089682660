/* kernels/cpu/attn_rows.h - attention a row and a head at a time, for tables that share no reads. */
#ifndef QUIRE_KERNELS_CPU_ATTN_ROWS_H
#define QUIRE_KERNELS_CPU_ATTN_ROWS_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_slice.h"

/* One row of one head: m is the greatest score so far, l the sum of weights. */
struct attn_running {
    float m, l;
};

/* Score, weigh and add the keys [begin, end) of one page to out[head_dim], which weighs `run`. */
typedef void attn_page_fn(struct attn_running *run, float *out, const float *q,
                          const struct kv_part *kv, int begin, int end, int head_dim);

/* kern_attn_fn, but for what the table gives. */
void attn_by_rows(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
                  int head_dim, attn_page_fn *add_page);

#endif

/* kernels/cpu/kv_slice.h - where keys and values lie in one layer's slice of a page.
 *
 * What:   per kv head 64*head_dim halves of K as [4][head_dim][16], then as many of V as [64][head_dim].
 *         K is turned so that 16 keys of one channel are side by side: a score is a lane.
 */
#ifndef QUIRE_KERNELS_CPU_KV_SLICE_H
#define QUIRE_KERNELS_CPU_KV_SLICE_H

#include "kernels/kernels.h"

static inline size_t page_head_at(int kv_head, int head_dim)
{
    return (size_t)kv_head * 2 * KERN_PAGE_TOKENS * (size_t)head_dim;
}

/* Within a head's part: channel c of key j, and of value j. */
static inline size_t page_key_at(int j, int c, int head_dim)
{
    return ((size_t)(j / 16) * (size_t)head_dim + (size_t)c) * 16 + (size_t)(j % 16);
}

static inline size_t page_value_at(int j, int c, int head_dim)
{
    return ((size_t)KERN_PAGE_TOKENS + (size_t)j) * (size_t)head_dim + (size_t)c;
}

/* The keys that one row sees: [begin, end). */
struct key_range {
    int begin, end;
};

static inline struct key_range visible_keys(const struct kern_attn_rows *call, int row)
{
    int end = call->pos + row + 1;
    int begin = call->window > 0 && end > call->window ? end - call->window : 0;
    return (struct key_range){begin, end};
}

/* Before the first key a row's maximum is this: exp(score - it) is 0 only for keys that are not there. */
#define ATTN_LOWEST (-0x1p100f)

#endif

/* kernels/cpu/kv_slice.h - where keys and values lie in one layer's slice of a page.
 *
 * What:   per kv head 64*head_dim halves of K as [4][head_dim][16], then as many of V as [64][head_dim].
 *         K is turned so that 16 keys of one channel are side by side: a score is a lane.
 *         In 8 bits: int8 of K as [head_dim][64], of V as [64][head_dim], then half scales of K [head_dim] and of V [64].
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

/* Bytes of a head's part in 8 bits. */
static inline size_t q8_head_bytes(int head_dim)
{
    size_t d = (size_t)head_dim, n = 2 * KERN_PAGE_TOKENS * d + 2 * (d + KERN_PAGE_TOKENS);
    return (n + 63) / 64 * 64;
}

/* One kv head's keys and values in a page. */
struct kv_part {
    const void *keys, *values;
    const uint16_t *key_scales, *value_scales; /* NULL: they are halves */
};

static inline struct kv_part f16_part(const void *slice, int kv_head, int head_dim)
{
    const uint16_t *at = (const uint16_t *)slice + page_head_at(kv_head, head_dim);
    return (struct kv_part){.keys = at, .values = at + page_value_at(0, 0, head_dim)};
}

static inline struct kv_part q8_part(const void *slice, int kv_head, int head_dim)
{
    size_t n = KERN_PAGE_TOKENS * (size_t)head_dim;
    const int8_t *at = (const int8_t *)slice + (size_t)kv_head * q8_head_bytes(head_dim);
    const uint16_t *scales = (const void *)(at + 2 * n);
    return (struct kv_part){at, at + n, scales, scales + head_dim};
}

static inline struct kv_part kv_part_of(const struct kern_attn_rows *call, int page,
                                        int kv_head, int head_dim)
{
    const void *slice = call->slices[page];
    return page < call->q8_pages ? q8_part(slice, kv_head, head_dim)
                                 : f16_part(slice, kv_head, head_dim);
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

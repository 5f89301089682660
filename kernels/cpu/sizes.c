#include "kernels/cpu/attn_tiles.h"
#include "kernels/cpu/input.h"
#include "kernels/cpu/kv_slice.h"
#include "kernels/cpu/scratch.h"

size_t kern_input_bytes(int rows, int k)
{
    return (size_t)input_groups(rows) * (size_t)input_blocks(k) * sizeof(struct input_block);
}

struct kern_input kern_input_part(const struct kern_input *in, int first, int n)
{
    return (struct kern_input){.rows = n,
                               .k = in->k,
                               .x = in->x + (size_t)first * (size_t)in->k,
                               .mem = (char *)in->mem + kern_input_bytes(first, in->k)};
}

size_t kern_matmul_scratch(int max_threads)
{
    return (size_t)max_threads * sizeof(struct matmul_scratch);
}

size_t kern_page_slice_bytes(int n_kv_head, int head_dim)
{
    return (size_t)n_kv_head * 2 * KERN_PAGE_TOKENS * (size_t)head_dim * sizeof(uint16_t);
}

size_t kern_q8_slice_bytes(int n_kv_head, int head_dim)
{
    return (size_t)n_kv_head * q8_head_bytes(head_dim);
}

size_t kern_attn_scratch(int max_threads, int n_head, int n_kv_head, int head_dim)
{
    (void)n_head; /* tiles have as many rows whatever the group */
    (void)n_kv_head;
    return (size_t)max_threads * attn_thread_floats(head_dim) * sizeof(float);
}

struct kern_weights kern_weights_part(const struct kern_weights *w, int first, int n)
{
    const char *at = (const char *)w->data + kern_packed_bytes(w->type, first, w->n_in);
    return (struct kern_weights){w->type, n, w->n_in, at};
}

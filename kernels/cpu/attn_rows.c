#include "kernels/cpu/attn_rows.h"

#include "kernels/team.h"

enum { PAGE = KERN_PAGE_TOKENS };

struct heads {
    const struct kern_attn_rows *call;
    int n_head, group, head_dim;
    attn_page_fn *add_page;
};

static void attend(const struct heads *h, int row, int head)
{
    const struct kern_attn_rows *call = h->call;
    struct key_range keys = visible_keys(call, row);
    struct attn_running run = {ATTN_LOWEST, 0.0f};
    float *out = call->out + (size_t)row * call->ld_out + head * h->head_dim;
    const float *q = call->q + (size_t)row * call->ld_q + head * h->head_dim;
    for (int c = 0; c < h->head_dim; c++)
        out[c] = 0.0f;
    for (int page = keys.begin / PAGE; page * PAGE < keys.end; page++) {
        int begin = keys.begin > page * PAGE ? keys.begin - page * PAGE : 0;
        int end = keys.end - page * PAGE < PAGE ? keys.end - page * PAGE : PAGE;
        struct kv_part kv = kv_part_of(call, page, head / h->group, h->head_dim);
        h->add_page(&run, out, q, &kv, begin, end, h->head_dim);
    }
    float r = 1.0f / run.l;
    for (int c = 0; c < h->head_dim; c++)
        out[c] = out[c] * r +
                 0.0f; /* a key that is skipped here and multiplied by 0 elsewhere: no -0 */
}

static void attend_heads(void *arg, int begin, int end, int thread)
{
    const struct heads *h = arg;
    (void)thread;
    for (int i = begin; i < end; i++)
        attend(h, i / h->n_head, i % h->n_head);
}

void attn_by_rows(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
                  int head_dim, attn_page_fn *add_page)
{
    for (int i = 0; i < n_calls; i++) {
        struct heads h = {&calls[i], n_head, n_head / n_kv_head, head_dim, add_page};
        team_run(calls[i].rows * n_head, 1, attend_heads, &h);
    }
}

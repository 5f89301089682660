#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/kv_slice.h"
#include "kernels/team.h"

/* One row of one head: m is the greatest score so far, l the sum of weights, out the weighted values. */
struct running {
    float m, l;
};

/* Score, weigh and add the keys [begin, end) of one page. */
static void add_page(struct running *run, float *out, const float *q, const uint16_t *slice,
                     int begin, int end, int head_dim)
{
    float s[KERN_PAGE_TOKENS], v[16] = {0}, top = run->m;
    for (int j = begin; j < end; j++) {
        s[j] = 0.0f;
        for (int c = 0; c < head_dim; c++)
            s[j] = fmaf(half_to_float(slice[page_key_at(j, c, head_dim)]), q[c], s[j]);
        top = s[j] > top ? s[j] : top;
    }
    float shrink = exp_scalar(run->m - top);
    for (int j = begin; j < end; j++) {
        s[j] = exp_scalar(s[j] - top);
        v[j % 16] = v[j % 16] + s[j];
    }
    run->l = fmaf(run->l, shrink, fold16(v));
    run->m = top;
    for (int c = 0; c < head_dim; c++) {
        float o = out[c] * shrink;
        for (int j = begin; j < end; j++)
            o = fmaf(half_to_float(slice[page_value_at(j, c, head_dim)]), s[j], o);
        out[c] = o;
    }
}

static void attend(float *out, const float *q, const void *const *slices, struct key_range keys,
                   int kv_head, int head_dim)
{
    struct running run = {ATTN_LOWEST, 0.0f};
    for (int c = 0; c < head_dim; c++)
        out[c] = 0.0f;
    for (int page = keys.begin / KERN_PAGE_TOKENS; page * KERN_PAGE_TOKENS < keys.end; page++) {
        int first = page * KERN_PAGE_TOKENS;
        int begin = keys.begin > first ? keys.begin - first : 0;
        int end = keys.end - first < KERN_PAGE_TOKENS ? keys.end - first : KERN_PAGE_TOKENS;
        const uint16_t *slice =
            (const uint16_t *)slices[page] + page_head_at(kv_head, head_dim);
        add_page(&run, out, q, slice, begin, end, head_dim);
    }
    float r = 1.0f / run.l;
    for (int c = 0; c < head_dim; c++)
        out[c] = out[c] * r +
                 0.0f; /* a key that is skipped here and multiplied by 0 elsewhere: no -0 */
}

struct heads {
    const struct kern_attn_rows *call;
    int n_head, group, head_dim;
};

static void attend_heads(void *arg, int begin, int end, int thread)
{
    const struct heads *h = arg;
    const struct kern_attn_rows *call = h->call;
    (void)thread;
    for (int i = begin; i < end; i++) {
        int row = i / h->n_head, head = i % h->n_head;
        attend(call->out + (size_t)row * call->ld_out + head * h->head_dim,
               call->q + (size_t)row * call->ld_q + head * h->head_dim, call->slices,
               visible_keys(call, row), head / h->group, h->head_dim);
    }
}

void attn_ref(const struct kern_attn_rows *calls, int n_calls, int n_head, int n_kv_head,
              int head_dim, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n_calls; i++) {
        struct heads h = {&calls[i], n_head, n_head / n_kv_head, head_dim};
        team_run(calls[i].rows * n_head, 1, attend_heads, &h);
    }
}

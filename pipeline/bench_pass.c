/* Passes through the model, and its attention alone. */
#include "pipeline/bench.h"

#include "kernels/team.h"
#include "stages/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_work(struct bench_work *to, const struct bench_work *w, double times)
{
    to->bytes += times * w->bytes;
    to->ops += times * w->ops;
    to->flops += times * w->flops;
}

/* ---- prefill ---- */

struct prefill {
    struct bench *b;
    struct block_table *table;
    int depth, n;
};

static int prefill_pass(void *ctx, struct err *e)
{
    struct prefill *p = ctx;
    struct forward_rows rows = {.tokens = p->b->text.ids,
                                .pos = p->depth,
                                .n = p->n,
                                .table = p->table,
                                .want_logits = true,
                                .logits = p->b->logits};
    return model_forward(p->b->model, &rows, 1, e);
}

static int prefill_at(struct bench *b, int depth, struct err *e)
{
    struct prefill p = {.b = b, .depth = depth, .n = b->chunk};
    int rc = bench_sequence(b, depth, p.n, &p.table, e);
    if (!rc) {
        struct bench_row *r = bench_add(b, "prefill", "prefill %d at %d", p.n, depth);
        r->tokens = p.n;
        r->depth = depth;
        r->sequences = 1;
        r->amount = p.n;
        r->unit = "tokens/s";
        add_work(&r->work, &b->token, p.n);
        add_work(&r->work, &b->head, 1);
        for (int i = 0; i < p.n; i++)
            r->work.flops += bench_attention_of(b, depth + i).flops;
        r->work.bytes = (double)b->sizes.weights;
        rc = bench_repeat(b, r, prefill_pass, &p, e);
    }
    block_table_free(p.table);
    return rc;
}

int bench_prefill(struct bench *b, struct err *e)
{
    const int depths[] = {0, BENCH_DECODE_DEEP, b->o.depth};
    int rc = 0;
    for (size_t i = 0; !rc && i < ARRAY_LEN(depths); i++)
        if ((i == 0 || depths[i] > depths[i - 1]) && depths[i] <= b->o.depth &&
            depths[i] + b->chunk <= b->context)
            rc = prefill_at(b, depths[i], e);
    return rc;
}

/* ---- decode ---- */

struct decode {
    struct bench *b;
    struct block_table *tables[BENCH_SEQUENCES];
    int n, depth;
};

static int decode_steps(void *ctx, struct err *e)
{
    struct decode *d = ctx;
    struct forward_rows rows[BENCH_SEQUENCES];
    struct logit greatest[BENCH_SEQUENCES];
    size_t n_vocab = (size_t)model_hparams(d->b->model)->n_vocab;
    int rc = 0;
    for (int step = 0; !rc && step < BENCH_STEPS; step++) {
        for (int s = 0; s < d->n; s++)
            rows[s] = (struct forward_rows){.tokens = d->b->text.ids,
                                            .pos = d->depth + step,
                                            .n = 1,
                                            .table = d->tables[s],
                                            .want_logits = true,
                                            .logits = d->b->logits + (size_t)s * n_vocab,
                                            .n_leading = 1,
                                            .leading = &greatest[s]};
        rc = model_forward(d->b->model, rows, d->n, e);
    }
    return rc;
}

/* Sequence s has the pages of the first one up to its depth, and an own one behind. */
static int share_prefix(struct decode *d, int s, struct err *e)
{
    struct block_table *first = d->tables[0], *t = block_table_new(d->b->pool);
    d->tables[s] = t;
    for (int i = 0; i < d->depth / PAGE_TOKENS; i++) {
        page_ref(d->b->pool, first->pages[i]);
        block_table_append(t, first->pages[i]);
    }
    return block_table_reserve(t, d->depth + BENCH_STEPS, e);
}

static int decode_at(struct bench *b, int n, int depth, bool shared, struct err *e)
{
    struct decode d = {.b = b, .n = n, .depth = depth};
    int rc = 0;
    for (int s = 0; !rc && s < n; s++) {
        if (!shared || s == 0)
            rc = bench_sequence(b, depth, BENCH_STEPS, &d.tables[s], e);
        else
            rc = share_prefix(&d, s, e);
        for (int i = 0; !rc && shared && s == 0 && i < depth / PAGE_TOKENS; i++)
            page_seal(b->pool, d.tables[0]->pages[i], false);
    }
    if (!rc) {
        struct bench_row *r =
            bench_add(b, "decode", "decode %d at %d%s", n, depth, shared ? ", shared" : "");
        struct bench_work attention = bench_attention_of(b, depth + BENCH_STEPS / 2);
        r->tokens = BENCH_STEPS;
        r->depth = depth;
        r->sequences = n;
        r->amount = (double)n * BENCH_STEPS;
        r->unit = "tokens/s";
        add_work(&r->work, &b->token, r->amount);
        add_work(&r->work, &b->head, r->amount);
        add_work(&r->work, &attention, r->amount);
        r->work.bytes =
            BENCH_STEPS * ((double)b->sizes.weights + attention.bytes * (shared ? 1 : n));
        rc = bench_repeat(b, NULL, decode_steps, &d, e);
        if (!rc)
            rc = bench_repeat(b, r, decode_steps, &d, e);
    }
    for (int s = 0; s < n; s++)
        block_table_free(d.tables[s]);
    return rc;
}

int bench_decode(struct bench *b, struct err *e)
{
    static const int sizes[] = {1, 2, 4, 8, 16, 24, 32};
    int rc = 0;
    for (size_t i = 0; !rc && i < ARRAY_LEN(sizes); i++)
        rc = decode_at(b, sizes[i], BENCH_DECODE_AT, false, e);
    if (!rc && b->context >= BENCH_DECODE_DEEP + BENCH_STEPS) {
        rc = decode_at(b, 1, BENCH_DECODE_DEEP, false, e);
        if (!rc)
            rc = decode_at(b, 8, BENCH_DECODE_DEEP, false, e);
        if (!rc)
            rc = decode_at(b, 8, BENCH_DECODE_DEEP, true, e);
    }
    return rc;
}

/* ---- attention alone, one layer ---- */

enum { SHARING = 8 };

struct attention {
    struct bench *b;
    struct kern_attn_rows calls[SHARING]; /* [n], of the same pages */
    int n;
    void *scratch;
    void **slices; /* [layers][n_pages] */
    int layers, n_pages;
};

/* A layer after the other, as a pass does: their keys and values are not in the caches still. */
static int attend(void *ctx, struct err *e)
{
    (void)e;
    struct attention *a = ctx;
    const struct hparams *h = model_hparams(a->b->model);
    for (int i = 0; i < a->layers; i++) {
        for (int s = 0; s < a->n; s++)
            a->calls[s].slices = (const void *const *)(a->slices + i * a->n_pages);
        a->b->table.attn(a->calls, a->n, h->n_head, h->n_kv_head, h->head_dim, a->scratch);
    }
    return 0;
}

void bench_fill(float *x, size_t n)
{
    uint32_t s = 1;
    for (size_t i = 0; i < n; i++) {
        s = s * 1664525 + 1013904223;
        x[i] = (float)(int32_t)s / 0x1p31f;
    }
}

static void add_attention_row(const struct attention *a, size_t width, size_t kv_width)
{
    const struct kern_attn_rows *c = &a->calls[0];
    int len = c->pos + c->rows;
    struct bench_row *r =
        a->n == 1 ? bench_add(a->b, "attention", "attention %d of %d", c->rows, len)
                  : bench_add(a->b, "attention", "attention %d share %d", a->n, len);
    double keys = len - (c->rows - 1) / 2.0;
    r->tokens = c->rows;
    r->depth = c->pos;
    r->sequences = a->n;
    r->work.flops = 4.0 * a->layers * a->n * c->rows * keys * (double)width;
    r->work.bytes = 4.0 * a->layers * len * (double)kv_width;
    bool few = a->n * c->rows == 1; /* then the keys and values are what costs */
    r->unit = few ? "GB/s" : "GFLOP/s";
    r->amount = (few ? r->work.bytes : r->work.flops) / 1e9;
}

/* n sequences, each `rows` rows at the end of the same len tokens. */
static int attention_of(struct bench *b, int n_seqs, int rows, int len, struct err *e)
{
    const struct hparams *h = model_hparams(b->model);
    size_t width = (size_t)h->n_head * (size_t)h->head_dim;
    size_t kv_width = (size_t)h->n_kv_head * (size_t)h->head_dim;
    size_t slice = kern_page_slice_bytes(h->n_kv_head, h->head_dim);
    struct attention a = {.b = b,
                          .n = n_seqs,
                          .layers = rows == 1 ? h->n_layer : 1,
                          .n_pages = (len + PAGE_TOKENS - 1) / PAGE_TOKENS};
    size_t n = (size_t)a.layers * (size_t)a.n_pages;
    size_t of_one = (size_t)rows * width, of_all = (size_t)n_seqs * of_one;
    float *q = mem_aligned(2 * of_all * sizeof(float));
    float *kv = mem_aligned((size_t)len * kv_width * 4);
    uint8_t *pages = mem_aligned(n * slice), *bad = mem_alloc((size_t)len);
    void **slices = mem_alloc(n * sizeof(*slices));
    a.scratch =
        mem_aligned(kern_attn_scratch(team_threads(), h->n_head, h->n_kv_head, h->head_dim));
    int rc = 0;
    if (!q || !kv || !pages || !bad || !slices || !a.scratch) {
        rc = err_set(e, REACH_JOB, ERR_NOMEM, "no memory for attention over %d tokens", len);
    } else {
        bench_fill(q, of_all);
        bench_fill(kv, (size_t)len * kv_width);
        for (size_t i = 0; i < n; i++)
            slices[i] = pages + i * slice;
        for (int i = 0; i < a.layers; i++)
            b->table.kv_store(slices + i * a.n_pages, 0, kv, kv, kv_width, len, h->n_kv_head,
                              h->head_dim, bad);
        a.slices = slices;
        for (int i = 0; i < n_seqs; i++)
            a.calls[i] = (struct kern_attn_rows){.out = q + of_all + (size_t)i * of_one,
                                                 .q = q + (size_t)i * of_one,
                                                 .ld_out = width,
                                                 .ld_q = width,
                                                 .pos = len - rows,
                                                 .rows = rows};
        add_attention_row(&a, width, kv_width);
        rc = bench_repeat(b, &b->rows[b->n_rows - 1], attend, &a, e);
    }
    free(q);
    free(kv);
    free(pages);
    free(bad);
    free(slices);
    free(a.scratch);
    return rc;
}

int bench_attention(struct bench *b, struct err *e)
{
    static const int lengths[] = {512, 2048, 8192};
    int rc = 0;
    for (size_t i = 0; !rc && i < ARRAY_LEN(lengths); i++)
        rc = attention_of(b, 1, 256, lengths[i], e);
    for (size_t i = 0; !rc && i < ARRAY_LEN(lengths); i++)
        rc = attention_of(b, 1, 1, lengths[i], e);
    for (size_t i = 0; !rc && i < ARRAY_LEN(lengths); i++)
        rc = attention_of(b, SHARING, 1, lengths[i], e);
    return rc;
}

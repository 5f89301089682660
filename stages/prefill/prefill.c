/* The prefill stage: from the tokens of a prompt to its KV pages and the logits of the first token.
 *
 *     push: hold the request -> admit: prefix look-up, pages for prompt and answer -> step: one chunk
 *     ... -> last chunk: logits, full pages into the index, emit
 *
 * Admission takes every page that the request will ever need, so what was started can be finished; while
 * they are not free the stage waits with the request in hand and decode frees pages. Requests are taken one
 * at a time and in order: the second of two with the same beginning finds the pages of the first.
 *
 * Chunks end at absolute multiples of prefill.batch, wherever the cached prefix ends. (No result depends on
 * it: a row's numbers are its own. It keeps the shape of the work the same from run to run.) */
#include "stages/base/clock.h"
#include "stages/base/mem.h"
#include "stages/kv/kv_opts.h"
#include "stages/kv/prefix.h"
#include "stages/model/model.h"
#include "stages/prefill/prefill_opts.h"
#include "stages/stage.h"
#include "stages/stats.h"

#include <stdlib.h>

struct prefilling {
    struct rec *r; /* in hand, or NULL */
    bool admitted;
    int pos;          /* tokens done */
    int64_t since;    /* when it came */
    int refused_used; /* pages in use when it was last refused; -1: not refused */
    int batch;
};

static int prefill_open(struct stage *s, struct err *e)
{
    (void)e;
    struct prefilling *p = s->state = mem_need(sizeof(*p));
    p->batch = (s->env->prefill->batch + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS;
    return 0;
}

static bool prefill_want(const struct stage *s)
{
    const struct prefilling *p = s->state;
    return !p->r;
}

static int pages_for(const struct rec *r)
{
    int64_t n = (int64_t)r->req.n_tokens + r->req.max_tokens;
    return (int)((n + PAGE_TOKENS - 1) / PAGE_TOKENS);
}

static int prefill_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    struct prefilling *p = s->state;
    if (r->fail.code || r->doc->status == DOC_FAILED)
        return stage_emit(s, r);
    struct page_stats pool;
    page_pool_stats(s->env->pages, &pool);
    if (pages_for(r) > pool.total)
        err_set(&r->fail, REACH_DOC, ERR_LIMIT,
                "a prompt of %d tokens and an answer of %d need %d KV pages, and the pool has "
                "%d; set a "
                "larger kv.memory",
                r->req.n_tokens, r->req.max_tokens, pages_for(r), pool.total);
    if (r->fail.code)
        return stage_emit(s, r);
    p->r = r;
    p->admitted = false;
    p->refused_used = -1;
    p->since = clock_us();
    return 0;
}

/* Take all pages, or none. True when the request can begin or has failed. */
static bool admit(struct stage *s, struct prefilling *p)
{
    const struct stage_env *env = s->env;
    struct request *q = &p->r->req;
    struct page_stats pool;
    page_pool_stats(env->pages, &pool);
    if (p->refused_used >= 0 && pool.used >= p->refused_used)
        return false;
    struct block_table *t = block_table_new(env->pages);
    int reused = env->kv->reuse ? prefix_match(env->prefixes, q->tokens, q->n_tokens, t) : 0;
    page_pool_stats(env->pages, &pool);
    if (pages_for(p->r) - t->n_pages > pool.total - pool.used) {
        block_table_free(t);
        page_pool_stats(env->pages, &pool);
        p->refused_used = pool.used;
        return false;
    }
    int rc = block_table_reserve(t, q->n_tokens + q->max_tokens, &p->r->fail);
    p->r->seq.table = t;
    p->r->n_reused = p->pos = reused;
    p->r->timings.wait_us += clock_us() - p->since;
    p->admitted = true;
    stage_count_pages(env);
    if (rc == 0) {
        atomic_fetch_add(&env->stats->prompt_tokens, q->n_tokens);
        atomic_fetch_add(&env->stats->reused_tokens, reused);
    }
    return true;
}

/* One chunk. Sets the record's failure; an error of its own stops the run. */
static int compute(struct stage *s, struct prefilling *p, struct err *e)
{
    const struct stage_env *env = s->env;
    struct rec *r = p->r;
    int n = (p->pos / p->batch + 1) * p->batch - p->pos, left = r->req.n_tokens - p->pos;
    struct forward_rows rows = {.tokens = r->req.tokens,
                                .pos = p->pos,
                                .n = n < left ? n : left,
                                .table = r->seq.table,
                                .want_logits = n >= left};
    if (rows.want_logits) {
        size_t bytes = (size_t)model_hparams(env->model)->n_vocab * sizeof(float);
        rows.logits = r->seq.logits = mem_alloc(bytes);
        if (!rows.logits) {
            err_set(&r->fail, REACH_DOC, ERR_NOMEM, "no memory for %zu bytes of logits", bytes);
            return 0;
        }
    }
    int64_t begin = clock_us();
    int rc = model_forward(env->model, &rows, 1, e);
    int64_t us = clock_us() - begin;
    if (rc < 0)
        return rc;
    if (rows.failed)
        /* No position: it would depend on the batch, and a record must not. */
        err_set(&r->fail, REACH_DOC, ERR_DEVICE,
                "the model gave a value that is not finite while it read the prompt");
    p->pos += rows.n;
    r->timings.prefill_us += us;
    atomic_fetch_add(&env->stats->prefill_us, us);
    atomic_fetch_add(&env->stats->prefill_tokens, rows.n);
    return 0;
}

static int hand_on(struct stage *s, struct prefilling *p)
{
    struct rec *r = p->r;
    p->r = NULL;
    if (r->fail.code) {
        block_table_free(r->seq.table);
        r->seq.table = NULL;
        free(r->seq.logits);
        r->seq.logits = NULL;
        stage_count_pages(s->env);
        return stage_emit(s, r);
    }
    if (s->env->kv->reuse)
        prefix_insert(s->env->prefixes, r->req.tokens, r->req.n_tokens, r->seq.table);
    r->seq.n_past = r->req.n_tokens;
    r->kind = REC_SEQUENCE;
    return stage_emit(s, r);
}

static int prefill_step(struct stage *s, struct err *e)
{
    struct prefilling *p = s->state;
    if (!p->r || (!p->admitted && !admit(s, p)))
        return ST_IDLE;
    int rc = p->r->fail.code ? 0 : compute(s, p, e);
    if (rc < 0)
        return rc;
    if (p->r->fail.code || p->pos == p->r->req.n_tokens)
        rc = hand_on(s, p);
    return rc < 0 ? rc : ST_MORE;
}

static int prefill_finish(struct stage *s, struct err *e)
{
    (void)s;
    (void)e;
    return 0;
}

static void prefill_close(struct stage *s)
{
    struct prefilling *p = s->state;
    if (!p)
        return;
    rec_free(p->r);
    free(p);
    s->state = NULL;
}

const struct stage_ops prefill_stage = {.name = "prefill",
                                        .open = prefill_open,
                                        .want = prefill_want,
                                        .push = prefill_push,
                                        .step = prefill_step,
                                        .finish = prefill_finish,
                                        .close = prefill_close};

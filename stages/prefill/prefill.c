/* The prefill stage: from the tokens of a prompt to its KV pages and the logits of the first token.
 *
 *     push: hold -> waiting --order--> next: admitted, loading --> now: one chunk a step ... -> emit
 *
 * Requests wait here in sight of each other: order.h takes those with the same beginning one after the other, and the
 * store knows by them which pages are used again. One is being computed; another may be admitted before its turn so
 * that what it has on disk is loaded meanwhile. Admission takes every page that the request will ever need, so
 * what was started can be finished; where they are not free the stage waits, and decode frees pages or parks
 * prompts. */
#include "stages/base/clock.h"
#include "stages/base/mem.h"
#include "stages/kv/kv_opts.h"
#include "stages/kv/store.h"
#include "stages/model/fill.h"
#include "stages/prefill/order.h"
#include "stages/prefill/prefill_opts.h"
#include "stages/stage.h"
#include "stages/stats.h"

#include <stdlib.h>
#include <string.h>

/* A request at work. */
struct job {
    struct rec *r; /* NULL: none */
    bool admitted;
    int pos; /* tokens done, once it is ready; -1 before */
    int64_t since;
};

struct prefilling {
    struct job *waiting; /* [lookahead], in order of arrival */
    struct order_item *items;
    int n_waiting, lookahead;
    struct job now, next;
    int32_t *last; /* [n_last] tokens of the request taken last; heap */
    int n_last;
    int batch;
};

static int prefill_open(struct stage *s, struct err *e)
{
    (void)e;
    struct prefilling *p = s->state = mem_need(sizeof(*p));
    p->lookahead = s->env->prefill->lookahead;
    p->waiting = mem_need((size_t)p->lookahead * sizeof(*p->waiting));
    p->items = mem_need((size_t)p->lookahead * sizeof(*p->items));
    p->batch = (s->env->prefill->batch + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS;
    /* Rows attend to rounded pages before them: a pass ends where a page does. */
    if (store_is_lossy(s->env->store))
        p->batch = PAGE_TOKENS;
    store_on_done(s->env->store, s->wake, s->runner);
    return 0;
}

static bool prefill_want(const struct stage *s)
{
    const struct prefilling *p = s->state;
    return p->n_waiting < p->lookahead;
}

/* KV pages that a request needs; those of 8 bits are the measure where there are any, and others take two. */
static int pages_for(const struct stage *s, const struct rec *r)
{
    return store_units(s->env->store, r->req.n_tokens, r->req.n_tokens + r->req.max_tokens);
}

/* Whose pages come again: what is asked of a text does, and so its text; partial answers do not. */
static enum prefix_class class_of(const struct rec *r)
{
    return r->req.level == 0 ? PREFIX_DOCUMENT : PREFIX_OWN;
}

static int prefill_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    struct prefilling *p = s->state;
    if (rec_passes(r) || r->kind == REC_ANSWER)
        return stage_emit(s, r);
    struct page_stats pool;
    page_pool_stats(s->env->pages, &pool);
    int rc = 0;
    if (pages_for(s, r) > pool.total)
        rc = err_set(
            &r->fail, REACH_DOC, ERR_LIMIT,
            "a prompt of %d tokens and an answer of %d need %d KV pages, and the pool has "
            "%d; set a "
            "larger kv.memory",
            r->req.n_tokens, r->req.max_tokens, pages_for(s, r), pool.total);
    else
        rc = store_hold(s->env->store, &r->seq.prompt, r->req.tokens, r->req.n_tokens,
                        r->req.n_shared, class_of(r), &r->fail);
    if (rc)
        return stage_emit(s, r); /* the error is the record's */
    p->items[p->n_waiting] = (struct order_item){
        .tokens = r->req.tokens, .n_tokens = r->req.n_tokens, .n_shared = r->req.n_shared};
    p->waiting[p->n_waiting++] = (struct job){.r = r, .pos = -1, .since = clock_us()};
    return 0;
}

/* ---- whose turn it is ---- */

static void take_waiting(struct prefilling *p, int i, struct job *to)
{
    *to = p->waiting[i];
    for (int k = 0; k < i; k++)
        p->items[k].passed_over++;
    p->n_waiting--;
    size_t behind = (size_t)(p->n_waiting - i);
    memmove(&p->waiting[i], &p->waiting[i + 1], behind * sizeof(*p->waiting));
    memmove(&p->items[i], &p->items[i + 1], behind * sizeof(*p->items));
    free(p->last);
    p->n_last = to->r->req.n_tokens;
    p->last = mem_alloc((size_t)p->n_last * sizeof(*p->last));
    if (p->last)
        memcpy(p->last, to->r->req.tokens, (size_t)p->n_last * sizeof(*p->last));
    else
        p->n_last = 0; /* without it the order is that of arrival */
}

/* Drops the requests that the run gives up on. Returns the one to take, -1 for none, or an error. */
static int choose(struct stage *s, struct prefilling *p)
{
    while (p->n_waiting > 0) {
        int i = order_next(p->items, p->n_waiting, p->n_last ? p->last : NULL, p->n_last);
        if (stage_begin(s, p->waiting[i].r))
            return i;
        struct job gone;
        take_waiting(p, i, &gone);
        store_drop(gone.r->seq.prompt);
        gone.r->seq.prompt = NULL;
        int rc = stage_emit(s, gone.r);
        if (rc < 0)
            return rc;
    }
    return -1;
}

static bool admit(struct stage *s, struct job *j)
{
    const struct request *q = &j->r->req;
    if (!j->admitted)
        j->admitted = store_admit(s->env->store, j->r->seq.prompt, q->n_tokens + q->max_tokens,
                                  true) == 1;
    stage_count_pages(s->env);
    return j->admitted;
}

/* Load for the next request while this one is computed; unless it waits for pages of just this one. */
static int prepare_next(struct stage *s, struct prefilling *p)
{
    if (p->next.r || !s->env->kv->disk)
        return 0;
    int i = choose(s, p);
    if (i < 0)
        return i == -1 ? 0 : i;
    const struct request *now = &p->now.r->req, *q = &p->waiting[i].r->req;
    int common = order_common_pages(now->tokens, now->n_tokens, q->tokens, q->n_tokens);
    if (common * PAGE_TOKENS > p->now.pos)
        return 0;
    struct job *j = &p->waiting[i];
    if (admit(s, j))
        take_waiting(p, i, &p->next);
    return 0;
}

/* ---- the work ---- */

static void begin(struct stage *s, struct job *j)
{
    const struct stage_env *env = s->env;
    struct rec *r = j->r;
    const struct store_prompt *p = r->seq.prompt;
    j->pos = r->n_reused = p->found;
    r->timings.wait_us += clock_us() - j->since;
    atomic_fetch_add(&env->stats->prompt_tokens, r->req.n_tokens);
    atomic_fetch_add(&env->stats->reused_tokens, p->found);
}

static float *get_logits(const struct stage_env *env, struct rec *r)
{
    size_t bytes = (size_t)model_hparams(env->model)->n_vocab * sizeof(float);
    struct store_prompt *p = r->seq.prompt;
    float *logits = p->logits;
    p->logits = NULL;
    if (!logits && !(logits = mem_alloc(bytes)))
        err_set(&r->fail, REACH_DOC, ERR_NOMEM, "no memory for %zu bytes of logits", bytes);
    return logits;
}

/* One chunk. Sets the record's failure; an error of its own stops the run. */
static int compute(struct stage *s, struct prefilling *p, struct err *e)
{
    const struct stage_env *env = s->env;
    struct job *j = &p->now;
    struct rec *r = j->r;
    if (stage_overdue(s, r))
        return 0;
    if (!r->seq.logits && !(r->seq.logits = get_logits(env, r)))
        return 0;
    if (j->pos == r->req.n_tokens)
        return 0; /* all of it was stored, and what comes after it */
    struct fill f = {.tokens = r->req.tokens,
                     .n_tokens = r->req.n_tokens,
                     .pos = j->pos,
                     .chunk = p->batch,
                     .table = r->seq.prompt->table,
                     .logits = r->seq.logits};
    int64_t begin_us = clock_us();
    int rc = fill_chunk(env->model, &f, e);
    int64_t us = clock_us() - begin_us;
    if (rc < 0)
        return rc;
    if (f.failed && r->req.n_answered > 0) /* as decode says it, who would have met it */
        err_set(&r->fail, REACH_DOC, ERR_DEVICE,
                "the model gave a value that is not finite at token %d of the answer",
                r->req.n_answered + 1);
    else if (f.failed)
        /* No position: it would depend on the batch, and a record must not. */
        err_set(&r->fail, REACH_DOC, ERR_DEVICE,
                "the model gave a value that is not finite while it read the prompt");
    else
        store_computed(env->store, r->seq.prompt, f.pos);
    r->timings.prefill_us += us;
    atomic_fetch_add(&env->stats->prefill_us, us);
    atomic_fetch_add(&env->stats->prefill_tokens, f.pos - j->pos);
    j->pos = f.pos;
    if (j->pos == r->req.n_tokens && !r->fail.code)
        store_prompt_done(env->store, r->seq.prompt, r->seq.logits);
    return 0;
}

static int hand_on(struct stage *s, struct prefilling *p)
{
    struct rec *r = p->now.r;
    p->now = (struct job){0};
    if (!r->fail.code) {
        r->kind = REC_SEQUENCE;
        return stage_emit(s, r);
    }
    store_drop(r->seq.prompt);
    r->seq.prompt = NULL;
    free(r->seq.logits);
    r->seq.logits = NULL;
    stage_count_pages(s->env);
    return stage_emit(s, r);
}

/* Find the request to work on. ST_MORE: there is one, and work can begin if its pos says so; ST_IDLE: there is
 * none; ST_WAIT: it waits for pages or loads. */
static int find_work(struct stage *s, struct prefilling *p)
{
    if (!p->now.r && p->next.r) {
        p->now = p->next;
        p->next = (struct job){0};
    } else if (!p->now.r) {
        int i = choose(s, p);
        if (i < 0)
            return i == -1 ? ST_IDLE : i;
        take_waiting(p, i, &p->now);
    }
    if (p->now.pos >= 0)
        return ST_MORE;
    if (!admit(s, &p->now)) {
        /* The other one holds pages that this one may lack: it goes first, or nobody would. */
        if (p->next.r && p->next.admitted) {
            struct job other = p->next;
            p->next = p->now;
            p->now = other;
        } else {
            return ST_WAIT;
        }
    }
    int ready = store_ready(s->env->store, p->now.r->seq.prompt);
    if (ready == 1)
        begin(s, &p->now);
    p->now.admitted = ready >= 0; /* a page was lost: the next step admits it anew */
    return ready == 0 ? ST_WAIT : ST_MORE;
}

static int prefill_step(struct stage *s, struct err *e)
{
    struct prefilling *p = s->state;
    store_poll(s->env->store);
    int rc = find_work(s, p);
    if (rc != ST_MORE || p->now.pos < 0)
        return rc;
    rc = compute(s, p, e);
    if (rc >= 0)
        rc = prepare_next(s, p);
    if (rc >= 0 && (p->now.r->fail.code || p->now.pos == p->now.r->req.n_tokens))
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
    store_on_done(s->env->store, NULL, NULL);
    rec_free(p->now.r);
    rec_free(p->next.r);
    for (int i = 0; i < p->n_waiting; i++)
        rec_free(p->waiting[i].r);
    free(p->waiting);
    free(p->items);
    free(p->last);
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

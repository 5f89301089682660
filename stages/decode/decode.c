/* The decode stage: continuous batching.
 *
 *     push: wait -> join when there is a place in the batch
 *     step:  logits of each sequence -> sampler -> reply: ended? emit : keep
 *            one forward pass over the kept ones, one row each -> logits
 *
 * A sequence joins with the logits of its prompt and leaves when its reply ends, so the batch is filled anew
 * at each step. All memory of a sequence is taken when it joins.
 *
 * Prefill may be ahead by some sequences. Where it lacks pages for the next one, those that wait here are parked, the
 * last first: their pages go to disk, and come back before they join. Nothing can wait forever: a sequence that has
 * its pages joins as soon as a place is free, whatever the ones before it wait for. */
#include "stages/base/clock.h"
#include "stages/base/mem.h"
#include "stages/decode/decode_opts.h"
#include "stages/decode/reply.h"
#include "stages/decode/sampler.h"
#include "stages/kv/kv_opts.h"
#include "stages/kv/store.h"
#include "stages/ledger/ledger.h"
#include "stages/model/fill.h"
#include "stages/model/model.h"
#include "stages/stage.h"
#include "stages/stats.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct rec *r;
    struct reply reply;
    struct ledger_flight *flight; /* its tokens in the ledger; NULL: nobody notes them */
    float *logits;                /* [n_vocab] of the next token, or */
    int n_leading;                /* the greatest of them: */
    struct logit *leading; /* [sampler_leading() at most], owned; NULL where all are needed */
    int64_t since;
};

struct decoding {
    struct reply_rules rules;
    struct sampler sampler;
    struct slot *slots; /* [batch], the first n are in use, in order of arrival */
    struct forward_rows *rows;
    int n, batch;
    struct rec **waiting; /* [most], in order of arrival */
    int n_waiting, most;  /* sequences here: waiting and in the batch */
};

static int decode_open(struct stage *s, struct err *e)
{
    const struct stage_env *env = s->env;
    struct decoding *d = s->state = mem_need(sizeof(*d));
    d->batch = env->decode->batch;
    d->slots = mem_need((size_t)d->batch * sizeof(*d->slots));
    d->rows = mem_need((size_t)d->batch * sizeof(*d->rows));
    d->most = d->batch + (env->kv->disk ? env->kv->ahead : 0);
    d->waiting = mem_need((size_t)d->most * sizeof(struct rec *));
    reply_rules_init(&d->rules, env->decode, model_vocab(env->model), env->chat);
    return sampler_init(&d->sampler, env->decode, model_hparams(env->model)->n_vocab, e);
}

static bool decode_want(const struct stage *s)
{
    const struct decoding *d = s->state;
    return d->n + d->n_waiting < d->most;
}

static void slot_release(struct stage *s, struct slot *slot)
{
    struct rec *r = slot->r;
    ledger_land(s->env->ledger, slot->flight, LEDGER_STOPPED, NULL);
    slot->flight = NULL;
    r->seq.prompt->n_used = r->req.n_tokens + slot->reply.n;
    reply_close(&slot->reply);
    free(slot->logits);
    free(slot->leading);
    store_drop(r->seq.prompt);
    r->seq.prompt = NULL;
    free(r->req.tokens);
    r->req.tokens = NULL;
}

/* Tokens that an earlier run wrote are taken over as if they were drawn just now. */
static int take_over(struct slot *slot, int n, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0 && slot->reply.stopped_by == STOP_NONE; i++)
        rc = reply_add(&slot->reply, slot->reply.tokens[i], e);
    return rc;
}

/* Room for the greatest logits, however long the answer grows; past LEADING_MOST all are taken. */
static int make_room_for_leading(struct slot *slot, const struct sampler *s, int max_tokens,
                                 struct err *e)
{
    int most = sampler_leading(s, max_tokens);
    if (most == 0 && sampler_leading(s, 0) > 0)
        most = LEADING_MOST;
    if (most == 0)
        return 0;
    slot->leading = mem_alloc((size_t)most * sizeof(*slot->leading));
    return slot->leading ? 0
                         : err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %d logits", most);
}

/* Everything that the sequence will need: one array for all its tokens. Its pages it has. */
static int join(const struct stage_env *env, struct slot *slot, const struct decoding *d,
                struct err *e)
{
    struct request *q = &slot->r->req;
    size_t n = (size_t)q->n_tokens + (size_t)q->max_tokens;
    int32_t *tokens = mem_resize(q->tokens, n * sizeof(*tokens));
    if (!tokens)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %zu tokens", n);
    slot->r->seq.prompt->tokens = q->tokens = tokens;
    int begun = q->n_answered;
    q->n_tokens -= begun;
    q->max_tokens += begun;
    q->n_answered = 0;
    int rc = reply_open(&slot->reply, &d->rules, tokens, q->n_tokens, tokens + q->n_tokens,
                        q->max_tokens, e);
    if (rc == 0)
        rc = take_over(slot, begun, e);
    if (rc == 0)
        rc = make_room_for_leading(slot, &d->sampler, q->max_tokens, e);
    if (rc == 0 && env->ledger)
        slot->flight =
            ledger_flight(env->ledger, q->key, slot->r->doc->id, tokens + q->n_tokens, begun);
    return rc;
}

static int leave(struct stage *s, struct slot *slot);

static int enter_batch(struct stage *s, struct decoding *d, struct rec *r)
{
    struct slot *slot = &d->slots[d->n];
    *slot = (struct slot){.r = r, .logits = r->seq.logits, .since = clock_us()};
    r->seq.logits = NULL;
    if (!r->fail.code && join(s->env, slot, d, &r->fail) == 0) {
        if (slot->reply.stopped_by != STOP_NONE)
            return leave(s, slot); /* all of it was there */
        d->n++;
        return 0;
    }
    slot_release(s, slot);
    stage_count_pages(s->env);
    return stage_emit(s, r);
}

static int decode_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    struct decoding *d = s->state;
    if (rec_passes(r) || r->kind == REC_ANSWER)
        return stage_emit(s, r);
    d->waiting[d->n_waiting++] = r;
    return 0;
}

/* ---- sequences that wait ---- */

/* What was lost on disk is computed again. */
static int refill(struct stage *s, struct rec *r, struct err *e)
{
    const struct stage_env *env = s->env;
    struct store_prompt *p = r->seq.prompt;
    struct fill f = {.tokens = r->req.tokens,
                     .n_tokens = r->req.n_tokens,
                     .pos = p->found,
                     .chunk = PAGE_TOKENS, /* rare: any pass has so many rows */
                     .table = p->table};
    while (f.pos < f.n_tokens && !r->fail.code) {
        int rc = fill_chunk(env->model, &f, e);
        if (rc < 0)
            return rc;
        if (f.failed)
            err_set(&r->fail, REACH_DOC, ERR_DEVICE,
                    "the model gave a value that is not finite while it read the prompt");
        else
            store_computed(env->store, p, f.pos);
    }
    return 0;
}

/* Get the pages of a parked sequence back. 1: it has them; 0: not yet. */
static int unpark(struct stage *s, struct rec *r, struct err *e)
{
    struct store_prompt *p = r->seq.prompt;
    int total = r->req.n_tokens + r->req.max_tokens;
    if (!p->table && store_admit(s->env->store, p, total, false) != 1)
        return 0;
    int ready = store_ready(s->env->store, p);
    if (ready != 1)
        return 0;
    int rc = p->found < r->req.n_tokens ? refill(s, r, e) : 0;
    p->found = r->req.n_tokens;
    return rc < 0 ? rc : 1;
}

/* Prefill, or the first of those that wait, lacks pages: the last ones give theirs. */
static void make_room(struct stage *s, struct decoding *d)
{
    struct store *store = s->env->store;
    if (store_short(store) == 0 || !store_can_park(store))
        return;
    for (int i = d->n_waiting; i-- > 0 && store_short(store) > 0;) {
        struct rec *r = d->waiting[i];
        if (r->seq.prompt->table && store_ready(store, r->seq.prompt) == 1)
            store_park(store, r->seq.prompt, r->seq.logits);
    }
}

/* Fill the places of the batch with those that have their pages. */
static int fill_batch(struct stage *s, struct decoding *d, struct err *e)
{
    int kept = 0, rc = 0;
    for (int i = 0; i < d->n_waiting; i++) {
        struct rec *r = d->waiting[i];
        int has = d->n < d->batch && rc >= 0 ? unpark(s, r, e) : 0;
        if (has < 0)
            rc = has;
        if (has == 1)
            rc = enter_batch(s, d, r);
        else
            d->waiting[kept++] = r;
    }
    d->n_waiting = kept;
    return rc < 0 ? rc : 0;
}

/* An answer is kept until its document is finished. */
static void land(struct stage *s, struct slot *slot)
{
    const struct answer *a = &slot->r->answer;
    struct ledger_answer kept = {.text = a->text,
                                 .len = a->len,
                                 .n_tokens = a->n_tokens,
                                 .n_thinking = a->n_thinking,
                                 .stopped_by = (int)a->stopped_by,
                                 .flags = a->flags};
    bool answered = slot->r->kind == REC_ANSWER;
    ledger_land(s->env->ledger, slot->flight, answered ? LEDGER_ANSWERED : LEDGER_FAILED,
                answered ? &kept : NULL);
    slot->flight = NULL;
}

/* The sequence is over, well or not: hand it on. */
static int leave(struct stage *s, struct slot *slot)
{
    struct rec *r = slot->r;
    int64_t us = clock_us() - slot->since;
    r->timings.decode_us += us;
    if (!r->fail.code && reply_answer(&slot->reply, &r->answer, &r->fail) == 0)
        r->kind = REC_ANSWER;
    land(s, slot);
    slot_release(s, slot);
    stage_count_pages(s->env);
    atomic_fetch_add(&s->env->stats->requests_done, 1);
    return stage_emit(s, r);
}

/* The next token of a sequence. True when it ends it. */
static bool advance(struct stage *s, struct decoding *d, struct slot *slot)
{
    const struct request *q = &slot->r->req;
    const struct reply *a = &slot->reply;
    int32_t id = slot->n_leading > 0
                     ? sampler_next_of(&d->sampler, slot->leading, a->tokens, a->n, q->seed)
                     : sampler_next(&d->sampler, slot->logits, a->tokens, a->n, q->seed);
    ledger_token(s->env->ledger, slot->flight, id);
    atomic_fetch_add(&s->env->stats->generated_tokens, 1);

    return reply_add(&slot->reply, id, &slot->r->fail) != 0 ||
           slot->reply.stopped_by != STOP_NONE;
}

/* Give up places at which `done` is set, keeping the order of the others. */
static int compact(struct stage *s, struct decoding *d, const bool *done)
{
    int kept = 0, n = d->n, rc = 0;
    struct slot gone;
    for (int i = 0; i < n; i++) {
        if (!done[i]) {
            if (kept != i)
                d->slots[kept] = d->slots[i];
            kept++;
            continue;
        }
        gone = d->slots[i];
        d->slots[i].r = NULL;
        if (rc == 0)
            rc = leave(s, &gone);
        else { /* being torn down: no one takes records any more */
            slot_release(s, &gone);
            rec_free(gone.r);
        }
    }
    d->n = kept;
    return rc;
}

static int forward(struct stage *s, struct decoding *d, bool *failed, struct err *e)
{
    for (int i = 0; i < d->n; i++) {
        struct slot *slot = &d->slots[i];
        const struct request *q = &slot->r->req;
        slot->n_leading = sampler_leading(&d->sampler, slot->reply.n);
        d->rows[i] = (struct forward_rows){.tokens = q->tokens,
                                           .pos = q->n_tokens + slot->reply.n - 1,
                                           .n = 1,
                                           .table = slot->r->seq.prompt->table,
                                           .want_logits = true,
                                           .logits = slot->logits,
                                           .n_leading = slot->n_leading,
                                           .leading = slot->leading};
    }
    int rc = model_forward(s->env->model, d->rows, d->n, e);
    for (int i = 0; i < d->n && rc == 0; i++) {
        failed[i] = d->rows[i].failed;
        if (failed[i])
            err_set(&d->slots[i].r->fail, REACH_DOC, ERR_DEVICE,
                    "the model gave a value that is not finite at token %d of the answer",
                    d->slots[i].reply.n + 1);
    }
    return rc;
}

static int decode_step(struct stage *s, struct err *e)
{
    struct decoding *d = s->state;
    bool done[256] = {false}; /* decode.batch is at most this */
    int waited = d->n_waiting, filled = fill_batch(s, d, e);
    if (filled < 0)
        return filled;
    make_room(s, d);
    if (d->n == 0) /* what joined has left at once, and its pages are free for others */
        return d->n_waiting < waited ? ST_MORE : d->n_waiting > 0 ? ST_WAIT : ST_IDLE;
    int64_t begin = clock_us();
    for (int i = 0; i < d->n; i++)
        done[i] = stage_overdue(s, d->slots[i].r) || advance(s, d, &d->slots[i]);
    int rc = compact(s, d, done);
    if (rc == 0 && d->n > 0) {
        memset(done, 0, sizeof(done));
        rc = forward(s, d, done, e);
        if (rc == 0)
            rc = compact(s, d, done);
    }
    atomic_fetch_add(&s->env->stats->decode_us, clock_us() - begin);
    atomic_fetch_add(&s->env->stats->decode_steps, 1);
    /* Even if the batch is empty now: one that waits may have its pages, and nothing else will call. */
    return rc < 0 ? rc : ST_MORE;
}

static int decode_finish(struct stage *s, struct err *e)
{
    (void)s;
    (void)e;
    return 0;
}

static void decode_close(struct stage *s)
{
    struct decoding *d = s->state;
    if (!d)
        return;
    for (int i = 0; i < d->n; i++) {
        slot_release(s, &d->slots[i]);
        rec_free(d->slots[i].r);
    }
    for (int i = 0; i < d->n_waiting; i++)
        rec_free(d->waiting[i]);
    sampler_release(&d->sampler);
    free(d->waiting);
    free(d->slots);
    free(d->rows);
    free(d);
    s->state = NULL;
}

const struct stage_ops decode_stage = {.name = "decode",
                                       .open = decode_open,
                                       .want = decode_want,
                                       .push = decode_push,
                                       .step = decode_step,
                                       .finish = decode_finish,
                                       .close = decode_close};

/* The decode stage: continuous batching.
 *
 *     step:  logits of each sequence -> sampler -> reply: ended? emit : keep
 *            one forward pass over the kept ones, one row each -> logits
 *
 * A sequence joins with the logits of its prompt and leaves when its reply ends, so the batch is filled anew
 * at each step. All memory of a sequence is taken when it joins. */
#include "stages/base/clock.h"
#include "stages/base/mem.h"
#include "stages/decode/decode_opts.h"
#include "stages/decode/reply.h"
#include "stages/decode/sampler.h"
#include "stages/model/model.h"
#include "stages/stage.h"
#include "stages/stats.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct rec *r;
    struct reply reply;
    float *logits; /* [n_vocab] of the next token */
    int64_t since;
};

struct decoding {
    struct reply_rules rules;
    struct sampler sampler;
    struct slot *slots; /* [batch], the first n are in use, in order of arrival */
    struct forward_rows *rows;
    int n, batch;
};

static int decode_open(struct stage *s, struct err *e)
{
    const struct stage_env *env = s->env;
    struct decoding *d = s->state = mem_need(sizeof(*d));
    d->batch = env->decode->batch;
    d->slots = mem_need((size_t)d->batch * sizeof(*d->slots));
    d->rows = mem_need((size_t)d->batch * sizeof(*d->rows));
    reply_rules_init(&d->rules, env->decode, model_vocab(env->model), env->chat);
    return sampler_init(&d->sampler, env->decode, model_hparams(env->model)->n_vocab, e);
}

static bool decode_want(const struct stage *s)
{
    const struct decoding *d = s->state;
    return d->n < d->batch;
}

static void slot_release(struct slot *slot)
{
    reply_close(&slot->reply);
    free(slot->logits);
    block_table_free(slot->r->seq.table);
    slot->r->seq.table = NULL;
    free(slot->r->req.tokens);
    slot->r->req.tokens = NULL;
}

/* Everything that the sequence will need: one array for all its tokens, pages for all of them. */
static int join(struct slot *slot, const struct decoding *d, struct err *e)
{
    struct request *q = &slot->r->req;
    size_t n = (size_t)q->n_tokens + (size_t)q->max_tokens;
    int32_t *tokens = mem_resize(q->tokens, n * sizeof(*tokens));
    if (!tokens)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %zu tokens", n);
    q->tokens = tokens;
    int rc = block_table_reserve(slot->r->seq.table, (int)n, e);
    return rc ? rc
              : reply_open(&slot->reply, &d->rules, tokens, q->n_tokens, tokens + q->n_tokens,
                           q->max_tokens, e);
}

static int decode_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    struct decoding *d = s->state;
    if (r->fail.code || r->doc->status == DOC_FAILED)
        return stage_emit(s, r);
    struct slot *slot = &d->slots[d->n];
    *slot = (struct slot){.r = r, .logits = r->seq.logits, .since = clock_us()};
    r->seq.logits = NULL;
    if (join(slot, d, &r->fail) != 0) {
        slot_release(slot);
        return stage_emit(s, r);
    }
    d->n++;
    return 0;
}

/* The sequence is over, well or not: hand it on. */
static int leave(struct stage *s, struct slot *slot)
{
    struct rec *r = slot->r;
    int64_t us = clock_us() - slot->since;
    r->timings.decode_us += us;
    if (!r->fail.code && reply_answer(&slot->reply, &r->answer, &r->fail) == 0)
        r->kind = REC_ANSWER;
    slot_release(slot);
    stage_count_pages(s->env);
    atomic_fetch_add(&s->env->stats->requests_done, 1);
    return stage_emit(s, r);
}

/* The next token of a sequence. True when it ends it. */
static bool advance(struct stage *s, struct decoding *d, struct slot *slot)
{
    struct request *q = &slot->r->req;
    int32_t id =
        sampler_next(&d->sampler, slot->logits, slot->reply.tokens, slot->reply.n, q->seed);
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
            slot_release(&gone);
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
        d->rows[i] = (struct forward_rows){.tokens = q->tokens,
                                           .pos = q->n_tokens + slot->reply.n - 1,
                                           .n = 1,
                                           .table = slot->r->seq.table,
                                           .want_logits = true,
                                           .logits = slot->logits};
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
    if (d->n == 0)
        return ST_IDLE;
    int64_t begin = clock_us();
    for (int i = 0; i < d->n; i++)
        done[i] = advance(s, d, &d->slots[i]);
    int rc = compact(s, d, done);
    if (rc == 0 && d->n > 0) {
        memset(done, 0, sizeof(done));
        rc = forward(s, d, done, e);
        if (rc == 0)
            rc = compact(s, d, done);
    }
    atomic_fetch_add(&s->env->stats->decode_us, clock_us() - begin);
    return rc < 0 ? rc : d->n > 0 ? ST_MORE : ST_IDLE;
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
        slot_release(&d->slots[i]);
        rec_free(d->slots[i].r);
    }
    sampler_release(&d->sampler);
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

/* The tokenize stage: prompts from chunks, and the loop of map_reduce.
 *
 *     the only chunk ----------------------> a final request per question
 *     chunks --> level 0: a request per chunk and question
 *                  answers come back, each to its place --> level complete: combine.c makes the next
 *                                                           level, or the final request
 *
 * A document that fails does so once, when nothing of it is under way any more: which of several failures
 * it reports then depends on the document alone. Until then what comes of it is absorbed here. */
#include "stages/base/mem.h"
#include "stages/decode/decode_opts.h"
#include "stages/stage.h"
#include "stages/task.h"
#include "stages/tokenize/combine.h"
#include "stages/tokenize/reduce.h"
#include "stages/tokenize/request.h"
#include "stages/write/write_opts.h"

#include <stdlib.h>

struct tokenizing {
    struct doc_state *docs; /* all that are under way */
    int n_questions;
};

static int tokenize_open(struct stage *s, struct err *e)
{
    (void)e;
    const struct task_config *task = s->env->task;
    struct tokenizing *t = s->state = mem_need(sizeof(*t));
    t->n_questions =
        task->kind == TASK_ASK && task->questions.n > 0 ? (int)task->questions.n : 1;
    return 0;
}

/* ---- documents under way ---- */

static struct doc_state *state_of(struct stage *s, const struct rec *r)
{
    struct tokenizing *t = s->state;
    if (r->doc->task)
        return r->doc->task;
    struct doc_state *d =
        doc_state_new(r->doc, r->chunk.count, t->n_questions, s->env->write->chunks);
    if (!d)
        return NULL;
    d->next = t->docs;
    if (t->docs)
        t->docs->prev = d;
    t->docs = d;
    return d;
}

static void forget(struct tokenizing *t, struct doc_state *d)
{
    if (d->prev)
        d->prev->next = d->next;
    else
        t->docs = d->next;
    if (d->next)
        d->next->prev = d->prev;
    doc_state_free(d);
}

/* When nothing more will come: send the failure, if there is one, and forget the document. */
static int settle(struct stage *s, struct doc_state *d)
{
    if (!doc_state_over(d))
        return 0;
    const struct err *why = doc_state_why(d);
    struct rec *r = NULL;
    if (why) {
        r = rec_new(REC_DOC, d->doc);
        r->fail = *why;
    }
    forget(s->state, d);
    return r ? stage_emit(s, r) : 0;
}

/* ---- what comes ---- */

/* The request of one chunk for one question. */
static int chunk_request(const struct stage_env *env, struct doc_state *d,
                         const struct chunk *c, int question, struct rec **out, struct err *e)
{
    bool final = d->n_chunks == 1;
    struct prompt_values v = {.text = d->doc->text + c->begin,
                              .text_len = c->end - c->begin,
                              .headings = c->heading_path};
    struct request q = {.use = final ? ANSWER_FINAL : ANSWER_REDUCE,
                        .max_tokens =
                            final ? env->decode->max_tokens : request_partial_tokens(env),
                        .question = question,
                        .index = c->index,
                        .n_level = d->n_chunks};
    if (request_make(env, d->doc, PROMPT_DOCUMENT, v, q, out, e) != 0)
        return final ? -(int)e->code : err_wrap(e, "chunk %d of %d", c->index + 1, d->n_chunks);
    if (final)
        (*out)->info = doc_state_info(d, question);
    else
        d->in_flight++;
    return 0;
}

/* Questions follow each other over the same text, so that the second finds the first's pages. */
static int take_chunk(struct stage *s, struct rec *r)
{
    struct doc_state *d = state_of(s, r);
    if (!d) {
        err_set(&r->fail, REACH_DOC, ERR_NOMEM, "no memory for %d chunks", r->chunk.count);
        return stage_emit(s, r);
    }
    const struct chunk *c = doc_state_chunk(d, &r->chunk);
    rec_free(r);
    int rc = 0;
    for (int i = 0; i < d->n_questions && rc == 0; i++) {
        struct rec *out;
        struct err why = {0};
        if (d->questions[i].why.code)
            continue;
        if (chunk_request(s->env, d, c, i, &out, &why) == 0)
            rc = stage_emit(s, out);
        else
            doc_state_fail(d, i, c->index, &why);
    }
    return rc < 0 ? rc : settle(s, d);
}

static int take_answer(struct stage *s, struct rec *r)
{
    struct doc_state *d = r->doc->task;
    int question = r->req.question, n = 0, rc = 0;
    bool complete = doc_state_answer(d, r);
    rec_free(r);
    struct rec **out = NULL;
    struct err why = {0};
    if (complete && combine_level(s->env, d, question, &out, &n, &why) != 0)
        doc_state_fail(d, question, 0, &why);
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = stage_emit(s, out[i]);
        else
            rec_free(out[i]);
    }
    free(out);
    return rc < 0 ? rc : settle(s, d);
}

static int tokenize_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    if (r->kind >= REC_REQUEST && r->req.use == ANSWER_REDUCE)
        return take_answer(s, r);
    if (rec_passes(r))
        return stage_emit(s, r);
    return take_chunk(s, r);
}

static int tokenize_finish(struct stage *s, struct err *e)
{
    (void)s;
    (void)e;
    return 0;
}

static void tokenize_close(struct stage *s)
{
    struct tokenizing *t = s->state;
    if (!t)
        return;
    while (t->docs) /* of a run that was stopped */
        forget(t, t->docs);
    free(t);
    s->state = NULL;
}

const struct stage_ops tokenize_stage = {.name = "tokenize",
                                         .open = tokenize_open,
                                         .push = tokenize_push,
                                         .finish = tokenize_finish,
                                         .close = tokenize_close};

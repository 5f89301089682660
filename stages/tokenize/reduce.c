#include "stages/tokenize/reduce.h"

#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>

int level_begin(struct level *l, int number, int n, int64_t tokens_before, struct err *e)
{
    struct answer *at = mem_alloc((size_t)n * sizeof(*at));
    if (!at)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %d partial answers", n);
    level_release(l);
    *l = (struct level){.number = number, .at = at, .n = n, .tokens_before = tokens_before};
    return 0;
}

void level_release(struct level *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->at[i].text);
    free(l->at);
    *l = (struct level){0};
}

static bool questions_new(struct doc_state *s, bool keep)
{
    for (int i = 0; i < s->n_questions && s->n_chunks > 1; i++) {
        struct question_state *q = &s->questions[i];
        struct err e = {0};
        if (level_begin(&q->level, 0, s->n_chunks, 0, &e) != 0)
            return false;
        if (keep && !(q->parts = mem_alloc((size_t)s->n_chunks * sizeof(*q->parts))))
            return false;
    }
    return true;
}

struct doc_state *doc_state_new(struct doc *d, int n_chunks, int n_questions, bool keep)
{
    struct doc_state *s = mem_need(sizeof(*s));
    *s =
        (struct doc_state){.doc = doc_ref(d), .n_chunks = n_chunks, .n_questions = n_questions};
    s->chunks = mem_alloc((size_t)n_chunks * sizeof(*s->chunks));
    s->questions = mem_alloc((size_t)n_questions * sizeof(*s->questions));
    if (!s->chunks || !s->questions || !questions_new(s, keep)) {
        doc_state_free(s);
        return NULL;
    }
    d->task = s;
    return s;
}

static void parts_free(struct part_answer *parts, int n)
{
    for (int i = 0; parts && i < n; i++) {
        free(parts[i].heading_path);
        free(parts[i].answer.text);
    }
    free(parts);
}

void doc_state_free(struct doc_state *s)
{
    if (!s)
        return;
    for (int i = 0; s->chunks && i < s->n_chunks; i++)
        free(s->chunks[i].heading_path);
    for (int i = 0; s->questions && i < s->n_questions; i++) {
        level_release(&s->questions[i].level);
        parts_free(s->questions[i].parts, s->n_chunks);
    }
    free(s->chunks);
    free(s->questions);
    s->doc->task = NULL;
    doc_unref(s->doc);
    free(s);
}

struct chunk *doc_state_chunk(struct doc_state *s, struct chunk *c)
{
    struct chunk *own = &s->chunks[c->index];
    *own = *c;
    c->heading_path = NULL;
    s->chunks_seen++;
    s->tokens += own->tokens;
    s->covered += own->end - own->begin;
    return own;
}

void doc_state_fail(struct doc_state *s, int i, int index, const struct err *why)
{
    struct question_state *q = &s->questions[i];
    if (q->why.code && q->why_index <= index)
        return;
    q->why = *why;
    q->why.reach = REACH_DOC;
    q->why_index = index;
}

const struct err *doc_state_why(const struct doc_state *s)
{
    for (int i = 0; i < s->n_questions; i++)
        if (s->questions[i].why.code)
            return &s->questions[i].why;
    return NULL;
}

bool doc_state_over(const struct doc_state *s)
{
    return s->chunks_seen == s->n_chunks && s->in_flight == 0;
}

static void add_cost(struct question_state *q, const struct rec *r)
{
    q->account.prompt += r->req.n_tokens;
    q->account.reused += r->n_reused;
    q->account.generated += r->answer.n_tokens;
    q->timings.prefill_us += r->timings.prefill_us;
    q->timings.decode_us += r->timings.decode_us;
    q->timings.wait_us += r->timings.wait_us;
    q->flags |= r->answer.flags;
}

static void keep_part(struct part_answer *p, const struct chunk *c, const struct answer *a)
{
    *p = (struct part_answer){.index = c->index,
                              .begin = c->begin,
                              .end = c->end,
                              .page_first = c->page_first,
                              .page_last = c->page_last,
                              .heading_path =
                                  c->heading_path ? mem_strdup(c->heading_path) : NULL,
                              .answer = *a};
    p->answer.text = mem_strdup(a->text);
}

/* No text is a failure: a summary that leaves a part out without a word would look complete. */
static void check_answer(const struct rec *r, struct err *e)
{
    const struct answer *a = &r->answer;
    if (r->fail.code)
        *e = r->fail;
    else if (a->flags & ANSWER_EMPTY)
        err_set(e, REACH_DOC, ERR_FORMAT,
                "the model gave no text in %d tokens (%d of them thinking, stopped by %s)",
                a->n_tokens, a->n_thinking, stopped_by_name(a->stopped_by));
}

bool doc_state_answer(struct doc_state *s, struct rec *r)
{
    struct question_state *q = &s->questions[r->req.question];
    struct level *l = &q->level;
    int i = r->req.index;
    struct err e = {0};
    s->in_flight--;
    add_cost(q, r);
    check_answer(r, &e);
    if (e.code) {
        if (l->number == 0)
            err_wrap(&e, "answer to chunk %d of %d", i + 1, l->n);
        else
            err_wrap(&e, "level %d, answer %d of %d", l->number, i + 1, l->n);
        doc_state_fail(s, r->req.question, i, &e);
        return false;
    }
    if (l->number == 0 && q->parts)
        keep_part(&q->parts[i], &s->chunks[i], &r->answer);
    l->at[i] = r->answer;
    r->answer.text = NULL;
    l->have++;
    return l->have == l->n && !q->why.code;
}

struct summary_info *doc_state_info(struct doc_state *s, int i)
{
    struct question_state *q = &s->questions[i];
    struct summary_info *info = mem_need(sizeof(*info));
    *info = (struct summary_info){.n_finals = s->n_questions,
                                  .n_chunks = s->n_chunks,
                                  .n_levels = q->n_levels,
                                  .covered = s->covered,
                                  .account = q->account,
                                  .timings = q->timings,
                                  .flags = q->flags,
                                  .parts = q->parts,
                                  .n_parts = q->parts ? s->n_chunks : 0};
    /* The chunks are all of the text and each was fed whole, or the document has failed. */
    info->account.document = info->account.fed = s->tokens;
    q->parts = NULL;
    return info;
}

#include "stages/tokenize/combine.h"

#include "stages/base/mem.h"
#include "stages/decode/decode_opts.h"
#include "stages/model/model.h"
#include "stages/task.h"
#include "stages/tokenize/group.h"
#include "stages/tokenize/request.h"

#include <inttypes.h>
#include <stdlib.h>

/* A level that leaves more than this share of the tokens that went into it will not come to an end. */
enum { SHRINK_PERCENT = 75 };

/* A complete level, as texts with their counts, and the groups found for it. */
struct combining {
    const struct stage_env *env;
    const struct vocab *vocab;
    struct doc_state *d;
    int question;
    struct level *level;
    struct part_text *parts; /* [n] */
    int64_t *tokens;         /* [n] */
    int *first;              /* [n], of each group */
    int n, groups;
    int64_t sum;
};

static int64_t count(const void *ctx, const char *text, size_t len)
{
    return vocab_count(ctx, text, len);
}

static int read_level(struct combining *c, struct err *e)
{
    size_t n = (size_t)c->n;
    c->parts = mem_alloc(n * sizeof(*c->parts));
    c->tokens = mem_alloc(n * sizeof(*c->tokens));
    c->first = mem_alloc(n * sizeof(*c->first));
    bool ok = c->parts && c->tokens && c->first;
    for (int i = 0; ok && i < c->n; i++) {
        const struct answer *a = &c->level->at[i];
        c->parts[i] = (struct part_text){a->text, a->len};
        c->tokens[i] = vocab_count(c->vocab, a->text, a->len);
        c->sum += c->tokens[i];
        ok = c->tokens[i] >= 0;
    }
    return ok ? 0 : err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %d partial answers", c->n);
}

static int group(struct combining *c, int max_tokens, struct err *e)
{
    int64_t room;
    int bad = -1;
    if (request_room(c->env, c->d->doc, PROMPT_REDUCE, c->question, max_tokens, &room, e) != 0)
        return -(int)e->code;
    c->groups =
        group_parts(c->parts, c->tokens, c->n, room, count, c->vocab, c->first, &bad, e);
    if (c->groups > 0)
        return 0;
    if (bad >= 0 && c->level->number == 0)
        err_wrap(e, "answer to chunk %d of %d", bad + 1, c->n);
    else if (bad >= 0)
        err_wrap(e, "level %d, answer %d of %d", c->level->number, bad + 1, c->n);
    return -(int)e->code;
}

static bool fits_in_one(struct combining *c, struct err *e)
{
    int max_tokens = c->env->decode->max_tokens;
    int64_t room;
    if (request_room(c->env, c->d->doc, PROMPT_REDUCE, c->question, max_tokens, &room, e) != 0)
        return false;
    return c->sum <= room && group(c, max_tokens, e) == 0 && c->groups == 1;
}

/* May a level be made that is not the last? */
static int check_progress(const struct combining *c, struct err *e)
{
    const struct level *l = c->level;
    int64_t before = l->number == 0 ? c->d->tokens : l->tokens_before;
    if (c->sum * 100 > before * SHRINK_PERCENT)
        return err_set(e, REACH_DOC, ERR_LIMIT,
                       "partial answers do not shrink: level %d made %" PRId64
                       " tokens of %" PRId64
                       "; set a smaller task.partial_tokens or larger chunk.tokens",
                       l->number, c->sum, before);
    if (l->number + 2 > c->env->task->max_levels)
        return err_set(e, REACH_DOC, ERR_LIMIT,
                       "the %d partial answers of level %d need more than the %d levels of "
                       "task.max_levels; "
                       "set more, or a larger model.context",
                       c->n, l->number, c->env->task->max_levels);
    return 0;
}

/* The request of group g; parts of one prompt are joined by blank lines, as group_parts() counted them. */
static int make_one(const struct combining *c, int g, bool last, struct rec **out,
                    struct err *e)
{
    int begin = c->first[g], end = g + 1 < c->groups ? c->first[g + 1] : c->n;
    struct request q = {.use = last ? ANSWER_FINAL : ANSWER_REDUCE,
                        .max_tokens =
                            last ? c->env->decode->max_tokens : request_partial_tokens(c->env),
                        .question = c->question,
                        .level = c->level->number + 1,
                        .index = g};
    struct buf text;
    buf_init(&text, SIZE_MAX / 2);
    int rc = group_join(c->parts + begin, end - begin, &text, e);
    struct prompt_values v = {.text = text.data, .text_len = text.len};
    if (rc == 0)
        rc = request_make(c->env, c->d->doc, PROMPT_REDUCE, v, q, out, e);
    if (rc < 0)
        err_wrap(e, "level %d, prompt %d of %d", q.level, g + 1, c->groups);
    buf_release(&text);
    return rc;
}

static int make_all(const struct combining *c, bool last, struct rec **out, struct err *e)
{
    struct question_state *q = &c->d->questions[c->question];
    int made = 0, rc = 0, number = c->level->number + 1;
    while (made < c->groups && (rc = make_one(c, made, last, &out[made], e)) == 0)
        made++;
    /* The texts of this level are in the prompts now. */
    if (rc == 0 && !last)
        rc = level_begin(c->level, number, c->groups, c->sum, e);
    while (rc < 0 && made > 0)
        rec_free(out[--made]);
    if (rc < 0)
        return rc;
    q->n_levels = number;
    if (last) {
        out[0]->info = doc_state_info(c->d, c->question);
        level_release(c->level);
    } else {
        c->d->in_flight += c->groups;
    }
    return 0;
}

int combine_level(const struct stage_env *env, struct doc_state *d, int i, struct rec ***out,
                  int *n_out, struct err *e)
{
    struct combining c = {.env = env,
                          .vocab = model_vocab(env->model),
                          .d = d,
                          .question = i,
                          .level = &d->questions[i].level,
                          .n = d->questions[i].level.n};
    *out = NULL;
    bool last = read_level(&c, e) == 0 && fits_in_one(&c, e);
    if (!e->code && !last && check_progress(&c, e) == 0)
        group(&c, request_partial_tokens(env), e);
    if (!e->code && !(*out = mem_alloc((size_t)c.groups * sizeof(**out))))
        err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %d requests", c.groups);
    if (!e->code && make_all(&c, last, *out, e) == 0)
        *n_out = c.groups;
    if (e->code) {
        free(*out);
        *out = NULL;
    }
    free(c.parts);
    free(c.tokens);
    free(c.first);
    return -(int)e->code;
}

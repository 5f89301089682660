/* The chunk stage: how many prompts a document needs, and where it is cut for them.
 *
 * One chunk when the whole text, the prompt around it and the answer fit into the context; whether they do
 * is found by cutting one piece, which costs no more than the context even for a text of gigabytes. */
#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/chunk/chunk_opts.h"
#include "stages/chunk/cuts.h"
#include "stages/chunk/headings.h"
#include "stages/decode/decode_opts.h"
#include "stages/model/model.h"
#include "stages/model/prompt.h"
#include "stages/stage.h"
#include "stages/stats.h"
#include "stages/task.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What the counter and the room of one document need. */
struct cutting {
    const struct stage_env *env;
    const struct vocab *vocab;
    const struct doc *doc;
    struct headings headings;
    int answer_tokens; /* kept free beside the prompt */
    int most_tokens;   /* of a piece; 0: no limit of its own */
};

static int64_t count(void *ctx, const char *text, size_t len)
{
    const struct cutting *c = ctx;
    return vocab_count(c->vocab, text, len);
}

/* Tokens of a prompt with everything but the text: the dearest question decides. -1: no memory. */
static int64_t fixed_tokens(struct cutting *c, size_t begin)
{
    const struct opt_list *q = &c->env->task->questions;
    bool ask = c->env->task->kind == TASK_ASK;
    char *headings = heading_path(&c->headings, begin);
    struct prompt_values v = {.text = "", .title = c->doc->title, .headings = headings};
    int64_t most = 0;
    for (size_t i = 0; i < (ask ? q->n : 1); i++) {
        v.question = ask ? q->items[i] : NULL;
        int n = prompt_fixed_tokens(c->env->prompts, PROMPT_DOCUMENT, &v);
        most = n < 0 ? -1 : n > most ? n : most;
        if (n < 0)
            break;
    }
    free(headings);
    return most;
}

static int64_t room(void *ctx, size_t begin)
{
    struct cutting *c = ctx;
    int64_t fixed = fixed_tokens(c, begin);
    if (fixed < 0)
        return ROOM_NO_MEMORY;
    int64_t fits = c->env->context - fixed - c->answer_tokens;
    return c->most_tokens > 0 && c->most_tokens < fits ? c->most_tokens : fits;
}

static int no_memory(struct err *e)
{
    return err_set(e, REACH_DOC, ERR_NOMEM, "no memory to count tokens");
}

/* The document does not fit into one prompt, and the job wants one. */
static int too_long(struct cutting *c, struct err *e)
{
    int64_t text = vocab_count(c->vocab, c->doc->text, c->doc->text_len),
            fixed = fixed_tokens(c, 0);
    if (text < 0 || fixed < 0)
        return no_memory(e);
    bool complete = c->env->task->kind == TASK_COMPLETE;
    return err_set(e, REACH_DOC, ERR_LIMIT,
                   "the document has %" PRId64 " tokens; with %" PRId64
                   " of prompt and %d of answer that is "
                   "%" PRId64
                   ", over the %d of model.context; set a larger model.context or a smaller "
                   "decode.max_tokens%s",
                   text, fixed, c->answer_tokens, text + fixed + c->answer_tokens,
                   c->env->context, complete ? "" : ", or task.strategy: auto");
}

static int cut(const struct stage *s, const struct doc *d, struct piece_list *out,
               struct err *e)
{
    const struct stage_env *env = s->env;
    struct cutting c = {.env = env,
                        .vocab = model_vocab(env->model),
                        .doc = d,
                        .headings = {.doc = d},
                        .answer_tokens = env->decode->max_tokens};
    struct cut_text text = {
        .text = d->text, .len = d->text_len, .blocks = d->blocks, .n_blocks = d->n_blocks};
    struct cut_rules rules = {.ctx = &c, .count = count, .room = room};
    if (env->task->kind == TASK_COMPLETE || env->task->strategy != STRATEGY_MAP_REDUCE) {
        int64_t first = room(&c, 0);
        if (first == ROOM_NO_MEMORY)
            return no_memory(e);
        /* No room at all for text is a text that does not fit, whatever its length. */
        if (first >= 1 && cuts_make(&text, &rules, 1, out, e) != 0)
            return -(int)e->code;
        if (out->n == 1 && out->items[0].end == d->text_len)
            return 0;
        if (env->task->kind == TASK_COMPLETE || env->task->strategy == STRATEGY_SINGLE)
            return too_long(&c, e);
        out->n = 0;
    }
    if (env->task->partial_tokens > c.answer_tokens)
        c.answer_tokens = env->task->partial_tokens;
    c.most_tokens = env->chunk->tokens;
    rules.min_tokens = env->chunk->min_tokens;
    return cuts_make(&text, &rules, 0, out, e);
}

static void find_pages(const struct doc *d, struct chunk *c, size_t *from)
{
    for (size_t i = *from; i < d->n_blocks && d->blocks[i].begin < c->end; i++) {
        const struct block *b = &d->blocks[i];
        if (b->end <= c->begin) {
            *from = i + 1;
            continue;
        }
        if (b->page == 0)
            continue;
        if (c->page_first == 0 || b->page < c->page_first)
            c->page_first = b->page;
        if (b->page > c->page_last)
            c->page_last = b->page;
    }
}

static bool has_text(const struct doc *d)
{
    return d->text && strspn(d->text, " \t\n\v\f\r") < d->text_len;
}

static int chunk_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    struct doc *d = r->doc;
    if (rec_passes(r))
        return stage_emit(s, r);
    struct piece_list pieces = {0};
    if (!has_text(d))
        err_set(&r->fail, REACH_DOC, ERR_FORMAT, "the document has no text");
    else if (cut(s, d, &pieces, &r->fail) == 0 && pieces.n > INT32_MAX / 2)
        err_set(&r->fail, REACH_DOC, ERR_LIMIT, "the document would need %zu chunks", pieces.n);
    if (r->fail.code) {
        piece_list_release(&pieces);
        return stage_emit(s, r);
    }
    int rc = 0;
    size_t block = 0;
    struct headings headings = {.doc = d};
    for (size_t i = 0; i < pieces.n && rc == 0; i++) {
        const struct piece *p = &pieces.items[i];
        struct rec *out = rec_new(REC_CHUNK, d);
        out->chunk = (struct chunk){.index = (int)i,
                                    .count = (int)pieces.n,
                                    .begin = p->begin,
                                    .end = p->end,
                                    .tokens = p->tokens,
                                    .heading_path = heading_path(&headings, p->begin)};
        find_pages(d, &out->chunk, &block);
        atomic_fetch_add(&s->env->stats->chunks_made, 1);
        atomic_fetch_add(&s->env->stats->doc_tokens, p->tokens);
        rc = stage_emit(s, out);
    }
    piece_list_release(&pieces);
    rec_free(r);
    return rc;
}

static int chunk_open(struct stage *s, struct err *e)
{
    (void)s;
    (void)e;
    return 0;
}

static int chunk_finish(struct stage *s, struct err *e)
{
    (void)s;
    (void)e;
    return 0;
}

static void chunk_close(struct stage *s)
{
    (void)s;
}

const struct stage_ops chunk_stage = {.name = "chunk",
                                      .open = chunk_open,
                                      .push = chunk_push,
                                      .finish = chunk_finish,
                                      .close = chunk_close};

/* tests/unit/task_rig.h - the four middle stages wired in one thread, for tests.
 *
 * What:   chunk -> tokenize -> prefill -> decode with the null model or a model file; or, with `answer` set,
 *         chunk -> tokenize and a function in place of the model. Order of work can be varied; results may
 *         not change with it.
 */
#ifndef QUIRE_TESTS_TASK_RIG_H
#define QUIRE_TESTS_TASK_RIG_H

#include "stages/base/mem.h"
#include "stages/chunk/chunk_opts.h"
#include "stages/decode/decode_opts.h"
#include "stages/kv/kv_opts.h"
#include "stages/kv/store.h"
#include "stages/model/model.h"
#include "stages/model/prompt.h"
#include "stages/prefill/prefill_opts.h"
#include "stages/stage.h"
#include "stages/stats.h"
#include "stages/task.h"
#include "stages/write/write_opts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct rig_list {
    struct rec **at;
    int n, cap;
};

/* Sets text (heap) and n_tokens of the answer, or fail. */
typedef void rig_answer_fn(void *ctx, struct rec *r);

struct rig {
    /* set before rig_open() */
    struct chunk_config chunk;
    struct prompt_config prompt;
    struct task_config task;
    struct prefill_config prefill;
    struct decode_config decode;
    struct kv_config kv;
    struct write_config write;
    const char *file; /* a GGUF file; NULL: the null model */
    unsigned cpu_flags;
    int context, n_pages, depth; /* depth: records between prefill and decode */
    rig_answer_fn *answer;
    void *answer_ctx;
    bool newest_first; /* answer: which waiting request is served */

    struct model *model;
    struct chat *chat;
    struct prompts *prompts;
    struct page_pool *pages;
    struct disk *disk; /* where kv.disk says; NULL: none */
    struct store *store;
    struct run_stats stats;
    atomic_bool cancel;
    struct stage_env env;
    struct stage stages[4];
    struct rig_node {
        struct rig *rig;
        int i;
    } nodes[4];
    struct rig_list in[5], loop; /* in[i]: for stage i; in[4]: for write */
    int requests, most_tokens;
    atomic_bool woken; /* by another thread: as the bell of the runner */
};

static inline void rig_put(struct rig_list *l, struct rec *r)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 16;
        l->at = realloc(l->at, (size_t)l->cap * sizeof(*l->at));
    }
    l->at[l->n++] = r;
}

static inline struct rec *rig_take(struct rig_list *l, bool newest)
{
    struct rec *r = l->at[newest ? l->n - 1 : 0];
    l->n--;
    if (!newest)
        memmove(l->at, l->at + 1, (size_t)l->n * sizeof(*l->at));
    return r;
}

static inline int rig_emit(void *runner, struct rec *r)
{
    struct rig_node *n = runner;
    bool reduce = r->kind >= REC_REQUEST && r->req.use == ANSWER_REDUCE;
    if (n->i == 1 && r->kind == REC_REQUEST) {
        n->rig->requests++;
        int tokens = r->req.n_tokens + r->req.max_tokens;
        if (tokens > n->rig->most_tokens)
            n->rig->most_tokens = tokens;
    }
    rig_put(n->i == 3 && reduce ? &n->rig->loop : &n->rig->in[n->i + 1], r);
    return 0;
}

static inline void rig_wake(void *runner)
{
    struct rig_node *n = runner;
    atomic_store(&n->rig->woken, true);
}

/* Defaults of the option tables, and small sizes. */
static inline void rig_init(struct rig *g)
{
    struct err e = {0};
    memset(g, 0, sizeof(*g));
    assert_int_equal(opt_defaults(chunk_opts, n_chunk_opts, &g->chunk, &e), 0);
    assert_int_equal(opt_defaults(prompt_opts, n_prompt_opts, &g->prompt, &e), 0);
    assert_int_equal(opt_defaults(task_opts, n_task_opts, &g->task, &e), 0);
    assert_int_equal(opt_defaults(prefill_opts, n_prefill_opts, &g->prefill, &e), 0);
    assert_int_equal(opt_defaults(decode_opts, n_decode_opts, &g->decode, &e), 0);
    assert_int_equal(opt_defaults(kv_opts, n_kv_opts, &g->kv, &e), 0);
    g->context = 4096;
    g->depth = 4;
    g->n_pages = 600;
    g->cpu_flags = kern_cpu_flags();
}

static inline void rig_open(struct rig *g)
{
    struct err e = {0};
    char *file = g->file ? mem_strdup(g->file) : NULL;
    struct model_config mc = {
        .kind = g->file ? MODEL_GGUF : MODEL_NULL, .file = file, .context = g->context};
    struct kernels k;
    kernels_init(&k, g->cpu_flags);
    if (model_open(&g->model, &mc, &e) != 0)
        fail_msg("%s", e.msg);
    int rows = g->prefill.batch > g->decode.batch ? g->prefill.batch : g->decode.batch;
    assert_int_equal(model_load(g->model, &k, rows, g->decode.batch, &e), 0);
    const struct vocab *v = model_vocab(g->model);
    if (g->file)
        assert_int_equal(chat_open(&g->chat, v, model_gguf(g->model), &g->prompt, ".", &e), 0);
    else
        g->chat = chat_null(v);
    if (prompts_open(&g->prompts, &g->prompt, g->task.kind, g->chat, v, &e) != 0)
        fail_msg("%s", e.msg);
    struct model_sizes sizes;
    model_plan(g->model, rows, g->decode.batch, &sizes);
    uint8_t digest[HASH_BYTES];
    assert_int_equal(page_pool_new(&g->pages, g->n_pages, sizes.n_layer, sizes.slice_bytes, &e),
                     0);
    struct page_use use = {.codec = "exact", .attention = "full"};
    assert_int_equal(model_context_digest(g->model, &use, digest, &e), 0);
    if (g->kv.disk) {
        struct disk_options d = {.folder = g->kv.disk};
        if (disk_open(&g->disk, &d, &e) != 0)
            fail_msg("%s", e.msg);
    }
    struct store_options so = {.pool = g->pages,
                               .shape = model_kv_shape(g->model),
                               .reuse = g->kv.reuse,
                               .codec = CODEC_SPLIT,
                               .keep = (enum keep)g->kv.keep,
                               .n_vocab = model_hparams(g->model)->n_vocab,
                               .disk = g->disk,
                               .counters = &g->stats.kv,
                               .stability = &g->stats.stability};
    memcpy(so.context, digest, HASH_BYTES);
    assert_int_equal(store_open(&g->store, &so, &e), 0);
    g->env = (struct stage_env){.chunk = &g->chunk,
                                .prompt = &g->prompt,
                                .task = &g->task,
                                .prefill = &g->prefill,
                                .decode = &g->decode,
                                .kv = &g->kv,
                                .write = &g->write,
                                .model = g->model,
                                .chat = g->chat,
                                .prompts = g->prompts,
                                .context = g->context,
                                .pages = g->pages,
                                .store = g->store,
                                .stats = &g->stats,
                                .cancel = &g->cancel};
    const struct stage_ops *ops[4] = {&chunk_stage, &tokenize_stage, &prefill_stage,
                                      &decode_stage};
    for (int i = 0; i < 4; i++) {
        g->nodes[i] = (struct rig_node){g, i};
        g->stages[i] = (struct stage){.ops = ops[i],
                                      .env = &g->env,
                                      .emit = rig_emit,
                                      .wake = rig_wake,
                                      .runner = &g->nodes[i]};
        assert_int_equal(ops[i]->open(&g->stages[i], &e), 0);
    }
    free(file);
}

static inline bool rig_push(struct rig *g, int i, struct rig_list *from, bool newest)
{
    struct stage *s = &g->stages[i];
    struct err e = {0};
    if (from->n == 0 || (s->ops->want && !s->ops->want(s)))
        return false;
    assert_int_equal(s->ops->push(s, rig_take(from, newest), &e), 0);
    return true;
}

static inline bool rig_step(struct rig *g, int i)
{
    struct err e = {0};
    int rc = g->stages[i].ops->step(&g->stages[i], &e);
    if (rc < 0)
        fail_msg("%s", e.msg);
    return rc == ST_MORE;
}

/* In place of prefill and decode. */
static inline bool rig_fake(struct rig *g)
{
    if (g->in[2].n == 0)
        return false;
    struct rec *r = rig_take(&g->in[2], g->newest_first);
    if (!r->fail.code) {
        g->answer(g->answer_ctx, r);
        r->answer.stopped_by = STOP_EOS;
        r->answer.len = r->answer.text ? strlen(r->answer.text) : 0;
        r->answer.flags |= r->answer.len ? 0 : ANSWER_EMPTY;
        if (!r->fail.code)
            r->kind = REC_ANSWER;
    }
    bool reduce = r->kind >= REC_REQUEST && r->req.use == ANSWER_REDUCE;
    rig_put(reduce ? &g->loop : &g->in[4], r);
    return true;
}

/* One turn of everything, the last stage first, as the runner does it. False when nothing could be done. */
static inline bool rig_turn(struct rig *g)
{
    bool worked = false;
    if (!g->answer) {
        worked |= rig_step(g, 3);
        worked |= rig_push(g, 3, &g->in[3], false);
        if (g->in[3].n < g->depth)
            worked |= rig_step(g, 2);
        worked |= rig_push(g, 2, &g->in[2], false);
    }
    worked |= rig_push(g, 1, &g->loop, g->newest_first);
    worked |= rig_push(g, 1, &g->in[1], false);
    worked |= rig_push(g, 0, &g->in[0], false);
    if (g->answer &&
        (!worked || g->in[2].n > 40)) /* late, so that their order can be turned round */
        worked |= rig_fake(g);
    return worked;
}

/* Takes the documents. */
static inline void rig_give(struct rig *g, struct doc **docs, int n)
{
    for (int i = 0; i < n; i++) {
        docs[i]->ordinal = i;
        rig_put(&g->in[0], rec_new(REC_DOC, docs[i]));
        doc_unref(docs[i]);
    }
}

/* All documents to the end; their final records are in g->in[4]. Takes the documents. */
static inline void rig_run(struct rig *g, struct doc **docs, int n)
{
    rig_give(g, docs, n);
    bool worked;
    do { /* As the runner: a turn that did nothing is the last, unless it is woken during it or later. */
        atomic_store(&g->woken, false);
        worked = rig_turn(g);
    } while (worked || atomic_load(&g->woken) || store_settle(g->store, true));
    for (int i = 0; i < 4; i++)
        assert_int_equal(g->in[i].n, 0);
}

static inline void rig_close(struct rig *g)
{
    struct err e = {0};
    for (int i = 0; i < 4; i++)
        g->stages[i].ops->close(&g->stages[i]);
    for (int i = 0; i < 6; i++) {
        struct rig_list *l = i < 5 ? &g->in[i] : &g->loop;
        for (int k = 0; k < l->n; k++)
            rec_free(l->at[k]);
        free(l->at);
    }
    store_settle(g->store, false);
    if (page_pool_audit(g->pages, 0, &e) != 0)
        fail_msg("%s", e.msg);
    store_close(g->store);
    disk_close(g->disk);
    page_pool_free(g->pages);
    prompts_free(g->prompts);
    chat_free(g->chat);
    model_free(g->model);
    opt_release(prompt_opts, n_prompt_opts, &g->prompt);
    opt_release(task_opts, n_task_opts, &g->task);
    opt_release(decode_opts, n_decode_opts, &g->decode);
}

/* A document of paragraphs that blank lines part. */
static inline struct doc *rig_doc(const char *text)
{
    struct doc *d = doc_new();
    d->source = mem_strdup("rig.txt");
    d->media_type = mem_strdup("text/plain");
    d->text = mem_strdup(text);
    d->text_len = strlen(text);
    uint8_t digest[HASH_BYTES];
    char hex[HASH_HEX];
    hash_bytes(text, d->text_len, digest);
    hash_hex(digest, hex);
    memcpy(d->id, hex, 32);
    d->blocks = malloc((d->text_len / 2 + 1) * sizeof(*d->blocks));
    for (size_t at = 0; at < d->text_len;) {
        const char *end = strstr(text + at, "\n\n");
        size_t stop = end ? (size_t)(end - text) : d->text_len;
        if (stop > at)
            d->blocks[d->n_blocks++] =
                (struct block){.kind = BLOCK_PARAGRAPH, .begin = at, .end = stop, .part = -1};
        at = stop + 2;
    }
    return d;
}

/* The bytes of a prompt of the null model's vocabulary; heap. */
static inline char *rig_prompt(const struct rec *r)
{
    char *s = malloc((size_t)r->req.n_tokens + 1);
    int n = 0;
    for (int i = 0; i < r->req.n_tokens; i++)
        if (r->req.tokens[i] < 256)
            s[n++] = (char)r->req.tokens[i];
    s[n] = '\0';
    return s;
}

static inline void rig_question(struct rig *g, const char *text)
{
    struct err e = {0};
    assert_int_equal(
        opt_set(opt_find(task_opts, n_task_opts, "questions"), &g->task, text, ".", &e), 0);
}

#endif

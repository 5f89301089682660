#include "stages/tokenize/request.h"

#include "stages/base/hash.h"
#include "stages/base/mem.h"
#include "stages/decode/decode_opts.h"
#include "stages/kv/codec.h"
#include "stages/kv/kv_opts.h"
#include "stages/ledger/ledger.h"
#include "stages/stats.h"
#include "stages/task.h"

#include <stdlib.h>
#include <string.h>

static const char *question_text(const struct stage_env *env, int i)
{
    const struct task_config *t = env->task;
    return t->kind == TASK_ASK && (size_t)i < t->questions.n ? t->questions.items[i] : NULL;
}

int request_partial_tokens(const struct stage_env *env)
{
    return env->task->partial_tokens > 0 ? env->task->partial_tokens : env->decode->max_tokens;
}

static uint64_t seed_for(const struct stage_env *env, const struct doc *d,
                         const struct request *q)
{
    uint8_t digest[HASH_BYTES];
    struct hash h;
    hash_init(&h);
    hash_field_u64(&h, "seed", (uint64_t)env->decode->seed);
    hash_field(&h, "document", d->id, strlen(d->id));
    hash_field_u64(&h, "question", (uint64_t)q->question);
    hash_field_u64(&h, "level", (uint64_t)q->level);
    hash_field_u64(&h, "index", (uint64_t)q->index);
    hash_end(&h, digest);
    uint64_t seed = 0;
    for (int i = 0; i < 8; i++)
        seed = seed << 8 | digest[i];
    return seed;
}

static int check_size(const struct stage_env *env, int n_tokens, int max_tokens, struct err *e)
{
    if (n_tokens == 0)
        return err_set(e, REACH_DOC, ERR_FORMAT, "the prompt has no tokens");
    if ((int64_t)n_tokens + max_tokens > env->context)
        return err_set(e, REACH_DOC, ERR_LIMIT,
                       "the prompt has %d tokens; with %d of answer that is over the %d of "
                       "model.context; set "
                       "a larger model.context, or a smaller decode.max_tokens or chunk.tokens",
                       n_tokens, max_tokens, env->context);
    return 0;
}

/* ---- what earlier runs have made of it ---- */

/* Everything that decides which tokens the answer has. The digest of the settings covers the model, its arithmetic,
 * how tokens are drawn, and what ends an answer. */
static void find_key(const struct stage_env *env, struct request *q)
{
    struct hash h;
    hash_init(&h);
    hash_field(&h, "settings", env->facts->prompt_digest, strlen(env->facts->prompt_digest));
    hash_field(&h, "tokens", q->tokens, (size_t)q->n_tokens * sizeof(*q->tokens));
    hash_field_u64(&h, "most", (uint64_t)q->max_tokens);
    hash_field_u64(&h, "seed", q->seed);
    hash_end(&h, q->key);
}

/* Pages of a lossy codec are rounded as they fill up, which a prompt that begins with the answer would do at other
 * places: such answers are written anew. */
static bool may_go_on(const struct stage_env *env)
{
    return !codec_is_lossy((enum codec_kind)env->kv->codec);
}

/* Put the tokens behind the prompt. Without memory for them the answer is written anew. */
static void add_begun(const struct stage_env *env, struct request *q)
{
    int n = 0;
    int32_t *begun = may_go_on(env) ? ledger_tokens(env->ledger, q->key, &n) : NULL;
    int32_t *more = NULL;
    if (begun && n <= q->max_tokens)
        more = mem_resize(q->tokens, ((size_t)q->n_tokens + (size_t)n) * sizeof(*more));
    if (more) {
        memcpy(more + q->n_tokens, begun, (size_t)n * sizeof(*more));
        q->tokens = more;
        q->n_tokens += n;
        q->max_tokens -= n;
        q->n_answered = n;
        atomic_fetch_add(&env->stats->tokens_found, n);
    }
    free(begun);
}

/* An answer that is there already, or the beginning of one. */
static void look_up(const struct stage_env *env, struct rec *r)
{
    struct ledger_answer a;
    if (!env->ledger)
        return;
    find_key(env, &r->req);
    if (!ledger_take_answer(env->ledger, r->req.key, &a)) {
        add_begun(env, &r->req);
        return;
    }
    r->kind = REC_ANSWER;
    r->answer = (struct answer){.text = a.text,
                                .len = a.len,
                                .n_tokens = a.n_tokens,
                                .n_thinking = a.n_thinking,
                                .stopped_by = (enum stopped_by)a.stopped_by,
                                .flags = a.flags};
    atomic_fetch_add(&env->stats->answers_found, 1);
    atomic_fetch_add(&env->stats->requests_done, 1);
}

int request_make(const struct stage_env *env, struct doc *d, enum prompt_kind kind,
                 struct prompt_values v, struct request q, struct rec **out, struct err *e)
{
    struct token_list tokens = {0};
    v.title = d->title;
    v.question = question_text(env, q.question);
    int rc = prompt_build(env->prompts, kind, &v, &tokens, &q.n_shared, e);
    if (rc == 0)
        rc = check_size(env, tokens.n, q.max_tokens, e);
    if (rc < 0) {
        token_list_release(&tokens);
        return rc;
    }
    q.tokens = tokens.ids;
    q.n_tokens = tokens.n;
    q.seed = seed_for(env, d, &q);
    *out = rec_new(REC_REQUEST, d);
    (*out)->req = q;
    look_up(env, *out);
    atomic_fetch_add(&env->stats->requests_made, 1);
    return 0;
}

int request_room(const struct stage_env *env, const struct doc *d, enum prompt_kind kind,
                 int question, int max_tokens, int64_t *room, struct err *e)
{
    struct prompt_values v = {
        .text = "", .title = d->title, .question = question_text(env, question)};
    int fixed = prompt_fixed_tokens(env->prompts, kind, &v);
    if (fixed < 0)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory to count tokens");
    *room = (int64_t)env->context - fixed - max_tokens;
    return 0;
}

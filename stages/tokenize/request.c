#include "stages/tokenize/request.h"

#include "stages/base/hash.h"
#include "stages/decode/decode_opts.h"
#include "stages/stats.h"
#include "stages/task.h"

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

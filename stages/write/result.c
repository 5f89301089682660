#include "stages/write/result.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/task.h"
#include "stages/write/write_opts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- judging ---- */

const char *result_status_name(enum doc_status s)
{
    static const char *const names[DOC_STATUS_COUNT] = {"ok", "partial", "failed"};
    return (unsigned)s < DOC_STATUS_COUNT ? names[s] : "unknown";
}

/* Rounded down, so that 1 means all. */
static double share(size_t covered, size_t all)
{
    if (covered >= all)
        return 1;
    return floor((double)covered / (double)all * 1e6) / 1e6;
}

static void add_final(struct result *r, const struct rec *final)
{
    const struct summary_info *info = final->info;
    struct token_account *a = &r->account;
    a->prompt += final->req.n_tokens;
    a->reused += final->n_reused;
    a->generated += final->answer.n_tokens;
    r->timings.prefill_us += final->timings.prefill_us;
    r->timings.decode_us += final->timings.decode_us;
    r->timings.wait_us += final->timings.wait_us;
    r->flags |= final->answer.flags;
    if (!info)
        return;
    a->prompt += info->account.prompt;
    a->reused += info->account.reused;
    a->generated += info->account.generated;
    r->timings.prefill_us += info->timings.prefill_us;
    r->timings.decode_us += info->timings.decode_us;
    r->timings.wait_us += info->timings.wait_us;
    r->parts_flags |= info->flags;
    /* Of several questions, the one that saw least speaks for the document. */
    double coverage = share(info->covered, r->doc->text_len);
    if (!r->has_account || coverage < r->coverage)
        r->coverage = coverage;
    if (!r->has_account || info->account.fed < a->fed)
        a->fed = info->account.fed;
    a->document = info->account.document;
    a->dropped = a->document - a->fed;
    if (info->n_chunks > r->n_chunks)
        r->n_chunks = info->n_chunks;
    if (info->n_levels > r->n_levels)
        r->n_levels = info->n_levels;
    r->has_account = true;
}

static void fail_record(struct result *r, const char *code, const char *message)
{
    r->status = DOC_FAILED;
    snprintf(r->code, sizeof(r->code), "%s", code);
    snprintf(r->message, sizeof(r->message), "%s", message);
}

static void check_empty(struct result *r)
{
    for (int i = 0; i < r->n_finals; i++) {
        const struct answer *a = &r->finals[i]->answer;
        char message[160];
        if (!(a->flags & ANSWER_EMPTY))
            continue;
        if (r->n_finals == 1)
            snprintf(message, sizeof(message),
                     "the model gave no text in %d tokens (%d of them thinking)", a->n_tokens,
                     a->n_thinking);
        else
            snprintf(message, sizeof(message),
                     "question %d: the model gave no text in %d tokens (%d of them thinking)",
                     i + 1, a->n_tokens, a->n_thinking);
        fail_record(r, "empty-answer", message);
        return;
    }
}

void result_judge(struct result *r)
{
    r->status = r->doc->status;
    for (int i = 0; i < r->n_finals; i++)
        add_final(r, r->finals[i]);
    const struct err *why =
        r->failed && r->failed->fail.code ? &r->failed->fail : &r->doc->fail;
    if (r->failed || r->doc->status == DOC_FAILED) {
        fail_record(r, err_code_name(why->code), why->msg);
        return;
    }
    if (r->has_account && (r->coverage < 1 || r->account.dropped > 0))
        r->status = DOC_PARTIAL;
    check_empty(r);
}

/* ---- JSON ---- */

/* Bytes that are not UTF-8 replaced, as a heap string. */
static char *repair(const char *s)
{
    size_t n = strlen(s);
    char *out = mem_need(3 * n + 1), *p = out;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int used = utf8_decode(s + i, n - i, &cp);
        p += utf8_encode(cp, p);
        i += (size_t)abs(used);
    }
    *p = '\0';
    return out;
}

json_t *result_text(const char *s)
{
    if (!s)
        return json_null();
    json_t *j = json_string(s);
    if (j)
        return j;
    char *clean = repair(s);
    j = json_string(clean);
    free(clean);
    return j;
}

static json_t *text_list(char *const *list)
{
    json_t *j = json_array();
    for (char *const *s = list; s && *s; s++)
        json_array_append_new(j, result_text(*s));
    return j;
}

static json_t *digest(const uint8_t sha256[HASH_BYTES])
{
    static const uint8_t none[HASH_BYTES];
    char hex[HASH_HEX];
    if (memcmp(sha256, none, HASH_BYTES) == 0)
        return json_null();
    hash_hex(sha256, hex);
    return json_string(hex);
}

static const struct {
    unsigned bit;
    const char *name, *parts_name;
} flag_names[] = {
    {ANSWER_TRUNCATED, "truncated", "parts_truncated"},
    {ANSWER_EMPTY, "empty", "parts_empty"},
    {ANSWER_REPETITIVE, "repetitive", "parts_repetitive"},
    {ANSWER_THINKING, "thinking_dropped", "parts_thinking_dropped"},
};

unsigned result_flag(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(flag_names); i++)
        if (strcmp(name, flag_names[i].name) == 0)
            return flag_names[i].bit;
    return 0;
}

static json_t *flag_list(unsigned flags, unsigned parts_flags)
{
    json_t *j = json_array();
    for (size_t i = 0; i < ARRAY_LEN(flag_names); i++)
        if (flags & flag_names[i].bit)
            json_array_append_new(j, json_string(flag_names[i].name));
    for (size_t i = 0; i < ARRAY_LEN(flag_names); i++)
        if (parts_flags & flag_names[i].bit)
            json_array_append_new(j, json_string(flag_names[i].parts_name));
    return j;
}

static void set(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value ? value : json_null());
}

/* answer, stopped_by, flags, tokens: common to a record, an answer of ask, and a part. */
static void set_answer(json_t *o, const struct answer *a)
{
    set(o, "answer", result_text(a->text ? a->text : ""));
    set(o, "stopped_by", json_string(stopped_by_name(a->stopped_by)));
    set(o, "flags", flag_list(a->flags, 0));
    set(o, "tokens", json_integer(a->n_tokens));
}

static void set_answers(json_t *o, const struct result *r, const struct stage_env *env)
{
    const struct task_config *task = env->task;
    if (task->kind == TASK_ASK) {
        json_t *list = json_array();
        for (int i = 0; i < r->n_finals; i++) {
            json_t *one = json_object();
            int q = r->finals[i]->req.question;
            set(one, "question",
                result_text(q >= 0 && (size_t)q < task->questions.n ? task->questions.items[q]
                                                                    : NULL));
            set_answer(one, &r->finals[i]->answer);
            json_array_append_new(list, one);
        }
        set(o, "answers", r->n_finals ? list : json_null());
        if (!r->n_finals)
            json_decref(list);
        set(o, "flags", flag_list(r->flags, r->parts_flags));
        return;
    }
    const struct answer *a = r->n_finals ? &r->finals[0]->answer : NULL;
    set(o, "answer", a ? result_text(a->text ? a->text : "") : json_null());
    set(o, "stopped_by", a ? json_string(stopped_by_name(a->stopped_by)) : json_null());
    set(o, "flags", flag_list(r->flags, r->parts_flags));
}

static json_t *tokens(const struct result *r)
{
    const struct token_account *a = &r->account;
    if (!r->has_account)
        return json_null();
    return json_pack("{sI sI sI sI sI}", "document", (json_int_t)a->document, "fed",
                     (json_int_t)a->fed, "dropped", (json_int_t)a->dropped, "prompt",
                     (json_int_t)a->prompt, "generated", (json_int_t)a->generated);
}

static json_t *parts(const struct result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_finals; i++) {
        const struct summary_info *info = r->finals[i]->info;
        for (int k = 0; info && k < info->n_parts; k++) {
            const struct part_answer *p = &info->parts[k];
            json_t *one = json_object();
            if (r->n_finals > 1)
                set(one, "question", json_integer(r->finals[i]->req.question + 1));
            set(one, "index", json_integer(p->index));
            set(one, "begin", json_integer((json_int_t)p->begin));
            set(one, "end", json_integer((json_int_t)p->end));
            set(one, "page_first", p->page_first ? json_integer(p->page_first) : json_null());
            set(one, "page_last", p->page_last ? json_integer(p->page_last) : json_null());
            set(one, "heading", result_text(p->heading_path));
            set_answer(one, &p->answer);
            json_array_append_new(list, one);
        }
    }
    return list;
}

static json_t *warnings(const struct result *r)
{
    json_t *list = text_list(r->doc->warnings);
    if (r->has_account && r->account.dropped > 0) {
        char line[128];
        snprintf(line, sizeof(line),
                 "%lld of %lld tokens of the text were not given to the model",
                 (long long)r->account.dropped, (long long)r->account.document);
        json_array_append_new(list, json_string(line));
    }
    return list;
}

static void set_source(json_t *o, const struct doc *d)
{
    set(o, "ordinal", json_integer(d->ordinal));
    set(o, "id", json_string(d->id));
    set(o, "source", result_text(d->source));
    set(o, "chain", text_list(d->chain));
    set(o, "title", result_text(d->title));
    set(o, "media_type", result_text(d->media_type));
    set(o, "encoding", result_text(d->encoding));
    set(o, "bytes", json_integer((json_int_t)d->bytes));
    set(o, "sha256", digest(d->sha256));
}

char *result_json(const struct result *r, const struct stage_env *env, struct err *e)
{
    json_t *o = json_object();
    set(o, "schema", json_string(RESULT_SCHEMA));
    set(o, "job", result_text(env->job_name));
    set_source(o, r->doc);
    set(o, "status", json_string(result_status_name(r->status)));
    set(o, "error",
        r->status != DOC_FAILED ? json_null()
                                : json_pack("{so so}", "code", json_string(r->code), "message",
                                            result_text(r->message)));
    set_answers(o, r, env);
    set(o, "tokens", tokens(r));
    set(o, "coverage", r->has_account ? json_real(r->coverage) : json_null());
    set(o, "chunks", r->has_account ? json_integer(r->n_chunks) : json_null());
    set(o, "levels", r->has_account ? json_integer(r->n_levels) : json_null());
    if (env->write->chunks)
        set(o, "parts", parts(r));
    set(o, "warnings", warnings(r));
    set(o, "model",
        json_pack("{so ss}", "name", result_text(env->facts->model_name), "digest",
                  env->facts->model_digest));
    set(o, "prompt_digest", json_string(env->facts->prompt_digest));
    char *line = json_dumps(o, RESULT_JSON_FLAGS);
    json_decref(o);
    if (!line)
        err_set(e, REACH_JOB, ERR_NOMEM, "no memory for the record of document %lld",
                (long long)r->doc->ordinal);
    return line;
}

#include "pipeline/job_check.h"

#include "pipeline/limit_values.h"
#include "stages/ingest/charset.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int job_fail(const struct job_source *src, struct job_place at, struct err *e, const char *fmt,
             ...)
{
    char msg[sizeof(e->msg)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    if (at.line == 0) /* from the command line */
        return err_set(e, REACH_JOB, ERR_CONFIG, "--set: %s", msg);
    return err_set(e, REACH_JOB, ERR_CONFIG, "%s:%d:%d: %s", src->path, at.line, at.column,
                   msg);
}

/* Of the key's value, else of the key, else of its section, else the top. */
static struct job_place at(const struct job_source *src, const char *section, const char *key)
{
    const struct job_entry *x = job_file_find(src->file, section, key);
    if (x)
        return x->values && !x->list ? x->values->at : x->at;
    x = job_file_find(src->file, section, NULL);
    return x ? x->at : (struct job_place){1, 1};
}

static bool is_set(const struct job_source *src, const char *section, const char *key)
{
    return job_file_find(src->file, section, key) != NULL;
}

/* Place of item i of a list. */
static struct job_place item_at(const struct job_source *src, const char *section,
                                const char *key, size_t i)
{
    const struct job_entry *x = job_file_find(src->file, section, key);
    const struct job_value *v = x ? x->values : NULL;
    while (v && i-- > 0)
        v = v->next;
    return v ? v->at : at(src, section, key);
}

/* ---- model, task ---- */

static int check_model(const struct job *j, const struct job_source *src, struct err *e)
{
    if (j->model.kind == MODEL_GGUF && !j->model.file)
        return job_fail(
            src, at(src, "model", "file"), e,
            "model.file is missing: the GGUF file of the model (or \"kind: null\" for none)");
    if (j->model.context && j->decode.max_tokens >= j->model.context)
        return job_fail(
            src, at(src, "decode", "max_tokens"), e,
            "decode.max_tokens: %d leaves no room for a prompt in a context of %d tokens "
            "(model.context)",
            j->decode.max_tokens, j->model.context);
    if (j->model.context && j->task.partial_tokens >= j->model.context)
        return job_fail(
            src, at(src, "task", "partial_tokens"), e,
            "task.partial_tokens: %d leaves no room for a prompt in a context of %d tokens "
            "(model.context)",
            j->task.partial_tokens, j->model.context);
    return 0;
}

static int check_task(const struct job *j, const struct job_source *src, struct err *e)
{
    const struct task_config *t = &j->task;
    if (t->kind == TASK_ASK && t->questions.n == 0)
        return job_fail(src, at(src, "task", "questions"), e,
                        "task.questions is missing: task.kind ask needs them");
    if (t->kind != TASK_ASK && t->questions.n > 0)
        return job_fail(src, at(src, "task", "questions"), e,
                        "task.questions has a use only when task.kind is ask");
    for (size_t i = 0; i < t->questions.n; i++)
        if (t->questions.items[i][strspn(t->questions.items[i], " \t\r\n")] == '\0')
            return job_fail(src, item_at(src, "task", "questions", i), e,
                            "task.questions: an empty question");
    if (t->kind == TASK_COMPLETE && t->strategy == STRATEGY_MAP_REDUCE)
        return job_fail(src, at(src, "task", "strategy"), e,
                        "task.strategy: map_reduce has no use when task.kind is complete, "
                        "which takes each document "
                        "as one prompt");
    return 0;
}

/* ---- prompt ---- */

/* Placeholders of a text: {{name}}; "\{{" is a plain "{{". Counts those called text and question. */
static int check_placeholders(const struct job_source *src, const char *key, const char *text,
                              int *n_text, int *n_question, struct err *e)
{
    static const char *const names[] = {"text", "question", "title", "headings"};
    int counts[ARRAY_LEN(names)] = {0};
    struct job_place where = at(src, "prompt", key);
    for (const char *p = text; (p = strstr(p, "{{")) != NULL; p += 2) {
        if (p > text && p[-1] == '\\')
            continue;
        const char *end = strstr(p, "}}");
        if (!end)
            return job_fail(src, where, e,
                            "prompt.%s: {{ without }}; a plain {{ is written \\{{", key);
        char name[32] = "";
        size_t n = (size_t)(end - p) - 2, hit = ARRAY_LEN(names);
        snprintf(name, sizeof(name), "%.*s", n < 24 ? (int)n : 24, p + 2);
        struct opt_guess guess = {.wanted = name};
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            opt_guess_add(&guess, names[i]);
            if (strcmp(names[i], name) == 0)
                hit = i;
        }
        if (hit == ARRAY_LEN(names) && guess.best)
            return job_fail(src, where, e, "prompt.%s: unknown {{%s}}: did you mean {{%s}}?",
                            key, name, guess.best);
        if (hit == ARRAY_LEN(names))
            return job_fail(src, where, e,
                            "prompt.%s: unknown {{%s}}: there are {{text}}, {{title}}, "
                            "{{headings}} and {{question}}",
                            key, name);
        counts[hit]++;
    }
    *n_text = counts[0];
    *n_question = counts[1];
    return 0;
}

static int check_prompt_text(const struct job *j, const struct job_source *src, const char *key,
                             const char *text, struct err *e)
{
    int n_text = 0, n_question = 0;
    if (!text)
        return 0;
    if (check_placeholders(src, key, text, &n_text, &n_question, e))
        return -(int)e->code;
    if (n_text != 1)
        return job_fail(src, at(src, "prompt", key), e,
                        "prompt.%s: {{text}} is there %d times: it must be there once", key,
                        n_text);
    if (j->task.kind == TASK_ASK && n_question == 0)
        return job_fail(src, at(src, "prompt", key), e,
                        "prompt.%s: {{question}} is not there: task.kind ask needs it", key);
    if (j->task.kind != TASK_ASK && n_question > 0)
        return job_fail(src, at(src, "prompt", key), e,
                        "prompt.%s: {{question}} has a use only when task.kind is ask", key);
    return 0;
}

static int check_prompt(const struct job *j, const struct job_source *src, struct err *e)
{
    const struct prompt_config *p = &j->prompt;
    const struct {
        const char *key, *value;
    } texts[] = {{"system", p->system},
                 {"document", p->document},
                 {"reduce", p->reduce},
                 {"date", p->date},
                 {"template", strcmp(p->template, "auto") == 0 ? NULL : p->template}};
    for (size_t i = 0; i < ARRAY_LEN(texts) && j->task.kind == TASK_COMPLETE; i++)
        if (texts[i].value)
            return job_fail(
                src, at(src, "prompt", texts[i].key), e,
                "prompt.%s has no use when task.kind is complete: the document is the prompt",
                texts[i].key);
    if (check_prompt_text(j, src, "document", j->prompt.document, e))
        return -(int)e->code;
    return check_prompt_text(j, src, "reduce", j->prompt.reduce, e);
}

/* ---- the rest ---- */

static int check_limits(const struct job *j, const struct job_source *src, struct err *e)
{
    struct err why = {0};
    struct limit_failures failures;
    time_t at_time;
    if (j->limits.deadline && limit_deadline(j->limits.deadline, 0, &at_time, &why) != 0)
        return job_fail(src, at(src, "limits", "deadline"), e, "limits.deadline: %s", why.msg);
    if (limit_failures(j->limits.max_failures, &failures, &why) != 0)
        return job_fail(src, at(src, "limits", "max_failures"), e, "limits.max_failures: %s",
                        why.msg);
    return 0;
}

static int check_ranges(const struct job *j, const struct job_source *src, struct err *e)
{
    if (j->chunk.tokens && j->chunk.min_tokens > j->chunk.tokens)
        return job_fail(
            src, at(src, "chunk", is_set(src, "chunk", "min_tokens") ? "min_tokens" : "tokens"),
            e, "chunk.min_tokens: %d is more than chunk.tokens: %d", j->chunk.min_tokens,
            j->chunk.tokens);
    if (j->ingest.max_document > j->ingest.max_container)
        return job_fail(
            src,
            at(src, "ingest",
               is_set(src, "ingest", "max_document") ? "max_document" : "max_container"),
            e, "ingest.max_document is more than ingest.max_container");
    if (j->limits.memory && j->kv.memory > j->limits.memory)
        return job_fail(src, at(src, "kv", "memory"), e,
                        "kv.memory is more than limits.memory");
    for (size_t i = 0; i < j->decode.stop.n; i++)
        if (j->decode.stop.items[i][0] == '\0')
            return job_fail(src, item_at(src, "decode", "stop", i), e,
                            "decode.stop: an empty text would end every answer at once");
    return 0;
}

static int check_formats(const struct job *j, const struct job_source *src, struct err *e)
{
    static const char *const names[] = {"jsonl", "markdown"};
    for (size_t i = 0; i < j->write.formats.n; i++) {
        const char *s = j->write.formats.items[i];
        struct opt_guess guess = {.wanted = s};
        bool known = false;
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            known = known || strcmp(s, names[k]) == 0;
            opt_guess_add(&guess, names[k]);
        }
        if (!known && guess.best)
            return job_fail(src, item_at(src, "write", "formats", i), e,
                            "write.formats: unknown format \"%.40s\": did you mean \"%s\"?", s,
                            guess.best);
        if (!known)
            return job_fail(src, item_at(src, "write", "formats", i), e,
                            "write.formats: unknown format \"%.40s\": jsonl or markdown", s);
    }
    return 0;
}

static int check_encodings(const struct job *j, const struct job_source *src, struct err *e)
{
    const struct {
        const char *key, *label;
    } labels[] = {{"encoding", j->ingest.encoding}, {"name_encoding", j->ingest.name_encoding}};
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (labels[i].label && !charset_find(labels[i].label, strlen(labels[i].label)))
            return job_fail(src, at(src, "ingest", labels[i].key), e,
                            "ingest.%s: unknown character encoding \"%.40s\"", labels[i].key,
                            labels[i].label);
    return 0;
}

static size_t without_slashes(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* The folder of the results is never read: a job that reads nothing else is a mistake. */
static int check_folders(const struct job *j, const struct job_source *src, struct err *e)
{
    size_t n = without_slashes(j->write.to);
    for (size_t i = 0; i < j->ingest.from.n; i++) {
        const char *from = j->ingest.from.items[i];
        if (without_slashes(from) != n || memcmp(from, j->write.to, n) != 0)
            return 0;
    }
    return job_fail(
        src, at(src, "write", "to"), e,
        "write.to is all that ingest.from names: the folder of the results is not read");
}

int job_check(const struct job *j, const struct job_source *src, struct err *e)
{
    int rc = check_model(j, src, e);
    if (!rc)
        rc = check_task(j, src, e);
    if (!rc)
        rc = check_prompt(j, src, e);
    if (!rc)
        rc = check_ranges(j, src, e);
    if (!rc)
        rc = check_limits(j, src, e);
    if (!rc)
        rc = check_formats(j, src, e);
    if (!rc)
        rc = check_encodings(j, src, e);
    if (!rc)
        rc = check_folders(j, src, e);
    return rc;
}

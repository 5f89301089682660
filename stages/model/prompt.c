/* A job's text is cut at its placeholders once; a prompt is then a list of pieces for chat_encode(). */
#include "stages/model/prompt.h"

#include "stages/base/hash.h"
#include "stages/base/mem.h"
#include "stages/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PIECES = 64 };

/* Stands for a text when the rest of a prompt is counted: some templates trim a turn that ends in white space. */
#define PROBE "x"

enum piece_kind {
    PIECE_FIXED,
    PIECE_TEXT,
    PIECE_TITLE,
    PIECE_HEADINGS,
    PIECE_QUESTION,
    PIECE_KINDS
};

static const char *const names[PIECE_KINDS] = {[PIECE_TEXT] = "text",
                                               [PIECE_TITLE] = "title",
                                               [PIECE_HEADINGS] = "headings",
                                               [PIECE_QUESTION] = "question"};

struct piece {
    enum piece_kind kind;
    char *s; /* PIECE_FIXED: heap */
    size_t len;
    bool space; /* a space in front belongs to the value's first word */
};

struct turn {
    struct piece pieces[MAX_PIECES];
    int n, first_own; /* index of the first piece that is not fixed */
};

struct prompts {
    const struct chat *chat;
    struct chat *own; /* complete: no template at all */
    int probe_tokens; /* of PROBE */
    char *system;
    struct turn turns[2]; /* by enum prompt_kind */
    uint8_t digest[HASH_BYTES];
};

/* Fixed instructions come first, so that their KV is computed once; ask puts the document first, so that all
 * questions about it share the document's. Short sentences: small models follow those. */
static const char *const defaults[][2] = {
    [TASK_SUMMARIZE] =
        {"Summarize the text below in at most five sentences. State only what the text "
         "says.\n\n"
         "{{text}}",
         "Below are summaries of the parts of one document, in order. Combine them into one "
         "summary of at most five sentences. State only what they say.\n\n{{text}}"},
    [TASK_ASK] =
        {"{{text}}\n\nAnswer the question from the text above. If the text does not answer it, "
         "say so.\n\nQuestion: {{question}}",
         "Below are answers that the parts of one document gave to the same question, in "
         "order. "
         "Combine them into one answer, and leave out parts that did not answer it.\n\n"
         "{{text}}\n\nQuestion: {{question}}"},
    [TASK_COMPLETE] = {"{{text}}", "{{text}}"},
};

static int add_piece(struct turn *t, enum piece_kind kind, const char *s, size_t len,
                     const char *key, struct err *e)
{
    if (kind == PIECE_FIXED && len == 0)
        return 0;
    if (t->n == MAX_PIECES)
        return err_set(e, REACH_JOB, ERR_CONFIG, "%s has over %d placeholders", key,
                       MAX_PIECES / 2);
    struct piece *p = &t->pieces[t->n++], *before = t->n > 1 ? p - 1 : NULL;
    p->kind = kind;
    /* Not for the text: who cuts it counts its tokens without. */
    if (kind > PIECE_TEXT && before && before->kind == PIECE_FIXED && before->len > 1 &&
        before->s[before->len - 1] == ' ' && before->s[before->len - 2] != ' ') {
        before->len--;
        p->space = true;
    }
    if (kind == PIECE_FIXED) {
        p->s = mem_need(len + 1);
        memcpy(p->s, s, len);
        p->len = len;
    }
    return 0;
}

/* The kind of the placeholder at s = "{{...", and its length; 0 when it is not closed on its line. */
static size_t read_placeholder(const char *s, size_t n, enum piece_kind *kind)
{
    size_t end = 2;
    while (end < n && s[end] != '}' && s[end] != '\n')
        end++;
    if (end + 1 >= n || s[end] != '}' || s[end + 1] != '}')
        return 0;
    size_t from = 2, to = end;
    while (from < to && s[from] == ' ')
        from++;
    while (to > from && s[to - 1] == ' ')
        to--;
    *kind = PIECE_FIXED;
    for (int k = PIECE_TEXT; k < PIECE_KINDS; k++)
        if (strlen(names[k]) == to - from && memcmp(names[k], s + from, to - from) == 0)
            *kind = (enum piece_kind)k;
    return end + 2;
}

static int parse_turn(struct turn *t, const char *text, const char *key, struct err *e)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        n--; /* what a YAML block ends with is not meant */
    char *fixed = mem_need(n + 1);
    size_t used = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n;) {
        enum piece_kind kind = PIECE_FIXED;
        if (n - i >= 3 && memcmp(text + i, "\\{{", 3) == 0) {
            memcpy(fixed + used, "{{", 2);
            used += 2;
            i += 3;
            continue;
        }
        if (n - i < 2 || memcmp(text + i, "{{", 2) != 0) {
            fixed[used++] = text[i++];
            continue;
        }
        size_t len = read_placeholder(text + i, n - i, &kind);
        if (len == 0)
            rc = err_set(e, REACH_JOB, ERR_CONFIG,
                         "%s: \"{{\" without \"}}\"; write \\{{ for two braces", key);
        else if (kind == PIECE_FIXED)
            rc = err_set(
                e, REACH_JOB, ERR_CONFIG,
                "%s: unknown placeholder %.*s; there are {{text}}, {{title}}, {{headings}} and "
                "{{question}}; write \\{{ for two braces",
                key, (int)(len < 60 ? len : 60), text + i);
        if (rc == 0)
            rc = add_piece(t, PIECE_FIXED, fixed, used, key, e);
        if (rc == 0)
            rc = add_piece(t, kind, NULL, 0, key, e);
        used = 0;
        i += len;
    }
    if (rc == 0)
        rc = add_piece(t, PIECE_FIXED, fixed, used, key, e);
    free(fixed);
    return rc;
}

static int count_kind(const struct turn *t, enum piece_kind kind)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        n += t->pieces[i].kind == kind;
    return n;
}

static int check_turn(const struct turn *t, int task, enum prompt_kind kind, const char *key,
                      struct err *e)
{
    int texts = count_kind(t, PIECE_TEXT), questions = count_kind(t, PIECE_QUESTION);
    if (texts != 1)
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "%s must have {{text}} exactly once, not %d times", key, texts);
    if (questions && task != TASK_ASK)
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "%s has {{question}}, but only task.kind ask has questions", key);
    if (!questions && task == TASK_ASK)
        return err_set(e, REACH_JOB, ERR_CONFIG, "%s needs {{question}} when task.kind is ask",
                       key);
    if (kind == PROMPT_REDUCE && count_kind(t, PIECE_HEADINGS))
        return err_set(e, REACH_JOB, ERR_CONFIG, "%s: partial answers have no {{headings}}",
                       key);
    return 0;
}

static int open_turn(struct prompts *p, enum prompt_kind kind, int task, const char *text,
                     const char *key, struct err *e)
{
    struct turn *t = &p->turns[kind];
    if (task == TASK_COMPLETE && text)
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "%s has no meaning when task.kind is complete: documents are "
                       "prompts as they are",
                       key);
    int rc = parse_turn(t, text ? text : defaults[task][kind], key, e);
    if (rc == 0 && task != TASK_COMPLETE)
        rc = check_turn(t, task, kind, key, e);
    while (rc == 0 && t->first_own < t->n && t->pieces[t->first_own].kind == PIECE_FIXED)
        t->first_own++;
    return rc;
}

static void set_digest(struct prompts *p)
{
    uint8_t chat[HASH_BYTES];
    chat_digest(p->chat, chat);
    struct hash h;
    hash_init(&h);
    hash_field(&h, "chat", chat, sizeof(chat));
    hash_field_u64(&h, "has-system", p->system != NULL);
    hash_field(&h, "system", p->system ? p->system : "", p->system ? strlen(p->system) : 0);
    for (int k = 0; k < 2; k++) {
        const struct turn *t = &p->turns[k];
        hash_field_u64(&h, "pieces", (uint64_t)t->n);
        for (int i = 0; i < t->n; i++) {
            hash_field_u64(&h, "kind", t->pieces[i].kind);
            hash_field_u64(&h, "space", t->pieces[i].space);
            hash_field(&h, "fixed", t->pieces[i].s ? t->pieces[i].s : "", t->pieces[i].len);
        }
    }
    hash_end(&h, p->digest);
}

int prompts_open(struct prompts **out, const struct prompt_config *c, int task_kind,
                 const struct chat *chat, const struct vocab *v, struct err *e)
{
    struct prompts *p = mem_need(sizeof(*p));
    p->chat = chat;
    int rc = 0;
    if (task_kind == TASK_COMPLETE && strcmp(chat_family(chat), "null") != 0) {
        char none[] = "none";
        struct prompt_config plain = {.template = none};
        rc = chat_open(&p->own, v, NULL, &plain, "", e);
        p->chat = p->own;
    }
    if (task_kind == TASK_COMPLETE && c->system)
        rc = err_set(e, REACH_JOB, ERR_CONFIG,
                     "prompt.system has no meaning when task.kind is complete: documents are "
                     "prompts as they are");
    if (rc == 0)
        rc = open_turn(p, PROMPT_DOCUMENT, task_kind, c->document, "prompt.document", e);
    if (rc == 0)
        rc = open_turn(p, PROMPT_REDUCE, task_kind, c->reduce, "prompt.reduce", e);
    struct token_list probe = {0};
    if (rc == 0)
        rc = vocab_encode(v, PROBE, strlen(PROBE), VOCAB_NO_PREFIX, &probe, e);
    p->probe_tokens = probe.n;
    token_list_release(&probe);
    if (rc < 0) {
        prompts_free(p);
        return rc;
    }
    if (c->system) {
        p->system = mem_strdup(c->system);
        for (size_t n = strlen(p->system); n > 0 && p->system[n - 1] == '\n';)
            p->system[--n] = '\0';
    }
    set_digest(p);
    *out = p;
    return 0;
}

void prompts_free(struct prompts *p)
{
    if (!p)
        return;
    chat_free(p->own);
    free(p->system);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < p->turns[k].n; i++)
            free(p->turns[k].pieces[i].s);
    free(p);
}

/* The value of a piece that is neither fixed nor the text: heap. */
static char *piece_value(const struct piece *x, const struct prompt_values *v)
{
    const char *value = x->kind == PIECE_TITLE      ? v->title
                        : x->kind == PIECE_HEADINGS ? v->headings
                                                    : v->question;
    size_t n = value ? strlen(value) : 0;
    char *s = mem_need(n + 2);
    if (n)
        snprintf(s, n + 2, "%s%s", x->space ? " " : "", value);
    return s;
}

int prompt_build(const struct prompts *p, enum prompt_kind kind, const struct prompt_values *v,
                 struct token_list *out, int *n_shared, struct err *e)
{
    const struct turn *t = &p->turns[kind];
    struct chat_segment segments[MAX_PIECES];
    char *values[MAX_PIECES];
    for (int i = 0; i < t->n; i++) {
        const struct piece *x = &t->pieces[i];
        values[i] = x->kind > PIECE_TEXT ? piece_value(x, v) : NULL;
        if (x->kind == PIECE_FIXED)
            segments[i] = (struct chat_segment){x->s, x->len};
        else if (x->kind == PIECE_TEXT)
            segments[i] =
                (struct chat_segment){v->text ? v->text : "", v->text ? v->text_len : 0};
        else
            segments[i] = (struct chat_segment){values[i], strlen(values[i])};
    }
    int rc = chat_encode(p->chat, p->system, segments, t->n, t->first_own, out, n_shared, e);
    for (int i = 0; i < t->n; i++)
        free(values[i]);
    return rc;
}

int prompt_fixed_tokens(const struct prompts *p, enum prompt_kind kind,
                        const struct prompt_values *v)
{
    struct prompt_values probe = *v;
    probe.text = PROBE;
    probe.text_len = strlen(PROBE);
    struct token_list tokens = {0};
    struct err e = {0};
    int n =
        prompt_build(p, kind, &probe, &tokens, NULL, &e) < 0 ? -1 : tokens.n - p->probe_tokens;
    token_list_release(&tokens);
    return n;
}

void prompts_digest(const struct prompts *p, uint8_t out[HASH_BYTES])
{
    memcpy(out, p->digest, HASH_BYTES);
}

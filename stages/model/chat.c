/* One struct chat holds a family's format with its quirks, or the interpreter for a template file. Both
 * render a conversation into marked text; the rest of this file turns that into tokens. */
#include "stages/model/chat.h"

#include "stages/base/file.h"
#include "stages/base/hash.h"
#include "stages/base/mem.h"
#include "stages/model/chat_format.h"
#include "stages/model/chat_known.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NOTES = 6, RENDER_MAX = 1 << 30 };

struct chat {
    const struct vocab *v;
    const struct chat_format *format;
    struct chat_quirks quirks;
    const char *family;
    char *bos, *eos;  /* texts of the vocabulary's tokens; "" when it has none */
    int32_t end_turn; /* the null model: this token after the turn; else -1 */
    const char *think_open, *think_close;
    char *notes[MAX_NOTES + 1];
    uint8_t digest[HASH_BYTES];
};

/* Models that end a turn themselves: what they write between is the turn. */
static const struct chat_format none_format = {"none", "",     NULL, NULL,  "",   "",
                                               "",     "\n\n", "",   false, false};
static const struct chat_format null_format = {"null", "", NULL, NULL,  "",  "",
                                               "",     "", "",   false, true};

static PRINTF_LIKE(2, 3) void add_note(struct chat *c, const char *fmt, ...)
{
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    for (int i = 0; i < MAX_NOTES; i++) {
        if (c->notes[i])
            continue;
        c->notes[i] = mem_strdup(line);
        return;
    }
}

static char *token_text(const struct vocab *v, int32_t id)
{
    size_t n = 0;
    const char *s = id >= 0 ? vocab_name(v, id, &n) : NULL;
    char *out = mem_need((s ? n : 0) + 1);
    if (s && n)
        memcpy(out, s, n);
    return out;
}

static struct chat *new_chat(const struct vocab *v)
{
    struct chat *c = mem_need(sizeof(*c));
    c->v = v;
    c->end_turn = -1;
    c->bos = token_text(v, vocab_bos(v));
    c->eos = token_text(v, vocab_eos(v));
    return c;
}

static void use_format(struct chat *c, const struct chat_format *f)
{
    c->format = f;
    c->family = f->family;
    c->quirks = chat_format_quirks(f);
}

/* What decides a prompt besides the vocabulary. */
static void set_digest(struct chat *c, const char *text, size_t len)
{
    struct hash h;
    hash_init(&h);
    hash_field(&h, "family", c->family, strlen(c->family));
    hash_field(&h, "template", text, len);
    hash_field_u64(&h, "bos", c->quirks.bos);
    hash_field_u64(&h, "trim-turns", c->quirks.trim_turns);
    hash_field_u64(&h, "trim-system", c->quirks.trim_system);
    hash_field_u64(&h, "no-system", c->quirks.no_system);
    const char *before = c->quirks.system_before, *standard = c->quirks.system_default;
    hash_field(&h, "system-before", before ? before : "", before ? strlen(before) : 0);
    hash_field(&h, "system-default", standard ? standard : "", standard ? strlen(standard) : 0);
    hash_end(&h, c->digest);
}

static int config_error(struct err *e, const char *what)
{
    char names[160];
    chat_format_names(names, sizeof(names));
    return err_set(
        e, REACH_JOB, ERR_CONFIG,
        "%s; set prompt.template to the family the model was trained with (%s), to a file with "
        "a Jinja "
        "template, or to none for a model that only continues text, such as: template: chatml",
        what, names);
}

/* The file's own template. */
static int open_auto(struct chat *c, const char *text, size_t len, struct err *e)
{
    if (!text)
        return config_error(e, "the model file has no chat template");
    const struct chat_known *k = chat_known_find(text, len);
    if (!k)
        return config_error(e, "the model file's chat template is not one that is known");
    use_format(c, chat_format_find(k->family));
    if (k->system_default)
        c->quirks.system_default = mem_strdup(k->system_default);
    add_note(c, "chat template: that of %s", k->name);
    return 0;
}

static void note_system(struct chat *c)
{
    if (c->quirks.no_system)
        add_note(c,
                 "the template has no system role: a system text goes in front of the %s turn",
                 "user");
    else if (c->quirks.system_default)
        add_note(c, "without prompt.system the template says: %s", c->quirks.system_default);
    if (c->quirks.system_before)
        add_note(c, "in front of every system text the template says: %s",
                 c->quirks.system_before);
}

static void find_thinking(struct chat *c, const char *text, size_t len)
{
    static const char *const pairs[][2] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};
    for (size_t i = 0; i < ARRAY_LEN(pairs) && !c->think_open; i++) {
        bool token = vocab_find(c->v, pairs[i][0]) >= 0 && vocab_find(c->v, pairs[i][1]) >= 0;
        bool named =
            text && mtext_find((struct mtext){text, NULL, len}, mtext_of(pairs[i][1])) < len;
        if (token || named) {
            c->think_open = pairs[i][0];
            c->think_close = pairs[i][1];
        }
    }
}

int chat_open(struct chat **out, const struct vocab *v, const struct gguf *g,
              const struct prompt_config *p, const char *base, struct err *e)
{
    (void)base;
    struct gguf_string own = {0};
    if (g && gguf_str(g, "tokenizer.chat_template", &own, e) < 0)
        return -(int)e->code;
    const char *want = p->template ? p->template : "auto";
    struct chat *c = new_chat(v);
    int rc = 0;
    if (strcmp(want, "none") == 0) {
        use_format(c, &none_format);
        add_note(c, "chat template: none; texts are joined with blank lines");
    } else if (strcmp(want, "auto") == 0) {
        rc = open_auto(c, own.s, own.len, e);
    } else if (chat_format_find(want)) {
        use_format(c, chat_format_find(want));
        add_note(c, "chat template: %s, as the job says", want);
    } else {
        rc = config_error(e, "prompt.template is not a family");
    }
    if (rc < 0) {
        chat_free(c);
        return rc;
    }
    note_system(c);
    find_thinking(c, own.s, own.len);
    set_digest(c, own.s ? own.s : "", own.len);
    *out = c;
    return 0;
}

struct chat *chat_null(const struct vocab *v)
{
    struct chat *c = new_chat(v);
    use_format(c, &null_format);
    c->end_turn = vocab_find(v, "<turn>");
    set_digest(c, "", 0);
    return c;
}

void chat_free(struct chat *c)
{
    if (!c)
        return;
    chat_quirks_release(&c->quirks);
    free(c->bos);
    free(c->eos);
    for (int i = 0; i < MAX_NOTES; i++)
        free(c->notes[i]);
    free(c);
}

const char *chat_family(const struct chat *c)
{
    return c->family;
}

const char *const *chat_notes(const struct chat *c)
{
    return (const char *const *)c->notes;
}

bool chat_thinking(const struct chat *c, const char **open_mark, const char **close_mark)
{
    *open_mark = c->think_open;
    *close_mark = c->think_close;
    return c->think_open != NULL;
}

void chat_digest(const struct chat *c, uint8_t out[HASH_BYTES])
{
    memcpy(out, c->digest, HASH_BYTES);
}

/* ---- rendering to tokens ---- */

/* The first run of a prompt is the only one that a SentencePiece vocabulary puts a space in front of, and only
 * if it is text that begins without one. */
static int encode_first(const struct chat *c, struct mtext t, unsigned flags,
                        struct token_list *out, struct err *e)
{
    int before = out->n;
    int rc = vocab_encode(c->v, t.s, t.len, flags | VOCAB_NO_PREFIX, out, e);
    if (rc < 0 || !vocab_adds_space(c->v) || t.s[0] == ' ' ||
        (out->n > before && vocab_is_special(c->v, out->ids[before])))
        return rc;
    out->n = before;
    return vocab_encode(c->v, t.s, t.len, flags, out, e);
}

/* Runs of equal marks, one by one. A lone space that the template ends with before a user text is tokenised
 * with that text, as it belongs to the first word; not before segment first_own, whose tokens are counted
 * on their own by those who cut it. */
static int encode_runs(const struct chat *c, struct mtext t, int own_mark,
                       struct token_list *out, int *n_shared, struct err *e)
{
    int shared = 0;
    bool reached = false;
    for (size_t i = 0, end; i < t.len; i = end) {
        uint8_t mark = t.marks ? t.marks[i] : MARK_TEMPLATE;
        size_t from = i;
        for (end = i + 1; end < t.len && t.marks && t.marks[end] == mark;)
            end++;
        if (!t.marks)
            end = t.len;
        bool lent = mark != MARK_TEMPLATE && mark < own_mark && i >= 2 && t.s[i - 1] == ' ' &&
                    t.marks[i - 1] == MARK_TEMPLATE && t.marks[i - 2] == MARK_TEMPLATE &&
                    t.s[i - 2] != ' ';
        from -= lent;
        size_t to = end;
        if (mark == MARK_TEMPLATE && end < t.len && t.marks[end] < own_mark && end - i >= 2 &&
            t.s[end - 1] == ' ' && t.s[end - 2] != ' ')
            to--;
        if (mark >= own_mark && !reached) {
            shared = out->n;
            reached = true;
        }
        unsigned flags = mark == MARK_TEMPLATE ? VOCAB_SPECIAL : 0;
        struct mtext run = mtext_slice(t, from, to);
        int rc = i == 0 ? encode_first(c, run, flags, out, e)
                        : vocab_encode(c->v, run.s, run.len, flags | VOCAB_NO_PREFIX, out, e);
        if (rc < 0)
            return rc;
        if (mark != MARK_TEMPLATE && !reached)
            shared = out->n;
    }
    if (n_shared)
        *n_shared = shared;
    return 0;
}

static int render(const struct chat *c, const struct chat_message *msgs, int n,
                  struct marked *out, bool *bos, struct err *e)
{
    *bos = c->quirks.bos;
    return chat_format_render(c->format, &c->quirks, c->eos, msgs, n, out, e);
}

int chat_encode(const struct chat *c, const char *system, const struct chat_segment *turn,
                int n, int first_own, struct token_list *out, int *n_shared, struct err *e)
{
    struct marked user, text;
    marked_init(&user, RENDER_MAX);
    marked_init(&text, RENDER_MAX);
    uint8_t *system_marks = NULL;
    int rc = n > MARK_SEGMENTS
                 ? err_set(e, REACH_JOB, ERR_LIMIT, "a prompt of over %d pieces", MARK_SEGMENTS)
                 : 0;
    for (int i = 0; rc == 0 && i < n; i++)
        rc = marked_add(&user, turn[i].text, turn[i].len, (uint8_t)(MARK_TURN + i), e);
    struct chat_message msgs[2];
    int n_msgs = 0;
    if (rc == 0 && system) {
        size_t len = strlen(system);
        system_marks = mem_need(len + 1);
        memset(system_marks, MARK_SYSTEM, len);
        msgs[n_msgs++] = (struct chat_message){CHAT_SYSTEM, {system, system_marks, len}};
    }
    msgs[n_msgs++] = (struct chat_message){CHAT_USER, marked_view(&user)};
    bool bos = false;
    if (rc == 0)
        rc = render(c, msgs, n_msgs, &text, &bos, e);
    if (rc == 0 && vocab_bos(c->v) >= 0 && (bos || vocab_adds_bos(c->v)))
        rc = token_list_add(out, vocab_bos(c->v), e);
    if (rc == 0)
        rc = encode_runs(c, marked_view(&text), MARK_TURN + first_own, out, n_shared, e);
    if (rc == 0 && c->end_turn >= 0)
        rc = token_list_add(out, c->end_turn, e);
    free(system_marks);
    marked_release(&user);
    marked_release(&text);
    return rc;
}

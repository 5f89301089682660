/* One struct chat holds a family's format with its quirks, or the interpreter for a template file. Both
 * render a conversation into marked text; the rest of this file turns that into tokens. */
#include "stages/model/chat.h"

#include "stages/base/file.h"
#include "stages/base/hash.h"
#include "stages/base/mem.h"
#include "stages/model/chat_date.h"
#include "stages/model/chat_known.h"
#include "stages/model/chat_prove.h"
#include "stages/model/chat_tokens.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NOTES = 6, RENDER_MAX = 1 << 30 };

struct chat {
    const struct vocab *v;
    const struct chat_format *format; /* NULL: the interpreter renders */
    struct jinja *jinja;
    struct chat_date date;
    bool has_date;
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
    hash_field(&h, "template", text ? text : "", len);
    hash_field_u64(
        &h, "date",
        c->has_date ? (uint64_t)(c->date.year * 10000 + c->date.month * 100 + c->date.day) : 0);
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
    return err_set(e, REACH_JOB, ERR_CONFIG,
                   "%.180s; set prompt.template to the family the model was trained with (%s), "
                   "to a Jinja file, or to none for a model that only continues text, such as\n"
                   "    template: chatml",
                   what, names);
}

/* The reason why a template cannot be run, with the way out; a date that is missing is its own way out. */
static int template_error(struct err *e, const char *whose, const struct err *inner)
{
    char what[sizeof(inner->msg) + 64];
    if (inner->code == ERR_CONFIG) {
        *e = *inner;
        return -(int)e->code;
    }
    snprintf(what, sizeof(what), "%s: %s", whose, inner->msg);
    return config_error(e, what);
}

/* The file's own template: known, or proven to be of a family. */
static int open_auto(struct chat *c, const char *text, size_t len, struct err *e)
{
    if (!text)
        return config_error(e, "the model file has no chat template");
    const struct chat_known *k = len <= JINJA_TEMPLATE_MAX ? chat_known_find(text, len) : NULL;
    if (k) {
        use_format(c, chat_format_find(k->family));
        if (k->system_default)
            c->quirks.system_default = mem_strdup(k->system_default);
        add_note(c, "chat template: that of %s, family %s", k->name, k->family);
        return 0;
    }
    struct err inner = {0};
    struct jinja *j = NULL;
    int rc = jinja_open(&j, text, len, &inner);
    if (rc == 0)
        rc = chat_prove(j, text, len, c->bos, c->eos, c->has_date ? &c->date : NULL, &c->format,
                        &c->quirks, &inner);
    jinja_free(j);
    if (rc < 0)
        return template_error(e, "the model file's template", &inner);
    if (rc > 0)
        return config_error(e, "the model file's chat template is of no family that is known");
    c->family = c->format->family;
    add_note(c, "chat template: family %s, proven by rendering the model file's own",
             c->family);
    return 0;
}

/* A long user text that shows a template which drops, cuts, escapes or folds what it is given. */
static int probe_text(struct marked *out, struct err *e)
{
    enum { LINES = 1500 };
    int rc = 0;
    for (int i = 0; i <= LINES && rc == 0; i++) {
        char line[96];
        int n = snprintf(line, sizeof(line),
                         "%d. Tea & <b>Milk</b>,  \"caf\xc3\xa9\", it's {{ 1 }}%s", i,
                         i < LINES ? "\n" : "");
        rc = marked_add(out, line, (size_t)n, MARK_TURN, e);
    }
    return rc;
}

/* True when the bytes of the user turn are that text: once, in one piece. */
static bool prints_whole(struct mtext out, struct mtext user)
{
    size_t from = 0, to = out.len;
    while (from < to && out.marks[from] != MARK_TURN)
        from++;
    while (to > from && out.marks[to - 1] != MARK_TURN)
        to--;
    return to - from == user.len && memcmp(out.s + from, user.s, user.len) == 0 &&
           memcmp(out.marks + from, user.marks, user.len) == 0;
}

/* A user turn alone, then with a system text. Whole: also with a system text the turn must be whole. */
static int try_file(struct chat *c, struct mtext user, bool with_system, bool *whole,
                    struct err *e)
{
    const struct chat_message msgs[] = {{CHAT_SYSTEM, mtext_of("Be brief.")},
                                        {CHAT_USER, user}};
    int rc = 0;
    *whole = true;
    for (int i = 1; rc == 0 && i >= 0; i--) {
        struct marked out;
        marked_init(&out, RENDER_MAX);
        struct jinja_input in = {msgs + i, 2 - i, c->bos, c->eos,
                                 c->has_date ? &c->date : NULL};
        rc = jinja_render(c->jinja, &in, &out, e);
        if (rc == 0 && (i == 1 || with_system))
            *whole = *whole && prints_whole(marked_view(&out), user);
        marked_release(&out);
        if (rc == -ERR_FORMAT && i == 0) {
            c->quirks.no_system = true;
            rc = 0;
        }
    }
    return rc;
}

/* A template file of the job: the interpreter renders every prompt. */
static int open_file(struct chat *c, const char *path, bool with_system, struct buf *text,
                     struct err *e)
{
    struct err inner = {0};
    int rc = file_read(path, text, &inner);
    if (rc < 0) {
        char what[sizeof(inner.msg) + 64];
        snprintf(what, sizeof(what), "prompt.template is neither a family nor a file (%s)",
                 inner.msg);
        return config_error(e, what);
    }
    rc = jinja_open(&c->jinja, text->data ? text->data : "", text->len, &inner);
    c->family = "file";
    bool whole = true;
    struct marked user;
    marked_init(&user, RENDER_MAX);
    if (rc == 0)
        rc = probe_text(&user, &inner);
    if (rc == 0)
        rc = try_file(c, marked_view(&user), with_system, &whole, &inner);
    marked_release(&user);
    add_note(c, "chat template: the file %s", path);
    if (rc < 0)
        return template_error(e, path, &inner);
    if (whole)
        return 0;
    char what[256];
    snprintf(what, sizeof(what),
             "the template does not print the user's text whole, once and unchanged: %s", path);
    return config_error(e, what);
}

static void note_system(struct chat *c)
{
    if (c->quirks.no_system)
        add_note(c, "no system role: a system text goes in front of the user turn");
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

/* What prompt.template asks for; text gets the template that is used, for the digest. */
static int open_template(struct chat *c, const struct prompt_config *p, const char *base,
                         struct gguf_string own, struct buf *text, struct err *e)
{
    const char *want = p->template ? p->template : "auto";
    if (strcmp(want, "none") == 0) {
        use_format(c, &none_format);
        add_note(c, "chat template: none; texts are joined with blank lines");
        return 0;
    }
    if (strcmp(want, "auto") == 0) {
        int rc = open_auto(c, own.s, own.len, e);
        return rc < 0 ? rc : buf_add(text, own.s, own.len, e);
    }
    if (chat_format_find(want)) {
        use_format(c, chat_format_find(want));
        add_note(c, "chat template: %s, as the job says", want);
        return 0;
    }
    char *path = file_join(base, want);
    int rc = open_file(c, path, p->system != NULL, text, e);
    free(path);
    return rc;
}

int chat_open(struct chat **out, const struct vocab *v, const struct gguf *g,
              const struct prompt_config *p, const char *base, struct err *e)
{
    struct gguf_string own = {0};
    int rc = g ? gguf_str(g, "tokenizer.chat_template", &own, e) : 0;
    if (rc == 1)
        rc = gguf_str(g, "tokenizer.chat_template.default", &own, e);
    if (rc < 0)
        return rc;
    struct chat *c = new_chat(v);
    struct buf text;
    buf_init(&text, JINJA_TEMPLATE_MAX);
    c->has_date = p->date != NULL;
    rc = p->date ? chat_date_parse(&c->date, p->date, e) : 0;
    if (rc == 0)
        rc = open_template(c, p, base, own, &text, e);
    if (rc == 0) {
        note_system(c);
        find_thinking(c, own.s, own.len);
        set_digest(c, text.data, text.len);
        *out = c;
    } else {
        chat_free(c);
    }
    buf_release(&text);
    return rc;
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
    jinja_free(c->jinja);
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

/* ---- rendering ---- */

/* A system text joined to the user turn, for template files without a system role. */
static int prepend_system(struct mtext system, struct mtext turn, struct marked *out,
                          struct err *e)
{
    int rc = marked_join(out, system, e);
    if (rc == 0 && system.len)
        rc = marked_adds(out, "\n\n", MARK_SYSTEM, e);
    return rc < 0 ? rc : marked_join(out, turn, e);
}

/* By the interpreter. */
static int render_file(const struct chat *c, const struct chat_message *msgs, int n,
                       struct marked *out, struct err *e)
{
    struct marked turn;
    marked_init(&turn, RENDER_MAX);
    struct chat_message one = {CHAT_USER, {0}};
    int rc = 0;
    if (n == 2 && c->quirks.no_system) {
        rc = prepend_system(msgs[0].text, msgs[1].text, &turn, e);
        one.text = marked_view(&turn);
        msgs = &one;
        n = 1;
    }
    struct jinja_input in = {msgs, n, c->bos, c->eos, c->has_date ? &c->date : NULL};
    if (rc == 0)
        rc = jinja_render(c->jinja, &in, out, e);
    marked_release(&turn);
    return rc;
}

/* BOS, when the template writes it (or begins with it anyway), is left out of the text. */
static int render(const struct chat *c, const struct chat_message *msgs, int n,
                  struct marked *out, struct mtext *text, bool *bos, struct err *e)
{
    *bos = c->format && c->quirks.bos;
    int rc = c->format ? chat_format_render(c->format, &c->quirks, c->eos, msgs, n, out, e)
                       : render_file(c, msgs, n, out, e);
    for (*text = marked_view(out); chat_strip_bos(text, c->bos);)
        *bos = true;
    return rc;
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
    struct mtext rendered = {0};
    bool bos = false;
    if (rc == 0)
        rc = render(c, msgs, n_msgs, &text, &rendered, &bos, e);
    if (rc == 0 && vocab_bos(c->v) >= 0 && (bos || vocab_adds_bos(c->v)))
        rc = token_list_add(out, vocab_bos(c->v), e);
    if (rc == 0)
        rc = chat_tokens(c->v, rendered, MARK_TURN + first_own, out, n_shared, e);
    if (rc == 0 && c->end_turn >= 0)
        rc = token_list_add(out, c->end_turn, e);
    free(system_marks);
    marked_release(&user);
    marked_release(&text);
    return rc;
}

/* libyaml's events drive a small machine with one state per level of the file:
 *
 *     TOP --key--> TOP_VALUE --mapping--> KEY --key--> VALUE --sequence--> ITEM
 *      ^              | text or list       ^             | text               |
 *      +--------------+                    +-------------+<-------------------+
 *
 * Anything deeper is refused when it opens, so neither the machine nor libyaml's stack grows. */
#include "pipeline/job_file.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum state { TOP, TOP_VALUE, KEY, VALUE, ITEM, DONE };

/* Texts are at most as long as the file; nodes and alignment come on top. */
enum { ARENA_CAP = 64 << 20 };

struct reader {
    struct job_file *f;
    const char *path, *text;
    size_t len;
    enum state state, after_item; /* where the end of a list leads */
    const char *section;
    struct job_entry *entry; /* the one whose value comes next */
    struct job_value **tail;
    struct err *e;
};

static const char root_expected[] = "a job file is a mapping of sections, such as \"model:\"";

static struct job_place place(yaml_mark_t m)
{
    struct job_place at = {.line = m.line < INT_MAX ? (int)m.line + 1 : INT_MAX,
                           .column = m.column < INT_MAX ? (int)m.column + 1 : INT_MAX};
    return at;
}

static int fail(struct reader *r, struct job_place at, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int fail(struct reader *r, struct job_place at, const char *fmt, ...)
{
    char msg[sizeof(r->e->msg)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    return err_set(r->e, REACH_JOB, ERR_CONFIG, "%s:%d:%d: %s", r->path, at.line, at.column,
                   msg);
}

static int no_memory(struct reader *r)
{
    return err_set(r->e, REACH_JOB, ERR_NOMEM, "%s: no memory for the job file", r->path);
}

/* What libyaml says, and what the writer most likely did. */
static int syntax_error(struct reader *r, const yaml_parser_t *p)
{
    struct job_place at = place(p->problem_mark);
    if (p->error == YAML_MEMORY_ERROR)
        return no_memory(r);
    const char *problem = p->problem ? p->problem : "not YAML",
               *context = p->context ? p->context : "";
    if (p->error == YAML_READER_ERROR) { /* knows the byte only */
        at = (struct job_place){1, 1};
        for (size_t i = 0; i < p->problem_offset && i < r->len; i++) {
            at.column++;
            if (r->text[i] == '\n')
                at = (struct job_place){at.line + 1, 1};
        }
        return fail(r, at, "not valid text: %s", problem);
    }
    if (strstr(context, "quoted scalar") && strstr(problem, "end of stream"))
        return fail(r, place(p->context_mark), "a quote that is not closed");
    if (strstr(context, "alias"))
        return fail(r, at, "a text that begins with * needs quotes: \"*.txt\"");
    size_t i = p->problem_mark
                   .index; /* a place in characters: good enough to look for a tab in ASCII */
    if (strstr(problem, "cannot start any token")) {
        if (i < r->len && r->text[i] == '\t')
            return fail(r, at, "a tab: indent with spaces");
        return fail(r, at, "a text that begins with this character needs quotes");
    }
    if (strstr(problem, "mapping values are not allowed"))
        return fail(r, at,
                    "a colon here: put a text that holds \": \" into quotes, and check the "
                    "indentation");
    return fail(r, at, "%s%s%s", problem, *context ? " " : "", context);
}

static const char *copy(struct reader *r, const char *s, size_t n, struct job_place at)
{
    if (memchr(s, '\0', n)) {
        fail(r, at, "a text cannot hold a NUL");
        return NULL;
    }
    const char *t = arena_strndup(&r->f->arena, s, n);
    if (!t)
        no_memory(r);
    return t;
}

/* ---- keys ---- */

static int add_entry(struct reader *r, const char *section, const char *key,
                     struct job_place at)
{
    struct job_file *f = r->f;
    const struct job_entry *first = job_file_find(f, section, key);
    if (!first && *section == '\0')
        first = job_file_find(f, key, NULL);
    if (first)
        return fail(r, at, "\"%s\" is here twice: first in line %d", key, first->at.line);
    if (f->n == JOB_FILE_KEYS)
        return fail(r, at, "more than %d keys", JOB_FILE_KEYS);
    r->entry = &f->entries[f->n++];
    *r->entry = (struct job_entry){.section = section, .key = key, .at = at};
    r->tail = &r->entry->values;
    return 0;
}

static int on_key(struct reader *r, const yaml_event_t *ev)
{
    struct job_place at = place(ev->start_mark);
    const char *name = (const char *)ev->data.scalar.value;
    size_t n = ev->data.scalar.length;
    if (n == 2 && memcmp(name, "<<", 2) == 0)
        return fail(r, at, "merge keys (<<) are not used in job files");
    if (n == 0 || n > 100)
        return fail(r, at, n ? "a key of %zu bytes" : "an empty key", n);
    const char *key = copy(r, name, n, at);
    if (!key)
        return -(int)r->e->code;
    if (r->state == KEY) {
        r->state = VALUE;
        return add_entry(r, r->section, key, at);
    }
    /* Whether this names a section or a key shows with its value. */
    r->state = TOP_VALUE;
    return add_entry(r, "", key, at);
}

/* ---- values ---- */

static int add_value(struct reader *r, const yaml_event_t *ev)
{
    struct job_place at = place(ev->start_mark);
    const char *s = (const char *)ev->data.scalar.value;
    size_t n = ev->data.scalar.length;
    bool plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (n == 0 || (n == 1 && *s == '~')))
        return fail(r, r->entry->at,
                    "%s%s%s has no value: leave the key out, or write \"\" for an empty text",
                    r->entry->section, *r->entry->section ? "." : "", r->entry->key);
    struct job_value *v = arena_alloc(&r->f->arena, sizeof(*v));
    if (!v)
        return no_memory(r);
    v->at = at;
    v->text = copy(r, s, n, at);
    if (!v->text)
        return -(int)r->e->code;
    *r->tail = v;
    r->tail = &v->next;
    return 0;
}

static int on_scalar(struct reader *r, const yaml_event_t *ev)
{
    switch (r->state) {
    case TOP:
    case KEY:
        return on_key(r, ev);
    case TOP_VALUE:
        r->state = TOP;
        /* "chunk:" with nothing below is a section whose keys all have their defaults. */
        if (ev->data.scalar.length == 0 && ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
            r->entry->section = r->entry->key;
            r->entry->key = NULL;
            return 0;
        }
        return add_value(r, ev);
    case VALUE:
        r->state = KEY;
        return add_value(r, ev);
    case ITEM:
        return add_value(r, ev);
    case DONE:
        break;
    }
    return fail(r, place(ev->start_mark), "%s", root_expected);
}

static int on_sequence(struct reader *r, const yaml_event_t *ev)
{
    if (r->state == ITEM)
        return fail(r, place(ev->start_mark), "a list inside a list");
    if (r->state == DONE)
        return fail(r, place(ev->start_mark), "%s", root_expected);
    if (r->state != TOP_VALUE && r->state != VALUE)
        return fail(r, place(ev->start_mark), "a list where a key is expected");
    r->entry->list = true;
    r->after_item = r->state == VALUE ? KEY : TOP;
    r->state = ITEM;
    return 0;
}

static int on_mapping(struct reader *r, const yaml_event_t *ev)
{
    switch (r->state) {
    case DONE: /* the root */
        r->state = TOP;
        return 0;
    case TOP_VALUE:
        r->entry->section = r->section = r->entry->key;
        r->entry->key = NULL;
        r->state = KEY;
        return 0;
    case VALUE:
    case ITEM:
        return fail(r, place(ev->start_mark), "%s.%s takes texts, not keys of its own%s",
                    r->entry->section, r->entry->key,
                    r->state == ITEM ? ": put an item that holds \": \" into quotes" : "");
    default:
        return fail(r, place(ev->start_mark), "a mapping where a key is expected");
    }
}

/* ---- events ---- */

/* The features of YAML that make a file mean something else than it shows. */
static int refuse_extras(struct reader *r, const yaml_event_t *ev)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (ev->type == YAML_ALIAS_EVENT)
        return fail(r, place(ev->start_mark),
                    "aliases (*%s) are not used in job files; a text that begins with * "
                    "needs quotes",
                    (const char *)ev->data.alias.anchor);
    if (ev->type == YAML_SCALAR_EVENT)
        anchor = ev->data.scalar.anchor, tag = ev->data.scalar.tag;
    else if (ev->type == YAML_SEQUENCE_START_EVENT)
        anchor = ev->data.sequence_start.anchor, tag = ev->data.sequence_start.tag;
    else if (ev->type == YAML_MAPPING_START_EVENT)
        anchor = ev->data.mapping_start.anchor, tag = ev->data.mapping_start.tag;
    if (anchor)
        return fail(r, place(ev->start_mark), "anchors (&%s) are not used in job files",
                    (const char *)anchor);
    if (tag)
        return fail(r, place(ev->start_mark), "tags (%s) are not used in job files",
                    (const char *)tag);
    return 0;
}

static int on_event(struct reader *r, const yaml_event_t *ev, int *documents)
{
    if (refuse_extras(r, ev))
        return -(int)r->e->code;
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        return ++*documents > 1
                   ? fail(r, place(ev->start_mark), "a second document: one job per file")
                   : 0;
    case YAML_SCALAR_EVENT:
        return on_scalar(r, ev);
    case YAML_SEQUENCE_START_EVENT:
        return on_sequence(r, ev);
    case YAML_SEQUENCE_END_EVENT:
        r->state = r->after_item;
        return 0;
    case YAML_MAPPING_START_EVENT:
        return on_mapping(r, ev);
    case YAML_MAPPING_END_EVENT:
        r->state = r->state == KEY ? TOP : DONE;
        return 0;
    default:
        return 0;
    }
}

int job_file_parse(struct job_file *f, const char *text, size_t len, const char *path,
                   struct err *e)
{
    struct reader r = {.f = f, .path = path, .text = text, .len = len, .state = DONE, .e = e};
    struct job_place start = {1, 1};
    f->n = 0;
    arena_init(&f->arena, ARENA_CAP);
    if (len > JOB_FILE_BYTES)
        return fail(&r, start, "a job file of %zu bytes: at most %d", len, JOB_FILE_BYTES);
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return no_memory(&r);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    int rc = 0, documents = 0;
    for (bool end = false; !rc && !end;) {
        yaml_event_t ev;
        if (!yaml_parser_parse(&parser, &ev)) {
            rc = syntax_error(&r, &parser);
            break;
        }
        end = ev.type == YAML_STREAM_END_EVENT;
        rc = on_event(&r, &ev, &documents);
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&parser);
    if (!rc && documents == 0)
        rc = fail(&r, start, "an empty job file: \"quire help\" lists what belongs into it");
    if (rc)
        job_file_release(f);
    return rc;
}

void job_file_release(struct job_file *f)
{
    arena_release(&f->arena);
    f->n = 0;
}

int job_file_set(struct job_file *f, const char *section, const char *key, const char *text,
                 struct err *e)
{
    struct job_value *v = arena_alloc(&f->arena, sizeof(*v));
    char *copies[3] = {arena_strndup(&f->arena, section, strlen(section)),
                       arena_strndup(&f->arena, key, strlen(key)),
                       arena_strndup(&f->arena, text, strlen(text))};
    if (!v || !copies[0] || !copies[1] || !copies[2])
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a setting");
    v->text = copies[2];
    struct job_entry *x = NULL;
    for (size_t i = 0; i < f->n && !x; i++)
        if (f->entries[i].key && strcmp(f->entries[i].key, key) == 0 &&
            strcmp(f->entries[i].section, section) == 0)
            x = &f->entries[i];
    if (!x && f->n == JOB_FILE_KEYS)
        return err_set(e, REACH_JOB, ERR_CONFIG, "more than %d keys", JOB_FILE_KEYS);
    if (x && x->at.line == 0) { /* the second setting of a list */
        struct job_value **tail = &x->values;
        while (*tail)
            tail = &(*tail)->next;
        *tail = v;
        x->list = true;
        return 0;
    }
    if (!x)
        x = &f->entries[f->n++];
    *x = (struct job_entry){.section = copies[0], .key = copies[1], .values = v};
    return 0;
}

const struct job_entry *job_file_find(const struct job_file *f, const char *section,
                                      const char *key)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct job_entry *x = &f->entries[i];
        bool same_key = key ? x->key && strcmp(x->key, key) == 0 : !x->key;
        if (same_key && strcmp(x->section, section) == 0)
            return x;
    }
    return NULL;
}

#include "stages/write/markdown.h"

#include "stages/base/utf8.h"
#include "stages/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What Markdown could take for markup, HTML included, within a line. */
static const char markdown_special[] = "\\`*_~[]()<>&#!|$";

static bool plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* What a person would call the document: its title, or the last name of its chain. */
static const char *label(const struct doc *d)
{
    if (d->title && d->title[0])
        return d->title;
    const char *name = d->source ? d->source : "";
    for (char *const *s = d->chain; s && *s; s++)
        name = *s;
    const char *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

void markdown_name(const struct doc *d, char *out, size_t cap)
{
    enum { SLUG = 40 };
    char slug[SLUG + 1];
    size_t n = 0;
    for (const char *s = label(d); *s && n < SLUG; s++) {
        char c = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
        if (plain(c))
            slug[n++] = c;
        else if (n > 0 && slug[n - 1] != '-')
            slug[n++] = '-';
    }
    while (n > 0 && slug[n - 1] == '-')
        n--;
    slug[n] = '\0';
    char id[9];
    snprintf(id, sizeof(id), "%.8s", d->id);
    for (char *c = id; *c; c++)
        if (!plain(*c))
            *c = '-';
    snprintf(out, cap, "summaries/%06" PRId64 "-%s%s%s.md", d->ordinal, slug, n ? "-" : "", id);
}

/* Controls, line separators, and marks that turn the direction of the text around them. */
static bool disturbs(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || (cp >= 0x2028 && cp <= 0x202e) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

/* Appends a text as one line of UTF-8 without such characters; special: bytes that get a backslash. */
static int add_line(struct buf *out, const char *s, const char *special, struct err *e)
{
    int rc = 0;
    size_t n = strlen(s);
    for (size_t i = 0; i < n && !rc;) {
        uint32_t cp;
        int used = utf8_decode(s + i, n - i, &cp);
        char bytes[4];
        i += (size_t)abs(used);
        if (disturbs(cp))
            cp = ' ';
        if (cp < 0x80 && strchr(special, (int)cp))
            rc = buf_addc(out, '\\', e);
        if (!rc)
            rc = buf_add(out, bytes, (size_t)utf8_encode(cp, bytes), e);
    }
    return rc;
}

/* A line of front matter. A JSON string is also a YAML string. */
static int front(struct buf *out, const char *key, const char *value, struct err *e)
{
    struct buf line;
    buf_init(&line, SIZE_MAX);
    int rc = value ? add_line(&line, value, "", e) : 0;
    json_t *j = value ? json_stringn(line.data ? line.data : "", line.len) : json_null();
    char *text = j && !rc ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
    json_decref(j);
    buf_release(&line);
    if (!rc && !text)
        rc = err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a summary");
    if (!rc)
        rc = buf_addf(out, e, "%s: %s\n", key, text);
    free(text);
    return rc;
}

static int head(const struct result *r, const struct stage_env *env, struct buf *out,
                struct err *e)
{
    const struct doc *d = r->doc;
    char *source = doc_name(d), hex[HASH_HEX];
    hash_hex(d->sha256, hex);
    int rc = buf_adds(out, "---\n", e);
    if (!rc)
        rc = front(out, "title", d->title, e);
    if (!rc)
        rc = front(out, "source", source, e);
    if (!rc)
        rc = buf_addf(out, e, "id: \"%s\"\nsha256: \"%s\"\nstatus: %s\n", d->id, hex,
                      result_status_name(r->status));
    if (!rc)
        rc = front(out, "model", env->facts->model_name, e);
    if (!rc)
        rc = buf_adds(out, "---\n\n# ", e);
    if (!rc)
        rc = add_line(out, label(d), markdown_special, e);
    if (!rc)
        rc = buf_adds(out, "\n\n", e);
    free(source);
    return rc;
}

static int add_note(const struct answer *a, struct buf *out, struct err *e)
{
    int rc = 0;
    if (a->flags & ANSWER_TRUNCATED)
        rc = buf_addf(out, e, "*(cut at %d tokens)*\n\n", a->n_tokens);
    if (!rc && a->flags & ANSWER_REPETITIVE)
        rc = buf_adds(out, "*(stopped: it began to repeat itself)*\n\n", e);
    return rc;
}

static int add_answers(const struct result *r, const struct stage_env *env, struct buf *out,
                       struct err *e)
{
    int rc = 0;
    for (int i = 0; i < r->n_finals && !rc; i++) {
        const struct rec *f = r->finals[i];
        size_t q = (size_t)f->req.question;
        if (env->task->kind == TASK_ASK && q < env->task->questions.n)
            rc = buf_addf(out, e, "## %s\n\n", env->task->questions.items[q]);
        if (!rc)
            rc = buf_addf(out, e, "%s\n\n", f->answer.text ? f->answer.text : "");
        if (!rc)
            rc = add_note(&f->answer, out, e);
    }
    return rc;
}

static int add_parts(const struct result *r, struct buf *out, struct err *e)
{
    int rc = 0;
    bool first = true;
    for (int i = 0; i < r->n_finals; i++) {
        const struct summary_info *info = r->finals[i]->info;
        for (int k = 0; info && k < info->n_parts && !rc; k++, first = false) {
            const struct part_answer *p = &info->parts[k];
            if (first)
                rc = buf_adds(out, "## Sections\n\n", e);
            if (!rc)
                rc = buf_addf(out, e, "### %d. %s\n\n", p->index + 1,
                              p->heading_path ? p->heading_path : "");
            if (!rc && p->page_first)
                rc = buf_addf(out, e, "*pages %d to %d*\n\n", p->page_first, p->page_last);
            else if (!rc)
                rc = buf_addf(out, e, "*bytes %zu to %zu*\n\n", p->begin, p->end);
            if (!rc)
                rc = buf_addf(out, e, "%s\n\n", p->answer.text ? p->answer.text : "");
            if (!rc)
                rc = add_note(&p->answer, out, e);
        }
    }
    return rc;
}

int markdown_page(const struct result *r, const struct stage_env *env, struct buf *out,
                  struct err *e)
{
    int rc = head(r, env, out, e);
    if (!rc)
        rc = add_answers(r, env, out, e);
    return rc ? rc : add_parts(r, out, e);
}

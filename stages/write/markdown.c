#include "stages/write/markdown.h"

#include "stages/base/utf8.h"
#include "stages/write/result.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What Markdown could take for markup, HTML included, within a line. */
static const char markdown_special[] = "\\`*_~[]()<>&#!|$";

static const char *text_at(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* What a person would call the document: its title, or the last name of its chain. */
static const char *label(const struct result_line *l)
{
    const char *title = text_at(l->json, "title"), *name = l->source;
    if (title[0])
        return title;
    const json_t *chain = json_object_get(l->json, "chain");
    size_t n = json_array_size(chain);
    if (n > 0)
        name = json_string_value(json_array_get(chain, n - 1));
    const char *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

void markdown_name(const struct result_line *l, char *out, size_t cap)
{
    snprintf(out, cap, "summaries/%06" PRId64 "-%.8s.md", l->ordinal, l->id);
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

static int head(const struct result_line *l, struct buf *out, struct err *e)
{
    char *source = result_line_name(l);
    const char *sha = text_at(l->json, "sha256");
    int rc = buf_adds(out, "---\n", e);
    if (!rc)
        rc = front(out, "title", json_string_value(json_object_get(l->json, "title")), e);
    if (!rc)
        rc = front(out, "source", source, e);
    if (!rc)
        rc = buf_addf(out, e, "id: \"%s\"\n", l->id);
    if (!rc)
        rc = front(out, "sha256", sha, e);
    if (!rc)
        rc = buf_addf(out, e, "status: %s\n", result_status_name(l->status));
    if (!rc)
        rc = front(out, "model", text_at(json_object_get(l->json, "model"), "name"), e);
    if (!rc)
        rc = buf_adds(out, "---\n\n# ", e);
    if (!rc)
        rc = add_line(out, label(l), markdown_special, e);
    if (!rc)
        rc = buf_adds(out, "\n\n", e);
    free(source);
    return rc;
}

static bool has_flag(const json_t *answer, unsigned bit)
{
    const json_t *flag;
    size_t i;
    json_array_foreach(json_object_get(answer, "flags"), i, flag)
    {
        if (json_is_string(flag) && result_flag(json_string_value(flag)) == bit)
            return true;
    }
    return false;
}

/* An answer with what is to be said of it. */
static int add_answer(const json_t *a, struct buf *out, struct err *e)
{
    int rc = buf_adds(out, text_at(a, "answer"), e);
    if (!rc)
        rc = buf_adds(out, "\n\n", e);
    if (!rc && has_flag(a, ANSWER_TRUNCATED))
        rc = buf_adds(out, "*(cut: it reached the longest length allowed)*\n\n", e);
    if (!rc && has_flag(a, ANSWER_REPETITIVE))
        rc = buf_adds(out, "*(stopped: it began to repeat itself)*\n\n", e);
    return rc;
}

static json_int_t number_at(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static int add_answers(const struct result_line *l, struct buf *out, struct err *e)
{
    const json_t *answers = json_object_get(l->json, "answers"), *a;
    size_t i;
    int rc = 0;
    if (!json_is_array(answers))
        return add_answer(l->json, out, e);
    json_array_foreach(answers, i, a)
    {
        if (!rc)
            rc = buf_addf(out, e, "## %s\n\n", text_at(a, "question"));
        if (!rc)
            rc = add_answer(a, out, e);
    }
    return rc;
}

static int add_part(const json_t *p, struct buf *out, struct err *e)
{
    int rc = buf_addf(out, e, "### %" JSON_INTEGER_FORMAT ". %s\n\n", number_at(p, "index") + 1,
                      text_at(p, "heading"));
    if (!rc && json_is_integer(json_object_get(p, "page_first")))
        rc =
            buf_addf(out, e, "*pages %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT "*\n\n",
                     number_at(p, "page_first"), number_at(p, "page_last"));
    else if (!rc)
        rc =
            buf_addf(out, e, "*bytes %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT "*\n\n",
                     number_at(p, "begin"), number_at(p, "end"));
    return rc ? rc : add_answer(p, out, e);
}

static int add_parts(const struct result_line *l, struct buf *out, struct err *e)
{
    const json_t *parts = json_object_get(l->json, "parts"), *p;
    size_t i;
    int rc = json_array_size(parts) > 0 ? buf_adds(out, "## Sections\n\n", e) : 0;
    json_array_foreach(parts, i, p)
    {
        if (!rc)
            rc = add_part(p, out, e);
    }
    return rc;
}

int markdown_page(const struct result_line *l, struct buf *out, struct err *e)
{
    int rc = head(l, out, e);
    if (!rc)
        rc = add_answers(l, out, e);
    return rc ? rc : add_parts(l, out, e);
}

/* tojson as Hugging Face's tokenizers have it: Python's json.dumps() without ASCII escapes. */
#include "stages/model/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NESTED_MAX = 32, JSON_MAX = 16 << 20 };

static int put(struct jrun *r, struct marked *m, const char *s)
{
    int rc = jrun_pay(r, 1);
    return rc < 0 ? rc : marked_adds(m, s, MARK_TEMPLATE, r->e);
}

static int put_string(struct jrun *r, struct marked *m, struct mtext s)
{
    int rc = put(r, m, "\"");
    if (rc == 0)
        rc = jrun_pay(r, s.len / 16);
    for (size_t i = 0, plain; rc == 0 && i < s.len; i = plain) {
        for (plain = i; plain < s.len; plain++) {
            unsigned char c = (unsigned char)s.s[plain];
            if (c < 0x20 || c == '"' || c == '\\')
                break;
        }
        rc = marked_join(m, mtext_slice(s, i, plain), r->e);
        if (rc < 0 || plain == s.len)
            break;
        static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
        char escape[8] = "\\", c = s.s[plain];
        const char *p = memchr(from, c, sizeof(from) - 1);
        if (p)
            escape[1] = to[p - from];
        else
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)c);
        rc = marked_adds(m, escape, s.marks ? s.marks[plain] : MARK_TEMPLATE, r->e);
        plain++;
    }
    return rc < 0 ? rc : put(r, m, "\"");
}

static int new_line(struct jrun *r, struct marked *m, int indent, int depth)
{
    int rc = indent < 0 ? 0 : put(r, m, "\n");
    for (int i = 0; rc == 0 && i < indent * depth; i++)
        rc = marked_adds(m, " ", MARK_TEMPLATE, r->e);
    return rc;
}

static int put_value(struct jrun *r, struct marked *m, const struct jvalue *v, int indent,
                     int depth)
{
    if (depth > NESTED_MAX)
        return jrun_fail(r, ERR_LIMIT, "tojson: values nested over %d deep", NESTED_MAX);
    bool list = v->type == J_LIST;
    if (!list && v->type != J_MAP) {
        struct mtext text;
        if (v->type == J_STRING)
            return put_string(r, m, v->s);
        if (v->type == J_NONE)
            return put(r, m, "null");
        if (v->type == J_BOOL)
            return put(r, m, v->b ? "true" : "false");
        if (v->type != J_INT && v->type != J_FLOAT)
            return jrun_fail(r, ERR_FORMAT, "%s cannot be written as JSON",
                             jvalue_type_name(v));
        int rc = jvalue_text(r, v, &text);
        return rc < 0 ? rc : marked_join(m, text, r->e);
    }
    size_t n = list ? v->list->n : v->map->n;
    int rc = put(r, m, list ? "[" : "{");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (i > 0)
            rc = put(r, m, indent < 0 ? ", " : ",");
        if (rc == 0)
            rc = new_line(r, m, indent, depth + 1);
        if (rc == 0 && !list)
            rc = put_string(r, m, v->map->items[i].key);
        if (rc == 0 && !list)
            rc = put(r, m, ": ");
        if (rc == 0)
            rc = put_value(r, m, list ? &v->list->items[i] : &v->map->items[i].value, indent,
                           depth + 1);
    }
    if (rc == 0 && n > 0)
        rc = new_line(r, m, indent, depth);
    return rc < 0 ? rc : put(r, m, list ? "]" : "}");
}

int jvalue_json(struct jrun *r, const struct jvalue *v, int indent, struct mtext *out)
{
    struct marked m;
    marked_init(&m, JSON_MAX);
    int rc = put_value(r, &m, v, indent > 16 ? 16 : indent, 0);
    if (rc == 0)
        rc = jtext_keep(r, &m, out);
    marked_release(&m);
    return rc;
}

/* The resolved job as YAML: every key with its value. Texts of several lines are literal blocks when that
 * keeps every byte; all other texts are double-quoted, which can hold anything. */
#include "pipeline/job.h"

#include "stages/base/utf8.h"

#include <string.h>

enum { PRINT_CAP = 8 << 20 };

static bool printable(uint32_t cp)
{
    return (cp >= 0x20 && cp < 0x7f) || (cp >= 0xa0 && cp != 0x2028 && cp != 0x2029 &&
                                         cp != 0xfeff && cp != 0xfffe && cp != 0xffff);
}

/* Several lines, the first of which shows the indentation, and nothing at a line's end that an editor
 * would strip or YAML would fold. */
static bool fits_literal(const char *s, size_t n)
{
    if (!memchr(s, '\n', n) || *s == ' ' || *s == '\n' ||
        (n > 1 && s[n - 1] == '\n' && s[n - 2] == '\n'))
        return false;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len < 0 || (cp != '\n' && !printable(cp)))
            return false;
        if (cp == '\n' && i > 0 && s[i - 1] == ' ')
            return false;
        i += (size_t)len;
    }
    return s[n - 1] != ' ';
}

static int print_literal(const char *s, size_t n, const char *indent, struct buf *out,
                         struct err *e)
{
    int rc = buf_adds(out, s[n - 1] == '\n' ? "|\n" : "|-\n", e);
    for (const char *end = s + n; !rc && s < end;) {
        const char *line_end = memchr(s, '\n', (size_t)(end - s));
        size_t len = (size_t)((line_end ? line_end : end) - s);
        if (len)
            rc = buf_adds(out, indent, e);
        if (!rc)
            rc = buf_add(out, s, len, e);
        if (!rc)
            rc = buf_addc(out, '\n', e);
        s += len + 1;
    }
    return rc;
}

static int print_quoted(const char *s, size_t n, struct buf *out, struct err *e)
{
    int rc = buf_addc(out, '"', e);
    for (size_t i = 0; !rc && i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        size_t step = (size_t)(len < 0 ? -len : len);
        if (cp == '"' || cp == '\\')
            rc = buf_addf(out, e, "\\%c", (int)cp);
        else if (cp == '\n')
            rc = buf_adds(out, "\\n", e);
        else if (printable(cp))
            rc = buf_add(out, s + i, step, e);
        else
            rc = buf_addf(out, e, cp < 0x10000 ? "\\u%04X" : "\\U%08X", cp);
        i += step;
    }
    return rc ? rc : buf_adds(out, "\"\n", e);
}

static int print_value(const struct opt *o, const struct buf *text, const char *indent,
                       struct buf *out, struct err *e)
{
    bool quoted = o->type == OPT_STRING || o->type == OPT_PATH || o->type == OPT_STRINGS ||
                  o->type == OPT_PATHS;
    const char *s = text->data ? text->data : "";
    if (!quoted)
        return buf_addf(out, e, "%s\n", s);
    if (fits_literal(s, text->len))
        return print_literal(s, text->len, indent, out, e);
    return print_quoted(s, text->len, out, e);
}

/* One key; an unset text and an empty list are left out. */
static int print_option(const struct opt *o, const void *config, struct buf *out, struct err *e)
{
    bool many = o->type == OPT_STRINGS || o->type == OPT_PATHS;
    struct buf text;
    buf_init(&text, PRINT_CAP);
    int rc = 0;
    for (size_t i = 0;; i++) {
        buf_clear(&text);
        rc = opt_text(o, config, i, &text, e);
        if (rc)
            break;
        if (i == 0)
            rc = buf_addf(out, e, "  %s:%s", o->name, many ? "\n" : " ");
        if (!rc && many)
            rc = buf_adds(out, "    - ", e);
        if (!rc)
            rc = print_value(o, &text, many ? "      " : "    ", out, e);
        if (rc)
            break;
    }
    buf_release(&text);
    return rc > 0 ? 0 : rc;
}

int job_print(const struct job *j, struct buf *out, struct err *e)
{
    int rc = buf_addf(out, e, "job: \"%s\"\n", j->name);
    for (size_t i = 0; !rc && i < n_job_sections; i++) {
        const struct job_section *s = &job_sections[i];
        rc = buf_addf(out, e, "%s:\n", s->name);
        for (size_t k = 0; !rc && k < *s->n_opts; k++)
            rc = print_option(&s->opts[k], (const char *)j + s->offset, out, e);
    }
    return rc;
}

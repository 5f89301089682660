#include "stages/ingest/extract.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_CHARS = 1024, SUFFIX = 16, BINARY_SHARE = 100 };

void extract_warn(struct extraction *x, const char *fmt, ...)
{
    if (x->n_warnings == MAX_WARNINGS)
        return;
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    line[utf8_valid_prefix(line, strlen(line))] = '\0'; /* the bound may cut a character */
    x->warnings[x->n_warnings++] = mem_strdup(line);
}

/* ---- which extractor ---- */

static const struct extractor *const all[] = {&extract_text, &extract_markdown, &extract_html,
                                              &extract_xml};

static void take_head(const unsigned char *p, size_t n, const char *name, char text[HEAD_CHARS],
                      char suffix[SUFFIX], struct doc_head *h)
{
    const char *dot = name ? strrchr(name, '.') : NULL;
    size_t i = 0;
    for (; dot && dot[i] && i + 1 < SUFFIX; i++)
        suffix[i] = (char)tolower((unsigned char)dot[i]);
    suffix[i] = '\0';
    *h = (struct doc_head){
        .text = text, .n = charset_peek(p, n, text, HEAD_CHARS), .suffix = suffix};
}

static const struct extractor *choose(int as, const struct doc_head *h)
{
    switch (as) {
    case AS_TEXT:
        return &extract_text;
    case AS_MARKDOWN:
        return &extract_markdown;
    case AS_HTML:
        return &extract_html;
    case AS_XML:
        return &extract_xml;
    default:
        break;
    }
    const struct extractor *best = &extract_text;
    int highest = 0;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        int bid = all[i]->bid(h);
        if (bid > highest) {
            highest = bid;
            best = all[i];
        }
    }
    return best;
}

const struct extractor *extractor_choose(int as, const unsigned char *p, size_t n,
                                         const char *name)
{
    char text[HEAD_CHARS], suffix[SUFFIX];
    struct doc_head h;
    take_head(p, n, name, text, suffix, &h);
    return choose(as, &h);
}

/* ---- checks between the steps ---- */

/* Text has hardly any control characters; what has many is a program, a picture, a font. */
static bool is_binary(const char *s, size_t n, size_t nuls)
{
    size_t control = nuls;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        control += (c < ' ' && !text_is_space((char)c) && c != 0x1b && c != 0x08) || c == 0x7f;
    }
    return control > (n + nuls) / BINARY_SHARE;
}

static bool only_space(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!text_is_space(s[i]))
            return false;
    return true;
}

static void blank_controls(struct buf *b)
{
    for (size_t i = 0; i < b->len; i++)
        if ((unsigned char)b->data[i] < ' ' && !text_is_space(b->data[i]))
            b->data[i] = ' ';
}

static const unsigned char *bytes_of(const struct extract_input *in)
{
    return (const unsigned char *)(in->bytes->data ? in->bytes->data : "");
}

static int decode(const struct extract_input *in, const struct extractor *ex,
                  const struct doc_head *h, struct extraction *x, struct buf *utf8,
                  const char **encoding, struct err *e)
{
    const char *label = in->cfg->encoding;
    const struct charset *option = label ? charset_find(label, strlen(label)) : NULL;
    enum charset_by by;
    const struct charset *declared = ex->declared ? ex->declared(h) : NULL;
    const struct charset *c =
        charset_choose(bytes_of(in), in->bytes->len, option, declared, &by);
    struct decode_report report = {0};
    int rc = charset_decode(c, bytes_of(in), in->bytes->len, in->deadline, utf8, &report, e);
    if (rc != 0)
        return rc;
    if (is_binary(utf8->data ? utf8->data : "", utf8->len, report.nuls))
        return err_set(e, REACH_DOC, ERR_UNSUPPORTED, "binary data, not text");
    if (report.bad > in->bytes->len / 10 && by >= BY_DETECTOR)
        return err_set(e, REACH_DOC, ERR_UNSUPPORTED,
                       "binary data, or text in an unknown encoding");
    if (by == BY_DEFAULT)
        extract_warn(x, "The encoding is a guess: %s.", c->name);
    if (report.bad > 0)
        extract_warn(x, "%zu byte sequences that are not %s were replaced by U+FFFD.",
                     report.bad, c->name);
    if (report.nuls > 0)
        extract_warn(x, "%zu NUL characters were dropped.", report.nuls);
    if (ex->markup)
        blank_controls(utf8);
    *encoding = c->name;
    return 0;
}

/* ---- into the document ---- */

static int fill(struct extraction *x, const struct extractor *ex, const char *encoding,
                struct doc *d, struct err *e)
{
    int rc = ex->run(x, e);
    if (rc == 0)
        rc = text_close(&x->out, e);
    if (rc == 0 && (x->out.n_blocks == 0 || only_space(x->out.text.data, x->out.text.len)))
        rc = err_set(e, REACH_DOC, ERR_FORMAT, "no text in the document");
    if (rc != 0)
        return rc;
    d->media_type = mem_strdup(ex->media_type);
    d->encoding = mem_strdup(encoding);
    d->title = x->title;
    x->title = NULL;
    d->text_len = x->out.text.len;
    d->text = buf_take(&x->out.text);
    d->n_blocks = x->out.n_blocks;
    d->blocks = x->out.blocks;
    x->out.blocks = NULL;
    if (x->n_warnings > 0) {
        d->status = DOC_PARTIAL;
        d->warnings = mem_need((x->n_warnings + 1) * sizeof(char *));
        for (size_t i = 0; i < x->n_warnings; i++)
            d->warnings[i] = x->warnings[i];
        x->n_warnings = 0;
    }
    return 0;
}

/* A limit of a buffer is the limit of the job in the reader's words. */
static int name_limit(const struct ingest_config *cfg, struct err *e)
{
    if (e->code == ERR_LIMIT && strncmp(e->msg, "over the limit of", 17) == 0)
        snprintf(e->msg, sizeof(e->msg), "more than %llu bytes of text (ingest.max_document)",
                 (unsigned long long)cfg->max_document);
    return -(int)e->code;
}

static void extraction_release(struct extraction *x)
{
    text_out_release(&x->out);
    free(x->title);
    for (size_t i = 0; i < x->n_warnings; i++)
        free(x->warnings[i]);
}

int extract_document(const struct extract_input *in, struct doc *d, struct err *e)
{
    char text[HEAD_CHARS], suffix[SUFFIX];
    struct doc_head h;
    take_head(bytes_of(in), in->bytes->len, in->name, text, suffix, &h);
    const struct extractor *ex = choose(in->cfg->as, &h);
    struct extraction x = {.deadline = in->deadline};
    if (in->torn)
        extract_warn(&x, "The document is not whole: %s.", in->torn);
    text_out_init(&x.out, (size_t)in->cfg->max_document);
    struct buf utf8;
    buf_init(&utf8, (size_t)in->cfg->max_document);
    const char *encoding = NULL;
    int rc = decode(in, ex, &h, &x, &utf8, &encoding, e);
    buf_release(in->bytes);
    if (rc == 0) {
        x.in = utf8.data ? utf8.data : "";
        x.n = utf8.len;
        rc = fill(&x, ex, encoding, d, e);
    }
    buf_release(&utf8);
    extraction_release(&x);
    return rc == 0 ? 0 : name_limit(in->cfg, e);
}

int extract_plain(const char *text, size_t n, const struct ingest_config *cfg,
                  const struct deadline *deadline, struct doc *d, struct err *e)
{
    struct extraction x = {.deadline = deadline, .in = text, .n = n};
    text_out_init(&x.out, (size_t)cfg->max_document);
    int rc = fill(&x, &extract_text, "UTF-8", d, e);
    extraction_release(&x);
    return rc == 0 ? 0 : name_limit(cfg, e);
}

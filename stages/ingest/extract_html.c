/* HTML and XHTML: cleaned (html_clean.h), parsed by libxml2's SAX parser, and cut into blocks.
 *
 *     <ul><li>one<li>two</ul>   ->  list items, level 1
 *     <tr><td>a<td>b</tr>       ->  table row "a | b"
 *     <h2>, <pre>, <blockquote> ->  heading 2, code (white space kept), quote
 *
 * A paragraph or list inside a cell does not break the row, but a heading, a table, a quote or
 * preformatted text does: then the table was there for the layout.
 * Hidden text (the attribute, display:none) is left out, as are template, noscript, svg and the
 * like; navigation and aria-hidden stay, for a reader sees them. */
#include "stages/ingest/extract.h"
#include "stages/ingest/html_clean.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <libxml/HTMLparser.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_DEPTH = 1024, TITLE_MAX = 1000 };

enum role {
    INLINE,
    BLOCK,
    HEADING,
    ITEM,
    LIST,
    PRE,
    QUOTE,
    TABLE,
    ROW,
    CELL,
    BREAK,
    TITLE,
    SKIP
};

struct element {
    const char *name;
    enum role role;
};

/* Sorted by name: found by bisection. */
static const struct element elements[] = {
    {"address", BLOCK},    {"article", BLOCK},  {"aside", BLOCK},      {"audio", SKIP},
    {"blockquote", QUOTE}, {"body", BLOCK},     {"br", BREAK},         {"canvas", SKIP},
    {"caption", BLOCK},    {"center", BLOCK},   {"dd", BLOCK},         {"details", BLOCK},
    {"dialog", BLOCK},     {"dir", LIST},       {"div", BLOCK},        {"dl", BLOCK},
    {"dt", BLOCK},         {"fieldset", BLOCK}, {"figcaption", BLOCK}, {"figure", BLOCK},
    {"footer", BLOCK},     {"form", BLOCK},     {"h1", HEADING},       {"h2", HEADING},
    {"h3", HEADING},       {"h4", HEADING},     {"h5", HEADING},       {"h6", HEADING},
    {"head", BLOCK},       {"header", BLOCK},   {"hgroup", BLOCK},     {"hr", BLOCK},
    {"html", BLOCK},       {"legend", BLOCK},   {"li", ITEM},          {"listing", PRE},
    {"main", BLOCK},       {"menu", LIST},      {"nav", BLOCK},        {"noscript", SKIP},
    {"object", SKIP},      {"ol", LIST},        {"optgroup", BLOCK},   {"option", BLOCK},
    {"p", BLOCK},          {"plaintext", PRE},  {"pre", PRE},          {"rp", SKIP},
    {"rt", SKIP},          {"search", BLOCK},   {"section", BLOCK},    {"select", BLOCK},
    {"summary", BLOCK},    {"svg", SKIP},       {"table", TABLE},      {"tbody", BLOCK},
    {"td", CELL},          {"template", SKIP},  {"textarea", BLOCK},   {"tfoot", BLOCK},
    {"th", CELL},          {"thead", BLOCK},    {"title", TITLE},      {"tr", ROW},
    {"ul", LIST},          {"video", SKIP},
};

struct html {
    struct extraction *x;
    struct err *e;
    int rc;                               /* first failure: callbacks do nothing more */
    int depth, skip_at, title_at, row_at; /* depths of the elements we are inside of; 0: not */
    int pres, quotes, lists, cells;
    int heading; /* level while inside one */
    struct buf title;
    htmlParserCtxtPtr ctxt;
    unsigned char roles[MAX_DEPTH + 1];
};

static int compare(const void *name, const void *element)
{
    return strcasecmp(name, ((const struct element *)element)->name);
}

static enum role role_of(const xmlChar *name)
{
    const struct element *found =
        bsearch(name, elements, ARRAY_LEN(elements), sizeof(elements[0]), compare);
    return found ? found->role : INLINE;
}

static void check(struct html *h, int rc)
{
    if (h->rc == 0)
        h->rc = rc;
}

/* ---- blocks ---- */

/* Whatever comes next belongs to a new block of the kind that we are inside of. */
static void new_block(struct html *h)
{
    struct text_out *t = &h->x->out;
    bool fresh_item = t->kind == BLOCK_LIST_ITEM && t->open.len == 0 && h->lists > 0;
    if (fresh_item)
        return; /* <li><p>: the paragraph is the item */
    enum block_kind kind = h->heading  ? BLOCK_HEADING
                           : h->pres   ? BLOCK_CODE
                           : h->quotes ? BLOCK_QUOTE
                                       : BLOCK_PARAGRAPH;
    check(h, text_open(t, kind, h->heading, h->pres > 0, h->e));
}

static void leave_kind(struct html *h)
{
    check(h, text_close(&h->x->out, h->e));
    h->x->out.kind = BLOCK_PARAGRAPH;
    new_block(h);
}

/* The row's text ends here; rows of empty cells are nothing. */
static void close_row(struct html *h)
{
    struct buf *open = &h->x->out.open;
    size_t i = 0;
    while (i < open->len && strchr(" |\n", open->data[i]))
        i++;
    if (i == open->len)
        buf_clear(open);
    h->row_at = 0;
    leave_kind(h);
}

static void open_cell(struct html *h)
{
    struct buf *open = &h->x->out.open;
    if (h->cells++ == 0)
        return;
    while (open->len > 0 && text_is_space(open->data[open->len - 1]))
        open->len--;
    check(h, buf_adds(open, " | ", h->e));
}

static void block_edge(struct html *h)
{
    struct buf *open = &h->x->out.open;
    if (!h->row_at)
        new_block(h);
    else if (open->len > 0 && !text_is_space(open->data[open->len - 1]))
        check(h, buf_addc(open, ' ', h->e));
}

static void item_in_cell(struct html *h)
{
    struct buf *open = &h->x->out.open;
    size_t n = open->len;
    while (n > 0 && text_is_space(open->data[n - 1]))
        n--;
    if (n == 0 || open->data[n - 1] == '|')
        return;
    open->len = n;
    check(h, buf_adds(open, "; ", h->e));
}

/* ---- elements ---- */

static void enter(struct html *h, enum role role, const char *name)
{
    bool breaks =
        role == HEADING || role == PRE || role == QUOTE || role == TABLE || role == ROW;
    if (h->row_at && breaks)
        close_row(h);
    switch (role) {
    case BLOCK:
    case TABLE:
        block_edge(h);
        break;
    case HEADING:
        h->heading = name[1] - '0';
        new_block(h);
        break;
    case LIST:
        h->lists++;
        if (!h->row_at)
            leave_kind(h);
        break;
    case ITEM:
        if (h->row_at)
            item_in_cell(h);
        else
            check(h, text_open(&h->x->out, BLOCK_LIST_ITEM, h->lists > 0 ? h->lists : 1,
                               h->pres > 0, h->e));
        break;
    case PRE:
        h->pres++;
        leave_kind(h);
        break;
    case QUOTE:
        h->quotes++;
        leave_kind(h);
        break;
    case ROW:
        check(h, text_open(&h->x->out, BLOCK_TABLE_ROW, 0, false, h->e));
        h->row_at = h->depth;
        h->cells = 0;
        break;
    case CELL:
        if (h->row_at)
            open_cell(h);
        else
            new_block(h);
        break;
    case BREAK:
        if (h->row_at)
            block_edge(h);
        else
            check(h, text_break(&h->x->out, h->e));
        break;
    case TITLE:
        if (!h->title_at)
            h->title_at = h->depth;
        break;
    case SKIP:
        h->skip_at = h->depth;
        break;
    case INLINE:
        break;
    }
}

static void leave(struct html *h, enum role role)
{
    h->pres -= role == PRE;
    h->quotes -= role == QUOTE;
    h->lists -= role == LIST;
    if (role == HEADING)
        h->heading = 0;
    if (h->title_at == h->depth)
        h->title_at = 0;
    if (role == ROW && h->row_at == h->depth)
        close_row(h);
    else if (role == BLOCK || role == TABLE)
        block_edge(h);
    else if (role == CELL && !h->row_at)
        new_block(h);
    else if ((role == HEADING || role == PRE || role == QUOTE || role == ITEM) && !h->row_at)
        leave_kind(h);
}

static void on_start(void *to, const xmlChar *name, const xmlChar **attributes)
{
    struct html *h = to;
    if (h->rc != 0)
        return;
    if (h->depth == MAX_DEPTH) {
        check(h,
              err_set(h->e, REACH_DOC, ERR_LIMIT, "elements nested over %d deep", MAX_DEPTH));
        return;
    }
    check(h, deadline_check(h->x->deadline, h->e));
    enum role role = role_of(name);
    h->roles[++h->depth] = INLINE;
    if (h->skip_at)
        return;
    if (attributes && attributes[0] && role != BREAK) /* the only attribute left is "hidden" */
        role = SKIP;
    h->roles[h->depth] = (unsigned char)role;
    enter(h, role, (const char *)name);
}

static void on_end(void *to, const xmlChar *name)
{
    (void)name;
    struct html *h = to;
    if (h->rc != 0 || h->depth == 0)
        return;
    if (!h->skip_at)
        leave(h, h->roles[h->depth]);
    else if (h->skip_at == h->depth)
        h->skip_at = 0;
    h->depth--;
}

/* ---- text ---- */

/* References to U+0080..U+009F mean windows-1252 on the web. */
static const unsigned short c1[32] = {
    0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8d,   0x017d, 0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178,
};

static void add(struct html *h, const char *s, size_t n)
{
    if (h->title_at) {
        /* A title over the bound keeps what fitted. */
        struct err full = {0};
        if (buf_add(&h->title, s, n, &full) != 0)
            mem_insist(&full);
    } else if (n > 0) {
        check(h, text_add(&h->x->out, s, n, h->e));
    }
}

static void on_text(void *to, const xmlChar *text, int len)
{
    struct html *h = to;
    const char *s = (const char *)text;
    size_t n = (size_t)len, from = 0;
    if (h->rc != 0 || h->skip_at)
        return;
    check(h, deadline_check(h->x->deadline, h->e));
    for (size_t i = 0; i + 1 < n; i++) {
        unsigned char next = (unsigned char)s[i + 1];
        if (s[i] != '\xc2' || next < 0x80 || next > 0x9f)
            continue;
        char utf8[4];
        int m = utf8_encode(c1[next - 0x80], utf8);
        add(h, s + from, i - from);
        add(h, utf8, (size_t)m);
        from = i + 2;
        i++;
    }
    add(h, s + from, n - from);
}

/* ---- run ---- */

static int feed(void *to, const char *s, size_t n)
{
    struct html *h = to;
    htmlParseChunk(h->ctxt, s, (int)n, 0);
    return h->rc;
}

static void ignore_problem(void *to, xmlErrorPtr why)
{
    (void)to, (void)why; /* HTML is never right, and is read all the same */
}

static void take_title(struct html *h)
{
    struct text_out t;
    struct err e = {0};
    text_out_init(&t, 4 * TITLE_MAX);
    if (h->title.len > 0 && text_add(&t, h->title.data, h->title.len, &e) == 0 &&
        text_close(&t, &e) == 0 && t.text.len > 0)
        h->x->title = buf_take(&t.text);
    mem_insist(&e);
    text_out_release(&t);
}

static int run(struct extraction *x, struct err *e)
{
    struct html *h = mem_need(sizeof(*h));
    h->x = x;
    h->e = e;
    buf_init(&h->title, TITLE_MAX);
    htmlSAXHandler sax = {.startElement = on_start,
                          .endElement = on_end,
                          .characters = on_text,
                          .cdataBlock = on_text,
                          .ignorableWhitespace = on_text,
                          .serror = ignore_problem,
                          .initialized = XML_SAX2_MAGIC};
    h->ctxt = htmlCreatePushParserCtxt(&sax, h, NULL, 0, NULL, XML_CHAR_ENCODING_UTF8);
    int rc;
    if (!h->ctxt) {
        rc = err_set(e, REACH_DOC, ERR_NOMEM, "no memory to parse HTML");
    } else {
        htmlCtxtUseOptions(h->ctxt, HTML_PARSE_RECOVER | HTML_PARSE_NONET |
                                        HTML_PARSE_IGNORE_ENC | HTML_PARSE_NOERROR |
                                        HTML_PARSE_NOWARNING);
        rc = html_clean(x->in, x->n, feed, h);
        if (rc == 0)
            htmlParseChunk(h->ctxt, "", 0, 1);
        rc = h->rc;
        if (h->ctxt->myDoc)
            xmlFreeDoc(h->ctxt->myDoc);
        htmlFreeParserCtxt(h->ctxt);
    }
    if (rc == 0)
        take_title(h);
    buf_release(&h->title);
    free(h);
    return rc;
}

/* ---- bids ---- */

static const char *find(const char *s, size_t n, const char *what)
{
    size_t len = strlen(what);
    for (size_t i = 0; i + len <= n; i++)
        if (strncasecmp(s + i, what, len) == 0)
            return s + i;
    return NULL;
}

/* <meta charset=x> or <meta http-equiv=content-type content="...; charset=x"> */
static const struct charset *declared(const struct doc_head *h)
{
    const char *end = h->text + h->n;
    for (const char *p = h->text; (p = find(p, (size_t)(end - p), "<meta")) != NULL; p++) {
        const char *close = memchr(p, '>', (size_t)(end - p));
        const char *label = close ? find(p, (size_t)(close - p), "charset") : NULL;
        if (!label)
            continue;
        label += strlen("charset");
        while (label < close && (text_is_space(*label) || strchr("=\"'", *label)))
            label++;
        size_t n = 0;
        while (label + n < close && !text_is_space(label[n]) && !strchr("\"';/", label[n]))
            n++;
        const struct charset *c = charset_find(label, n);
        if (c)
            return c;
    }
    return xml_declared_charset(h);
}

static int bid(const struct doc_head *h)
{
    size_t at = 0;
    while (at < h->n && text_is_space(h->text[at]))
        at++;
    bool tag = at < h->n && h->text[at] == '<';
    if (tag && (find(h->text, h->n, "<!doctype html") || find(h->text, h->n, "<html")))
        return 60;
    bool named = strcmp(h->suffix, ".html") == 0 || strcmp(h->suffix, ".htm") == 0 ||
                 strcmp(h->suffix, ".xhtml") == 0;
    return named ? 55 : 0;
}

const struct extractor extract_html = {.name = "html",
                                       .media_type = "text/html",
                                       .bid = bid,
                                       .declared = declared,
                                       .run = run,
                                       .markup = true};

/* XML: the text of its elements as paragraphs, by libxml2's push parser.
 *
 * The rule for paragraphs: an element with text of its own is a paragraph together with what is
 * inside it; an element with elements only is none. Elements called title, heading or head are
 * headings whose level is their depth.
 *
 * What protects the parser: input is UTF-8 already and the declaration is not shown to it; the first
 * entity declaration stops it (so nothing can expand), predefined and HTML entities are known
 * anyway; depth, attributes per tag (before libxml2 sees the tag) and time are bounded here,
 * because libxml2's own limits do not hold for a SAX user. */
#include "stages/ingest/extract.h"
#include "stages/ingest/xml_tags.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <libxml/HTMLparser.h>
#include <libxml/parser.h>
#include <libxml/parserInternals.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { XML_PIECE = 16 << 10, TITLE_MAX = 400 };

struct xml {
    struct extraction *x;
    xmlParserCtxtPtr ctxt;
    struct err *e;
    int rc; /* first failure: the parser is being stopped */
    int depth;
    int mixed;   /* depth of the outermost open element with text of its own; 0: none */
    int pending; /* depth whose child the open block came from; 0: none */
    xmlEntity entity;
    xmlChar entity_text[64];
    bool heading; /* the open block is one */
    struct buf title;
    bool titled;
    char problem[200];
};

static void stop(struct xml *m, int rc)
{
    if (m->rc == 0) {
        m->rc = rc;
        xmlStopParser(m->ctxt);
    }
}

static bool is_heading(const char *name)
{
    const char *colon = strchr(name, ':');
    const char *local = colon ? colon + 1 : name;
    return strcasecmp(local, "title") == 0 || strcasecmp(local, "heading") == 0 ||
           strcasecmp(local, "head") == 0;
}

static void close_block(struct xml *m)
{
    m->pending = 0;
    if (m->heading && !m->titled && m->x->out.open.len > 0) {
        struct err too_long = {0};
        m->titled = buf_add(&m->title, m->x->out.open.data, m->x->out.open.len, &too_long) == 0;
        mem_insist(&too_long);
    }
    int rc = text_close(&m->x->out, m->e);
    if (rc != 0)
        stop(m, rc);
}

static void on_start(void *to, const xmlChar *name, const xmlChar **attributes)
{
    (void)attributes;
    struct xml *m = to;
    if (m->rc != 0)
        return;
    if (m->depth == MAX_XML_DEPTH) {
        stop(m, err_set(m->e, REACH_DOC, ERR_LIMIT, "elements nested over %d deep",
                        MAX_XML_DEPTH));
        return;
    }
    if (m->mixed == 0) {
        close_block(m);
        m->heading = is_heading((const char *)name);
        m->x->out.kind = m->heading ? BLOCK_HEADING : BLOCK_PARAGRAPH;
        m->x->out.level = !m->heading ? 0 : m->depth < 1 ? 1 : m->depth > 9 ? 9 : m->depth;
    }
    m->depth++; /* inside an element with text of its own, tags are inline */
}

static void on_end(void *to, const xmlChar *name)
{
    (void)name;
    struct xml *m = to;
    if (m->rc != 0 || m->depth == 0)
        return;
    if (m->mixed == m->depth)
        m->mixed = 0;
    m->depth--;
    if (m->mixed == 0)
        m->pending = m->depth; /* text may still follow in the parent: then this was inline */
}

static void on_text(void *to, const xmlChar *s, int n)
{
    struct xml *m = to;
    if (m->rc != 0 || m->depth == 0)
        return;
    const char *text = (const char *)s;
    bool blank = true;
    for (int i = 0; i < n && blank; i++)
        blank = text_is_space(text[i]);
    if (!blank && m->mixed == 0) {
        if (m->pending != m->depth) {
            close_block(m);
        } else {
            m->heading = false; /* <p><title>A</title> and more</p> */
            m->x->out.kind = BLOCK_PARAGRAPH;
            m->x->out.level = 0;
        }
        m->pending = 0;
        m->mixed = m->depth;
    }
    int rc = text_add(&m->x->out, text, (size_t)n, m->e);
    if (rc == 0)
        rc = deadline_check(m->x->deadline, m->e);
    if (rc != 0)
        stop(m, rc);
}

/* ---- entities ---- */

static void on_entity(void *to, const xmlChar *name, int type, const xmlChar *public_id,
                      const xmlChar *system_id, xmlChar *content)
{
    (void)name, (void)type, (void)public_id, (void)system_id, (void)content;
    struct xml *m = to;
    stop(m, err_set(m->e, REACH_DOC, ERR_UNSUPPORTED,
                    "declares entities of its own, which are not expanded"));
}

/* What XML predefines, what HTML does, and else the reference itself as text, with a warning. */
static xmlEntityPtr get_entity(void *to, const xmlChar *name)
{
    struct xml *m = to;
    xmlEntityPtr predefined = xmlGetPredefinedEntity(name);
    if (predefined)
        return predefined;
    const htmlEntityDesc *html = htmlEntityLookup(name);
    if (html) {
        int n = xmlCopyCharMultiByte(m->entity_text, (int)html->value);
        m->entity_text[n] = '\0';
    } else {
        snprintf((char *)m->entity_text, sizeof(m->entity_text), "&%.*s;", 48,
                 (const char *)name);
        m->entity_text[utf8_valid_prefix((char *)m->entity_text,
                                         strlen((char *)m->entity_text))] = '\0';
        extract_warn(m->x, "The entity %s is not known and was left as it is.",
                     (char *)m->entity_text);
    }
    m->entity =
        (xmlEntity){.type = XML_ENTITY_DECL,
                    .name = name,
                    .content = m->entity_text,
                    .orig = m->entity_text, /* or libxml2 leaves memory of its own here */
                    .length = (int)strlen((char *)m->entity_text),
                    .etype = XML_INTERNAL_PREDEFINED_ENTITY};
    return &m->entity;
}

static void PRINTF_LIKE(2, 3) on_problem(void *to, const char *format, ...)
{
    (void)format;
    struct xml *m = to;
    xmlErrorPtr why = xmlCtxtGetLastError(m->ctxt);
    if (!why || why->level != XML_ERR_FATAL || m->problem[0])
        return;
    snprintf(m->problem, sizeof(m->problem), "line %d: %s", why->line,
             why->message ? why->message : "?");
    m->problem[strcspn(m->problem, "\n")] = '\0';
}

/* ---- run ---- */

/* Length of "<?xml ...?>" at the front: the input is UTF-8 whatever it declares. */
static size_t declaration(const char *s, size_t n)
{
    if (n < 6 || memcmp(s, "<?xml", 5) != 0 || !text_is_space(s[5]))
        return 0;
    for (size_t i = 6; i + 1 < n && i < 1024; i++)
        if (s[i] == '?' && s[i + 1] == '>')
            return i + 2;
    return 0;
}

/* The first version of SAX: it does not resolve name spaces, whose search is linear in their number. */
static int parse(struct xml *m, const char *s, size_t n)
{
    xmlSAXHandler sax = {.startElement = on_start,
                         .endElement = on_end,
                         .characters = on_text,
                         .cdataBlock = on_text,
                         .ignorableWhitespace = on_text,
                         .entityDecl = on_entity,
                         .getEntity = get_entity,
                         .error = on_problem,
                         .initialized = 1};
    m->ctxt = xmlCreatePushParserCtxt(&sax, m, NULL, 0, NULL);
    if (!m->ctxt)
        return err_set(m->e, REACH_DOC, ERR_NOMEM, "no memory to parse XML");
    xmlCtxtUseOptions(m->ctxt, XML_PARSE_NONET);
    xmlSwitchEncoding(m->ctxt, XML_CHAR_ENCODING_UTF8);
    for (size_t at = 0; at < n && m->rc == 0 && !m->problem[0];) {
        size_t step = n - at < XML_PIECE ? n - at : XML_PIECE;
        xmlParseChunk(m->ctxt, s + at, (int)step, 0);
        at += step;
        int rc = deadline_check(m->x->deadline, m->e);
        if (rc != 0)
            m->rc = rc;
    }
    if (m->rc == 0 && !m->problem[0])
        xmlParseChunk(m->ctxt, "", 0, 1);
    if (m->ctxt->myDoc)
        xmlFreeDoc(m->ctxt->myDoc);
    xmlFreeParserCtxt(m->ctxt);
    return m->rc;
}

static int run(struct extraction *x, struct err *e)
{
    const char *s = x->in;
    size_t n = x->n;
    while (n > 0 && text_is_space(*s)) {
        s++;
        n--;
    }
    size_t skip = declaration(s, n);
    int rc = xml_tags_check(s + skip, n - skip, e);
    if (rc != 0)
        return rc;
    struct xml m = {.x = x, .e = e};
    buf_init(&m.title, TITLE_MAX);
    rc = parse(&m, s + skip, n - skip);
    if (rc == 0 && m.problem[0]) {
        bool nothing = x->out.n_blocks == 0 && x->out.open.len == 0;
        extract_warn(x, "The XML is not well-formed and was read %s %s.",
                     nothing ? "as plain text:" : "up to", m.problem);
        if (nothing)
            rc = extract_text.run(x, e);
    }
    if (rc == 0 && m.title.len > 0)
        x->title = buf_take(&m.title);
    buf_release(&m.title);
    return rc;
}

/* ---- bids ---- */

/* encoding="..." of the XML declaration. */
const struct charset *xml_declared_charset(const struct doc_head *h)
{
    size_t n = declaration(h->text, h->n);
    for (size_t i = 5; i + 10 < n; i++) {
        if (memcmp(h->text + i, "encoding", 8) != 0)
            continue;
        i += 8;
        while (i < n && (text_is_space(h->text[i]) || h->text[i] == '='))
            i++;
        char quote = h->text[i];
        const char *end =
            quote == '"' || quote == '\'' ? memchr(h->text + i + 1, quote, n - i - 1) : NULL;
        return end ? charset_find(h->text + i + 1, (size_t)(end - (h->text + i + 1))) : NULL;
    }
    return NULL;
}

static int bid(const struct doc_head *h)
{
    size_t at = 0;
    while (at < h->n && text_is_space(h->text[at]))
        at++;
    if (declaration(h->text + at, h->n - at) > 0)
        return 50;
    bool tag =
        at + 1 < h->n && h->text[at] == '<' &&
        (h->text[at + 1] == '!' || h->text[at + 1] == '?' || xml_name_start(h->text[at + 1]));
    return tag && strcmp(h->suffix, ".xml") == 0 ? 20 : 0;
}

const struct extractor extract_xml = {.name = "xml",
                                      .media_type = "application/xml",
                                      .bid = bid,
                                      .declared = xml_declared_charset,
                                      .markup = true,
                                      .run = run};

/* Markdown: the text stays as it is, marks included; libcmark says where its blocks are.
 *
 * Only the block structure is wanted, so cmark is fed a shadow of the text, line for line: brackets
 * are blanked (no links, no reference definitions), emphasis too, long lines cut, and the depth of
 * nesting that one line may open is bounded. That keeps parsing linear whatever comes in. A long
 * text is parsed in segments, cut where all containers are closed, which bounds the tree.
 *
 * Every line with text ends up in a block: what cmark gives to none (an empty list marker) becomes a
 * paragraph. Tables, which cmark does not know, are found among its paragraphs. */
#include "stages/ingest/extract.h"

#include "stages/base/lib_memory.h"
#include "stages/base/mem.h"

#include <cmark.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEGMENT = 128 << 10,     /* cut at the next good place after this many bytes */
    SEGMENT_MAX = 512 << 10, /* cut at the next line end whatever it is */
    NODES = 4 << 10,         /* the same for nodes of the tree, about: some 500 bytes each */
    NODES_MAX = 16 << 10,
    SHADOW_LINE = 1000,  /* what decides the structure stands at the front of a line */
    SHADOW_PREFIX = 200, /* indentation and markers */
    SHADOW_MARKERS = 32,
};

/* Walks over the lines of the text, forward only. */
struct lines {
    const char *s;
    size_t n;
    size_t at; /* start of line `line` */
    int line;  /* 1-based within the segment */
};

static size_t line_end(const char *s, size_t n, size_t at)
{
    const char *nl = memchr(s + at, '\n', n - at);
    return nl ? (size_t)(nl - s) + 1 : n;
}

static size_t line_start(struct lines *l, int line)
{
    while (l->line < line && l->at < l->n) {
        l->at = line_end(l->s, l->n, l->at);
        l->line++;
    }
    return l->at;
}

/* ---- the shadow ---- */

static bool is_marker(char c)
{
    return c == '>' || c == '-' || c == '+' || c == '*' || c == '.' || c == ')';
}

/* Blanks the markers of a line past the bounds and adds the others to *nodes. Returns where its text begins. */
static size_t shadow_prefix(char *line, size_t n, int *nodes)
{
    size_t i = 0;
    int markers = 0;
    for (; i < n; i++) {
        char c = line[i];
        if (c != ' ' && c != '\t' && !is_marker(c) && !(c >= '0' && c <= '9'))
            break;
        markers += is_marker(c);
        if (i >= SHADOW_PREFIX || markers > SHADOW_MARKERS)
            line[i] = 'x';
    }
    *nodes += markers < SHADOW_MARKERS ? markers : SHADOW_MARKERS;
    return i;
}

/* Returns how many nodes the line may add to the tree, unless it is code: its own, one per marker, and one per
 * character that inline parsing stops at. */
static int feed_line(cmark_parser *parser, const char *s, size_t n)
{
    char line[SHADOW_LINE + 1];
    size_t len = n < SHADOW_LINE ? n : SHADOW_LINE;
    memcpy(line, s, len);
    if (len == 0 || line[len - 1] != '\n')
        line[len++] = '\n';
    bool text = false;
    int nodes = 1;
    for (size_t i = shadow_prefix(line, len, &nodes); i < len; i++) {
        char c = line[i];
        text |= (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
        /* At the front of a line these may be a list, a rule or an HTML block, after text they are
         * inline marks; an end tag may end an HTML block anywhere. */
        bool inline_mark = text && (c == '*' || c == '_' || (c == '<' && line[i + 1] != '/'));
        if (c == '[' || c == ']' || inline_mark || (unsigned char)c >= 0x80)
            line[i] = 'x';
        nodes += line[i] != 'x' && strchr("`&\\!<*_", line[i]) != NULL;
    }
    cmark_parser_feed(parser, line, len);
    return nodes;
}

/* ---- blocks ---- */

/* "| --- | :-: |": only such characters, and at least one of each of the first two. */
static bool is_delimiter_row(const char *s, size_t n)
{
    bool bar = false, dash = false;
    for (size_t i = 0; i < n; i++) {
        if (!strchr("|-: \t\n", s[i]))
            return false;
        bar |= s[i] == '|';
        dash |= s[i] == '-';
    }
    return bar && dash;
}

static int mark_paragraph(struct extraction *x, enum block_kind kind, int level, size_t begin,
                          size_t end, struct err *e)
{
    const char *s = x->out.text.data;
    size_t second = line_end(s, end, begin);
    if (second == end || !is_delimiter_row(s + second, line_end(s, end, second) - second))
        return text_mark(&x->out, kind, level, begin, end, 0, e);
    int rc = 0;
    for (size_t at = begin; rc == 0 && at < end;) {
        size_t next = line_end(s, end, at);
        rc = text_mark(&x->out, BLOCK_TABLE_ROW, 0, at, next, 0, e);
        at = next;
    }
    return rc;
}

/* The first line, without the marks and blanks `around` it. */
static void take_title(struct extraction *x, size_t begin, size_t end, const char *around)
{
    const char *s = x->out.text.data;
    while (begin < end && strchr(around, s[begin]))
        begin++;
    end = line_end(s, end, begin);
    while (end > begin && strchr(around, s[end - 1]))
        end--;
    if (x->title || begin == end)
        return;
    char *title = mem_need(end - begin + 1), *to = title;
    for (size_t i = begin; i < end; i++)
        if (s[i] != '*' && s[i] != '`')
            *to++ = s[i];
    x->title = title;
}

/* Nearest container of a leaf; *level: how many lists are around. */
static enum block_kind container(cmark_node *leaf, int *level)
{
    enum block_kind kind = BLOCK_PARAGRAPH;
    bool first = cmark_node_previous(leaf) == NULL;
    *level = 0;
    for (cmark_node *p = cmark_node_parent(leaf); p; p = cmark_node_parent(p)) {
        cmark_node_type t = cmark_node_get_type(p);
        if (kind == BLOCK_PARAGRAPH && t == CMARK_NODE_ITEM && first)
            kind = BLOCK_LIST_ITEM;
        else if (kind == BLOCK_PARAGRAPH && t == CMARK_NODE_BLOCK_QUOTE)
            kind = BLOCK_QUOTE;
        *level += t == CMARK_NODE_ITEM;
    }
    if (kind != BLOCK_LIST_ITEM)
        *level = 0;
    return kind;
}

static int mark_leaf(struct extraction *x, cmark_node *leaf, size_t begin, size_t end,
                     struct err *e)
{
    int level;
    switch (cmark_node_get_type(leaf)) {
    case CMARK_NODE_HEADING:
        take_title(x, begin, end, "# \t\n");
        return text_mark(&x->out, BLOCK_HEADING, cmark_node_get_heading_level(leaf), begin, end,
                         0, e);
    case CMARK_NODE_CODE_BLOCK:
        return text_mark(&x->out, BLOCK_CODE, 0, begin, end, 0, e);
    default: {
        enum block_kind kind = container(leaf, &level);
        return mark_paragraph(x, kind, level, begin, end, e);
    }
    }
}

static bool is_leaf(cmark_node_type t)
{
    return t == CMARK_NODE_PARAGRAPH || t == CMARK_NODE_HEADING || t == CMARK_NODE_CODE_BLOCK ||
           t == CMARK_NODE_HTML_BLOCK || t == CMARK_NODE_THEMATIC_BREAK;
}

static cmark_node *next_leaf(cmark_iter *it)
{
    for (cmark_event_type ev; (ev = cmark_iter_next(it)) != CMARK_EVENT_DONE;) {
        cmark_node *node = cmark_iter_get_node(it);
        if (ev == CMARK_EVENT_ENTER && is_leaf(cmark_node_get_type(node)))
            return node;
    }
    return NULL;
}

/* All leaves of one segment. cmark ends some of them (a heading by underline, an open fence) a line
 * too late, so a leaf ends where the next one begins at the latest. */
static int mark_tree(struct extraction *x, cmark_node *root, size_t begin, size_t end,
                     struct err *e)
{
    struct lines l = {.s = x->out.text.data, .n = end, .at = begin, .line = 1};
    cmark_iter *it = cmark_iter_new(root);
    size_t done = begin;
    int rc = 0;
    for (cmark_node *leaf = next_leaf(it), *next; rc == 0 && leaf; leaf = next) {
        next = next_leaf(it);
        int first = cmark_node_get_start_line(leaf), after = cmark_node_get_end_line(leaf) + 1;
        if (next && after > cmark_node_get_start_line(next))
            after = cmark_node_get_start_line(next);
        size_t from = line_start(&l, first);
        size_t to = line_start(&l, after > first ? after : first + 1);
        if (from < done)
            from = done;
        if (to <= from)
            continue;
        rc = text_mark(&x->out, BLOCK_PARAGRAPH, 0, done, from, 0, e);
        if (rc == 0)
            rc = mark_leaf(x, leaf, from, to, e);
        if (rc == 0)
            rc = deadline_check(x->deadline, e);
        done = to;
    }
    cmark_iter_free(it);
    return rc == 0 ? text_mark(&x->out, BLOCK_PARAGRAPH, 0, done, end, 0, e) : rc;
}

/* ---- segments ---- */

static bool is_fence(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && i < 3 && s[i] == ' ')
        i++;
    return n - i >= 3 && (memcmp(s + i, "```", 3) == 0 || memcmp(s + i, "~~~", 3) == 0);
}

/* Does the line at `at` begin something new whatever was before it? After a blank line, text at the margin closes
 * every list and quote; an item at the margin stands beside those before it. */
static bool can_cut(const char *s, size_t n, size_t at, bool after_blank)
{
    if (at + 1 < n && (s[at] == '-' || s[at] == '*' || s[at] == '+') && s[at + 1] == ' ')
        return true;
    return after_blank && !text_is_space(s[at]) && !is_marker(s[at]) &&
           !(s[at] >= '0' && s[at] <= '9');
}

/* Parses from begin to the next cut, which is returned in *next. */
static int run_segment(struct extraction *x, size_t begin, size_t *next, struct err *e)
{
    const char *s = x->out.text.data;
    size_t n = x->out.text.len, at = begin;
    bool fence = false, blank = false;
    static cmark_mem memory = {lib_zeroed, lib_resize, free}; /* its own ends in abort() */
    cmark_parser *parser = cmark_parser_new_with_mem(CMARK_OPT_DEFAULT, &memory);
    int rc = 0, nodes = 0;
    while (rc == 0 && at < n && at - begin < SEGMENT_MAX && nodes < NODES_MAX) {
        size_t end = line_end(s, n, at);
        if ((at - begin >= SEGMENT || nodes >= NODES) && !fence && can_cut(s, n, at, blank))
            break;
        fence ^= is_fence(s + at, end - at);
        blank = end - at == 1;
        int more = feed_line(parser, s + at, end - at);
        nodes += fence ? 0 : more;
        at = end;
        rc = deadline_check(x->deadline, e);
    }
    cmark_node *root = cmark_parser_finish(parser);
    cmark_parser_free(parser);
    if (rc == 0 && !root)
        rc = err_set(e, REACH_DOC, ERR_NOMEM, "no memory to parse Markdown");
    if (rc == 0)
        rc = mark_tree(x, root, begin, at, e);
    if (root)
        cmark_node_free(root);
    *next = at;
    return rc;
}

/* "---", fields, "---" at the very front: a paragraph of its own, with perhaps a title. */
static int front_matter(struct extraction *x, size_t *end, struct err *e)
{
    const char *s = x->out.text.data;
    size_t n = x->out.text.len, title = 0;
    *end = 0;
    if (n < 4 || memcmp(s, "---\n", 4) != 0)
        return 0;
    size_t at = 4;
    for (int i = 0; i < 100 && at < n; i++) {
        size_t next = line_end(s, n, at), len = next - at;
        if (len >= 3 && memcmp(s + at, "---", 3) == 0 && (len == 3 || s[at + 3] == '\n')) {
            *end = next;
            if (title > 0)
                take_title(x, title, line_end(s, n, title), "\"' \t\n");
            return text_mark(&x->out, BLOCK_PARAGRAPH, 0, 0, next, 0, e);
        }
        if (len > 6 && memcmp(s + at, "title:", 6) == 0)
            title = at + 6;
        at = next;
    }
    return 0;
}

static int run(struct extraction *x, struct err *e)
{
    size_t at = 0;
    int rc = text_normalise(&x->out.text, x->in, x->n, e);
    if (rc == 0)
        rc = front_matter(x, &at, e);
    while (rc == 0 && at < x->out.text.len)
        rc = run_segment(x, at, &at, e);
    return rc;
}

static int bid(const struct doc_head *h)
{
    return strcmp(h->suffix, ".md") == 0 || strcmp(h->suffix, ".markdown") == 0 ||
                   strcmp(h->suffix, ".mkd") == 0
               ? 10
               : 0;
}

const struct extractor extract_markdown = {
    .name = "markdown", .media_type = "text/markdown", .bid = bid, .run = run};

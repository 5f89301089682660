#include "stages/ingest/html_clean.h"

#include <string.h>
#include <strings.h>

enum { PIECE = 4096, NAME_MAX_BYTES = 32 };

struct clean {
    const char *s;
    size_t n, at;
    /* searches that failed once fail for the rest of the text, and are not made again */
    bool no_double, no_single, no_comment_end, no_cdata_end, no_title_end, no_textarea_end;
    html_piece_fn *fn;
    void *to;
    int rc;
    char piece[PIECE];
    size_t len;
};

static void flush(struct clean *c)
{
    if (c->rc == 0 && c->len > 0)
        c->rc = c->fn(c->to, c->piece, c->len);
    c->len = 0;
}

static void put(struct clean *c, const char *s, size_t n)
{
    while (n > 0 && c->rc == 0) {
        if (c->len == PIECE)
            flush(c);
        size_t take = n < PIECE - c->len ? n : PIECE - c->len;
        memcpy(c->piece + c->len, s, take);
        c->len += take;
        s += take;
        n -= take;
    }
}

static void puts_piece(struct clean *c, const char *s)
{
    put(c, s, strlen(s));
}

/* Text that is no markup, whatever it looks like. */
static void put_escaped(struct clean *c, const char *s, size_t n, bool references)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '<')
            puts_piece(c, "&lt;");
        else if (s[i] == '&' && !references)
            puts_piece(c, "&amp;");
        else
            put(c, s + i, 1);
    }
}

static bool is_space(char x)
{
    return x == ' ' || x == '\n' || x == '\t' || x == '\f' || x == '\r';
}

static bool is_letter(char x)
{
    return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z');
}

static bool looking_at(const struct clean *c, size_t at, const char *what)
{
    size_t len = strlen(what);
    return c->n - at >= len && strncasecmp(c->s + at, what, len) == 0;
}

/* Offset of `what` (any case) from at on, or n. The first byte of what is no letter. */
static size_t find(const struct clean *c, size_t at, const char *what)
{
    while (at < c->n) {
        const char *p = memchr(c->s + at, what[0], c->n - at);
        if (!p)
            break;
        at = (size_t)(p - c->s);
        if (looking_at(c, at, what))
            return at;
        at++;
    }
    return c->n;
}

static size_t find_unless(const struct clean *c, size_t at, const char *what, bool *never)
{
    size_t end = *never ? c->n : find(c, at, what);
    *never |= end == c->n;
    return end;
}

/* ---- declarations ---- */

static void to_tag_end(struct clean *c)
{
    size_t end = find(c, c->at, ">");
    c->at = end < c->n ? end + 1 : c->n;
}

/* At "<!--". A comment that never ends gives up at the next ">": text must not vanish with it. */
static void skip_comment(struct clean *c)
{
    size_t at = c->at + 4;
    if (looking_at(c, at, ">") || looking_at(c, at, "->")) {
        to_tag_end(c);
        return;
    }
    size_t end = find_unless(c, at, "--", &c->no_comment_end);
    while (end < c->n && !looking_at(c, end, "-->") && !looking_at(c, end, "--!>"))
        end = find_unless(c, end + 1, "--", &c->no_comment_end);
    if (end < c->n)
        c->at = end;
    to_tag_end(c);
}

/* At "<![CDATA[", which XHTML has: its inside is text. */
static void pass_cdata(struct clean *c)
{
    size_t from = c->at + 9, end = find_unless(c, from, "]]>", &c->no_cdata_end);
    if (end == c->n) {
        to_tag_end(c);
        return;
    }
    put_escaped(c, c->s + from, end - from, false);
    c->at = end + 3;
}

/* ---- tags ---- */

struct tag {
    char name[NAME_MAX_BYTES + 1]; /* lower case */
    bool hidden, empty;
};

static void read_name(struct clean *c, struct tag *t)
{
    size_t len = 0;
    for (; c->at < c->n; c->at++) {
        char x = c->s[c->at];
        bool name = is_letter(x) || (x >= '0' && x <= '9') || x == '-' || x == '_' || x == ':';
        if (!name)
            break;
        if (len < NAME_MAX_BYTES)
            t->name[len++] = (char)(x >= 'A' && x <= 'Z' ? x + 32 : x);
    }
    t->name[len] = '\0';
}

static size_t value_end(struct clean *c, char quote)
{
    const char what[2] = {quote, '\0'};
    size_t end = find_unless(c, c->at, what, quote == '"' ? &c->no_double : &c->no_single);
    if (end < c->n)
        return end;
    return find(c, c->at, ">"); /* the quote is never closed: the tag ends where it seems to */
}

/* "display:none" with blanks allowed. */
static bool hides(const char *s, size_t n)
{
    static const char want[] = "display:none";
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char x = (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] + 32 : s[i]);
        if (is_space(x))
            continue;
        k = x == want[k] ? k + 1 : x == want[0];
        if (want[k] == '\0')
            return true;
    }
    return false;
}

static void read_attribute(struct clean *c, struct tag *t)
{
    size_t from = c->at;
    do
        c->at++; /* a name may even begin with "=" */
    while (c->at < c->n && !is_space(c->s[c->at]) && !strchr("=>/", c->s[c->at]));
    size_t len = c->at - from;
    bool hidden = len == 6 && strncasecmp(c->s + from, "hidden", 6) == 0;
    bool style = len == 5 && strncasecmp(c->s + from, "style", 5) == 0;
    while (c->at < c->n && is_space(c->s[c->at]))
        c->at++;
    t->hidden |= hidden;
    if (c->at == c->n || c->s[c->at] != '=')
        return;
    c->at++;
    while (c->at < c->n && is_space(c->s[c->at]))
        c->at++;
    if (c->at == c->n)
        return;
    char quote = c->s[c->at];
    bool quoted = quote == '"' || quote == '\'';
    c->at += quoted;
    from = c->at;
    if (quoted)
        c->at = value_end(c, quote);
    else
        while (c->at < c->n && !is_space(c->s[c->at]) && c->s[c->at] != '>')
            c->at++;
    t->hidden |= style && hides(c->s + from, c->at - from);
    /* "until-found" is hidden text that a search would show */
    if (hidden && c->at - from == 11 && strncasecmp(c->s + from, "until-found", 11) == 0)
        t->hidden = false;
    if (quoted && c->at < c->n && c->s[c->at] == quote)
        c->at++;
}

static void read_tag(struct clean *c, struct tag *t)
{
    *t = (struct tag){0};
    read_name(c, t);
    while (c->at < c->n && c->s[c->at] != '>') {
        char x = c->s[c->at];
        t->empty = x == '/';
        if (is_space(x) || x == '/')
            c->at++;
        else
            read_attribute(c, t);
    }
    c->at += c->at < c->n;
}

static bool one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* Skips the inside of a raw element; one that never ends takes the rest with it. */
static void skip_raw(struct clean *c, const char *name)
{
    char end[NAME_MAX_BYTES + 3] = "</";
    strcat(end, name);
    size_t at = find(c, c->at, end);
    while (at < c->n && at + strlen(end) < c->n && !is_space(c->s[at + strlen(end)]) &&
           !strchr("/>", c->s[at + strlen(end)]))
        at = find(c, at + 1, end);
    c->at = at;
    to_tag_end(c);
}

/* Elements whose inside is text with references but without tags. */
static void pass_rcdata(struct clean *c, const char *name, bool *never)
{
    char end[NAME_MAX_BYTES + 3] = "</";
    strcat(end, name);
    size_t at = find_unless(c, c->at, end, never);
    if (at == c->n)
        return; /* never closed: what follows is read as usual */
    put_escaped(c, c->s + c->at, at - c->at, true);
    c->at = at;
}

static void start_tag(struct clean *c)
{
    static const char *const raw[] = {"script",  "style",    "xmp", "iframe",
                                      "noembed", "noframes", NULL};
    static const char *const dropped[] = {"meta", "link", "base", NULL};
    struct tag t;
    c->at++;
    read_tag(c, &t);
    if (one_of(t.name, raw)) {
        if (!t.empty)
            skip_raw(c, t.name);
        return;
    }
    if (one_of(t.name, dropped))
        return;
    puts_piece(c, "<");
    puts_piece(c, t.name);
    puts_piece(c, t.hidden ? " hidden" : "");
    puts_piece(c, t.empty ? "/>" : ">");
    if (strcmp(t.name, "title") == 0 && !t.empty)
        pass_rcdata(c, t.name, &c->no_title_end);
    else if (strcmp(t.name, "textarea") == 0 && !t.empty)
        pass_rcdata(c, t.name, &c->no_textarea_end);
}

static void end_tag(struct clean *c)
{
    struct tag t;
    c->at += 2;
    read_tag(c, &t);
    puts_piece(c, "</");
    puts_piece(c, t.name);
    puts_piece(c, ">");
}

static void markup(struct clean *c)
{
    char next = c->at + 1 < c->n ? c->s[c->at + 1] : '\0';
    if (looking_at(c, c->at, "<!--")) {
        skip_comment(c);
    } else if (looking_at(c, c->at, "<![CDATA[")) {
        pass_cdata(c);
    } else if (next == '!' || next == '?') {
        to_tag_end(c);
    } else if (is_letter(next)) {
        start_tag(c);
    } else if (next == '/' && c->at + 2 < c->n && is_letter(c->s[c->at + 2])) {
        end_tag(c);
    } else if (next == '/') {
        to_tag_end(c);
    } else {
        puts_piece(c, "&lt;");
        c->at++;
    }
}

int html_clean(const char *s, size_t n, html_piece_fn *fn, void *to)
{
    struct clean c = {.s = s, .n = n, .fn = fn, .to = to};
    while (c.at < n && c.rc == 0) {
        const char *p = memchr(s + c.at, '<', n - c.at);
        size_t end = p ? (size_t)(p - s) : n;
        put(&c, s + c.at, end - c.at);
        c.at = end;
        if (p)
            markup(&c);
    }
    flush(&c);
    return c.rc;
}

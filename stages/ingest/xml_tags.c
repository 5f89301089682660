/* A scan that agrees with a strict XML parser on where tags begin and end. If a document is so
 * broken that the two could disagree, the parser stops there. */
#include "stages/ingest/xml_tags.h"

#include <string.h>

struct scan {
    const char *s;
    size_t n, at;
};

static bool looking_at(const struct scan *c, const char *what)
{
    size_t len = strlen(what);
    return c->n - c->at >= len && memcmp(c->s + c->at, what, len) == 0;
}

/* To behind the next `what`, or to the end. */
static void skip_past(struct scan *c, const char *what)
{
    size_t len = strlen(what);
    while (c->at < c->n) {
        const char *p = memchr(c->s + c->at, what[0], c->n - c->at);
        if (!p) {
            c->at = c->n;
            return;
        }
        c->at = (size_t)(p - c->s);
        if (looking_at(c, what)) {
            c->at += len;
            return;
        }
        c->at++;
    }
}

/* A comment, CDATA section or processing instruction, whose inside is no markup. */
static bool skip_opaque(struct scan *c)
{
    if (looking_at(c, "<!--")) {
        c->at += 4;
        skip_past(c, "-->");
    } else if (looking_at(c, "<![CDATA[")) {
        c->at += 9;
        skip_past(c, "]]>");
    } else if (looking_at(c, "<?")) {
        c->at += 2;
        skip_past(c, "?>");
    } else {
        return false;
    }
    return true;
}

static void skip_quoted(struct scan *c)
{
    char quote[2] = {c->s[c->at++], '\0'};
    skip_past(c, quote);
}

/* <!DOCTYPE ... [ ... ] > with literals, comments and declarations inside. */
static void skip_doctype(struct scan *c)
{
    int inside = 0;
    c->at += 2;
    while (c->at < c->n) {
        char x = c->s[c->at];
        if (x == '"' || x == '\'') {
            skip_quoted(c);
        } else if (!skip_opaque(c)) {
            c->at++;
            inside += x == '[' ? 1 : x == ']' ? -1 : 0;
            if (x == '>' && inside <= 0)
                return;
        }
    }
}

/* Over one tag; returns how many attributes it has. */
static int skip_tag(struct scan *c)
{
    int equals = 0;
    c->at++;
    while (c->at < c->n && c->s[c->at] != '>') {
        char x = c->s[c->at];
        equals += x == '=';
        if (x == '"' || x == '\'')
            skip_quoted(c);
        else
            c->at++;
    }
    return equals;
}

int xml_tags_check(const char *s, size_t n, struct err *e)
{
    struct scan c = {s, n, 0};
    while (c.at < n) {
        const char *p = memchr(s + c.at, '<', n - c.at);
        if (!p)
            break;
        c.at = (size_t)(p - s);
        if (skip_opaque(&c))
            continue;
        if (looking_at(&c, "<!")) {
            skip_doctype(&c);
            continue;
        }
        if (skip_tag(&c) > MAX_XML_ATTRIBUTES)
            return err_set(e, REACH_DOC, ERR_LIMIT, "a tag with more than %d attributes",
                           MAX_XML_ATTRIBUTES);
    }
    return 0;
}

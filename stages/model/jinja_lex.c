/* White space rules are those of Jinja2 with trim_blocks and lstrip_blocks: "-" next to a tag takes all white
 * space on that side; without it a block or comment takes the newline after it, and the blanks before it when
 * nothing else is on its line; "+" switches that off. */
#include "stages/model/jinja_lex.h"

#include "stages/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void jlex_init(struct jlex *l, const char *s, size_t n, struct arena *arena)
{
    *l = (struct jlex){
        .s = s, .n = n, .line = 1, .mode = JTOK_DATA, .line_start = true, .arena = arena};
}

char *jlex_normalise(struct arena *a, const char *s, size_t *n)
{
    char *out = arena_alloc(a, *n + 1);
    if (!out)
        return NULL;
    size_t used = 0;
    for (size_t i = 0; i < *n; i++) {
        char c = s[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < *n && s[i + 1] == '\n')
                i++;
        }
        out[used++] = c;
    }
    if (used > 0 && out[used - 1] == '\n')
        used--;
    *n = used;
    return out;
}

static int bad(const struct jlex *l, struct err *e, const char *what)
{
    return err_set(e, REACH_JOB, ERR_FORMAT, "chat template line %d: %s", l->line, what);
}

static bool looking_at(const struct jlex *l, const char *s)
{
    size_t n = strlen(s);
    return l->n - l->at >= n && memcmp(l->s + l->at, s, n) == 0;
}

static void advance(struct jlex *l, size_t n)
{
    for (size_t end = l->at + n; l->at < end; l->at++)
        l->line += l->s[l->at] == '\n';
}

static void skip_space(struct jlex *l)
{
    struct mtext rest = {l->s + l->at, NULL, l->n - l->at};
    advance(l, rest.len - mtext_lstrip(rest).len);
}

/* Step over the end of a tag of `len` bytes whose first may be a sign. */
static void end_tag(struct jlex *l, size_t len, bool trims)
{
    char sign = l->s[l->at];
    advance(l, len);
    if (sign == '-')
        skip_space(l);
    else if (sign != '+' && trims && l->at < l->n && l->s[l->at] == '\n')
        advance(l, 1);
    l->line_start = l->s[l->at - 1] == '\n';
    l->mode = JTOK_DATA;
}

/* Where the next tag begins at or after `at`; n when there is none. */
static size_t find_tag(const struct jlex *l, size_t at)
{
    while (at + 1 < l->n) {
        const char *p = memchr(l->s + at, '{', l->n - at);
        if (!p)
            break;
        at = (size_t)(p - l->s);
        if (at + 1 < l->n && (p[1] == '{' || p[1] == '%' || p[1] == '#'))
            return at;
        at++;
    }
    return l->n;
}

static struct mtext strip_before(const struct jlex *l, struct mtext data, bool print, char sign)
{
    if (sign == '-')
        return mtext_rstrip(data);
    if (sign == '+' || print)
        return data;
    size_t line = data.len;
    while (line > 0 && data.s[line - 1] != '\n')
        line--;
    if (line == 0 && !l->line_start)
        return data;
    struct mtext last = mtext_slice(data, line, data.len);
    return mtext_lstrip(last).len == 0 ? mtext_slice(data, 0, line) : data;
}

static int skip_comment(struct jlex *l, struct err *e)
{
    struct mtext rest = {l->s + l->at + 2, NULL, l->n - l->at - 2};
    size_t end = mtext_find(rest, mtext_of("#}"));
    if (end == rest.len)
        return bad(l, e, "a comment that does not end");
    bool sign = end > 0 && (rest.s[end - 1] == '-' || rest.s[end - 1] == '+');
    advance(l, 2 + end - sign);
    end_tag(l, 2u + sign, true);
    return 0;
}

/* At "{%": the length of a whole {% name %} tag, 0 when it is another; *sign_end is its last sign. */
static size_t match_word_tag(const struct jlex *l, size_t at, const char *word, char *first,
                             char *last)
{
    size_t i = at + 2, n = strlen(word);
    *first = *last = ' ';
    if (i < l->n && (l->s[i] == '-' || l->s[i] == '+'))
        *first = l->s[i++];
    while (i < l->n && (l->s[i] == ' ' || l->s[i] == '\n' || l->s[i] == '\t'))
        i++;
    if (l->n - i < n || memcmp(l->s + i, word, n) != 0)
        return 0;
    i += n;
    while (i < l->n && (l->s[i] == ' ' || l->s[i] == '\n' || l->s[i] == '\t'))
        i++;
    if (i < l->n && (l->s[i] == '-' || l->s[i] == '+'))
        *last = l->s[i++];
    return l->n - i >= 2 && memcmp(l->s + i, "%}", 2) == 0 ? i + 2 - at : 0;
}

/* At {% raw %}: its inside as data. */
static int read_raw(struct jlex *l, size_t tag_len, char last, struct jtoken *t, struct err *e)
{
    advance(l, tag_len);
    if (last == '-')
        skip_space(l);
    struct mtext data = {l->s + l->at, NULL, 0};
    for (size_t at = find_tag(l, l->at); at < l->n; at = find_tag(l, at + 2)) {
        char first;
        size_t len = l->s[at + 1] == '%' ? match_word_tag(l, at, "endraw", &first, &last) : 0;
        if (len == 0)
            continue;
        data.len = at - l->at;
        l->line_start = data.len == 0 ? l->line_start : false;
        *t = (struct jtoken){JTOK_DATA, .line = l->line,
                             .text = strip_before(l, data, false, first)};
        bool sign = last != ' ';
        advance(l, at - l->at + len - 2 - sign);
        end_tag(l, 2u + sign, true);
        return 0;
    }
    return bad(l, e, "{% raw %} that does not end");
}

static int next_in_data(struct jlex *l, struct jtoken *t, struct err *e)
{
    for (;;) {
        if (l->at >= l->n) {
            *t = (struct jtoken){JTOK_END, .line = l->line};
            return 0;
        }
        size_t tag = find_tag(l, l->at);
        struct mtext data = {l->s + l->at, NULL, tag - l->at};
        if (tag < l->n) {
            char sign = tag + 2 < l->n ? l->s[tag + 2] : ' ';
            data = strip_before(l, data, l->s[tag + 1] == '{', sign);
        }
        *t = (struct jtoken){JTOK_DATA, .line = l->line, .text = data};
        if (tag > l->at) {
            advance(l, tag - l->at);
            l->line_start = false; /* strip_before() of the tag is done: see below */
            if (data.len)
                return 0;
        }
        if (tag == l->n)
            continue;
        if (l->s[tag + 1] == '#') {
            int rc = skip_comment(l, e);
            if (rc < 0)
                return rc;
            continue;
        }
        char first, last;
        size_t raw = l->s[tag + 1] == '%' ? match_word_tag(l, tag, "raw", &first, &last) : 0;
        if (raw) {
            int rc = read_raw(l, raw, last, t, e);
            if (rc < 0 || t->text.len)
                return rc;
            continue;
        }
        l->mode = l->s[tag + 1] == '%' ? JTOK_BLOCK_BEGIN : JTOK_PRINT_BEGIN;
        *t = (struct jtoken){l->mode, .line = l->line};
        advance(l, 2);
        if (l->at < l->n && (l->s[l->at] == '-' || l->s[l->at] == '+'))
            l->at++;
        l->brackets = 0;
        return 0;
    }
}

/* ---- inside a tag ---- */

static int hex_digits(const char *s, size_t n, int count, uint32_t *out)
{
    *out = 0;
    if (n < (size_t)count)
        return 0;
    for (int i = 0; i < count; i++) {
        char c = s[i];
        int v = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (v < 0)
            return 0;
        *out = *out << 4 | (uint32_t)v;
    }
    return count;
}

/* One escape sequence at s (after the backslash); returns its length. */
static size_t unescape(const char *s, size_t n, char out[4], int *out_len)
{
    static const char from[] = "ntrbfav\\'\"", to[] = "\n\t\r\b\f\a\v\\'\"";
    *out_len = 1;
    const char *p = n ? memchr(from, s[0], sizeof(from) - 1) : NULL;
    if (p) {
        out[0] = to[p - from];
        return 1;
    }
    if (n && s[0] == '\n') { /* a continued line */
        *out_len = 0;
        return 1;
    }
    uint32_t cp = 0;
    int digits = 0;
    if (n && (s[0] == 'x' || s[0] == 'u' || s[0] == 'U'))
        digits = hex_digits(s + 1, n - 1, s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : 8, &cp);
    if (digits && cp <= 0x10ffff && !(cp >= 0xd800 && cp < 0xe000)) {
        *out_len = utf8_encode(cp, out);
        return 1u + (size_t)digits;
    }
    if (n && s[0] >= '0' && s[0] <= '7') {
        while (digits < 3 && (size_t)digits < n && s[digits] >= '0' && s[digits] <= '7')
            cp = cp * 8 + (uint32_t)(s[digits++] - '0');
        *out_len = utf8_encode(cp, out);
        return (size_t)digits;
    }
    out[0] = '\\'; /* Python keeps a sequence that it does not know */
    return 0;
}

static int read_string(struct jlex *l, struct jtoken *t, struct err *e)
{
    char quote = l->s[l->at];
    size_t end = l->at + 1;
    while (end < l->n && l->s[end] != quote)
        end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->n)
        return bad(l, e, "a string that does not end");
    const char *s = l->s + l->at + 1;
    size_t n = end - l->at - 1, used = 0;
    char *out = arena_alloc(l->arena, n + 4);
    if (!out)
        return err_set(e, REACH_JOB, ERR_LIMIT, "chat template line %d: too large", l->line);
    for (size_t i = 0; i < n;) {
        if (s[i] != '\\') {
            out[used++] = s[i++];
            continue;
        }
        char bytes[4];
        int len;
        i += 1 + unescape(s + i + 1, n - i - 1, bytes, &len);
        memcpy(out + used, bytes, (size_t)len);
        used += (size_t)len;
    }
    *t = (struct jtoken){JTOK_STRING, .line = l->line, .text = {out, NULL, used}};
    advance(l, end + 1 - l->at);
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static int read_number(struct jlex *l, struct jtoken *t, struct err *e)
{
    char digits[48];
    size_t used = 0, i = l->at;
    bool real = false;
    for (; i < l->n; i++) {
        char c = l->s[i];
        bool next = i + 1 < l->n && is_digit(l->s[i + 1]);
        bool sign =
            i + 2 < l->n && (l->s[i + 1] == '-' || l->s[i + 1] == '+') && is_digit(l->s[i + 2]);
        if (c == '_' && next)
            continue;
        if ((c == '.' && !real && next) || ((c == 'e' || c == 'E') && (next || sign)))
            real = true;
        else if (!is_digit(c) && !(used && (c == '-' || c == '+') && digits[used - 1] == 'e'))
            break;
        c = c == 'E' ? 'e' : c;
        if (used + 1 >= sizeof(digits))
            return bad(l, e, "a number of too many digits");
        digits[used++] = c;
    }
    digits[used] = '\0';
    *t = (struct jtoken){real ? JTOK_FLOAT : JTOK_INT, .line = l->line};
    if (real)
        t->f = strtod(digits, NULL);
    else if (used > 18)
        return bad(l, e, "a number of too many digits");
    else
        t->i = strtoll(digits, NULL, 10);
    advance(l, i - l->at);
    return 0;
}

static int read_operator(struct jlex *l, struct jtoken *t, struct err *e)
{
    static const struct {
        char s[3];
        int op;
    } two[] = {{"==", JOP_EQ}, {"!=", JOP_NE},       {"<=", JOP_LE},
               {">=", JOP_GE}, {"//", JOP_FLOORDIV}, {"**", JOP_POW}};
    *t = (struct jtoken){JTOK_OP, .line = l->line, .op = l->s[l->at]};
    for (size_t i = 0; i < ARRAY_LEN(two); i++) {
        if (looking_at(l, two[i].s)) {
            t->op = two[i].op;
            advance(l, 2);
            return 0;
        }
    }
    if (t->op == 0 || !strchr("+-*/%~()[]{}<>=|.,:", t->op)) {
        char what[48];
        snprintf(what, sizeof(what), "unexpected byte 0x%02x", (unsigned char)t->op);
        return bad(l, e, what);
    }
    l->brackets += strchr("([{", t->op) ? 1 : strchr(")]}", t->op) ? -1 : 0;
    advance(l, 1);
    return 0;
}

int jlex_next(struct jlex *l, struct jtoken *t, struct err *e)
{
    if (l->mode == JTOK_DATA)
        return next_in_data(l, t, e);
    skip_space(l);
    if (l->at >= l->n)
        return bad(l, e, "a tag that does not end");
    bool print = l->mode == JTOK_PRINT_BEGIN;
    char c = l->s[l->at];
    if (l->brackets <= 0) {
        const char *end = print ? "}}" : "%}";
        bool sign = (c == '-' || c == '+') && l->n - l->at >= 3 &&
                    memcmp(l->s + l->at + 1, end, 2) == 0;
        if (sign || looking_at(l, end)) {
            *t = (struct jtoken){print ? JTOK_PRINT_END : JTOK_BLOCK_END, .line = l->line};
            end_tag(l, 2u + sign, !print);
            return 0;
        }
    }
    if (c == '"' || c == '\'')
        return read_string(l, t, e);
    if (is_digit(c))
        return read_number(l, t, e);
    if (!is_name_byte(c))
        return read_operator(l, t, e);
    size_t end = l->at;
    while (end < l->n && (is_name_byte(l->s[end]) || is_digit(l->s[end])))
        end++;
    *t = (struct jtoken){JTOK_NAME, .line = l->line, .text = {l->s + l->at, NULL, end - l->at}};
    advance(l, end - l->at);
    return 0;
}

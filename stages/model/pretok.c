/* The regular expressions of pretok.h as scanners over classes of code points. Alternatives are tried in the
 * order in which the expressions name them; each comment names the alternative. */
#include "stages/model/pretok.h"

#include "stages/base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

static const struct pretok_info known[] = {
    {"gpt-2", PRETOK_GPT2, false, false},
    {"smollm", PRETOK_SMOLLM, false, false},
    {"llama-bpe", PRETOK_LLAMA3, true, true},
    {"llama3", PRETOK_LLAMA3, true, true},
    {"llama-v3", PRETOK_LLAMA3, true, true},
    {"qwen2", PRETOK_QWEN2, false, false},
    {"deepseek-r1-qwen", PRETOK_QWEN2, false, false},
    {"default", PRETOK_DEFAULT, false, false},
};

const struct pretok_info *pretok_named(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strlen(known[i].name) == len && memcmp(known[i].name, name, len) == 0)
            return &known[i];
    return NULL;
}

void pretok_list(char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(known) && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? ", " : "", known[i].name);
}

enum class {
    LETTER, /* \p{L} */
    NUMBER, /* \p{N} */
    SPACE,  /* \s */
    SYMBOL, /* the rest */
    END
};

struct point {
    enum class class;
    uint32_t cp;
    size_t len;
};

/* White_Space of the Unicode character database, above ASCII. */
static bool is_wide_space(uint32_t cp)
{
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static enum class class_of(uint32_t cp) {
    if (cp < 0x80){if ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z') return LETTER;
                   if (cp >= '0' && cp <= '9') return NUMBER;
                   return cp == ' ' || (cp >= '\t' && cp <= '\r') ? SPACE : SYMBOL;}
if (is_wide_space(cp)) return SPACE;
switch (utf8proc_category((utf8proc_int32_t)cp)) {
case UTF8PROC_CATEGORY_LU:
case UTF8PROC_CATEGORY_LL:
case UTF8PROC_CATEGORY_LT:
case UTF8PROC_CATEGORY_LM:
case UTF8PROC_CATEGORY_LO:
    return LETTER;
case UTF8PROC_CATEGORY_ND:
case UTF8PROC_CATEGORY_NL:
case UTF8PROC_CATEGORY_NO:
    return NUMBER;
default:
    return SYMBOL;
}
}

/* [\p{P}$+<=>^~|] of the default kind. */
static bool is_mark(uint32_t cp)
{
    if (cp < 0x80)
        return cp &&
               (strchr("!\"#%&'()*,-./:;?@[\\]_{}", (int)cp) || strchr("$+<=>^~|", (int)cp));
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

/* The code point at offset at, not looking past the limit. */
static struct point look(const struct pretok_scan *p, size_t at)
{
    struct point x = {END, 0, 0};
    if (at >= p->limit)
        return x;
    int n = utf8_decode(p->text + at, p->limit - at, &x.cp);
    x.len = (size_t)(n < 0 ? -n : n);
    x.class = n < 0 ? SYMBOL : class_of(x.cp);
    return x;
}

/* End of the run of one class that starts at offset at. */
static size_t run(const struct pretok_scan *p, size_t at, enum class class)
{
    for (struct point x = look(p, at); x.class == class; x = look(p, at))
        at += x.len;
    return at;
}

static bool is_newline(uint32_t cp)
{
    return cp == '\r' || cp == '\n';
}

/* Length of the English ending after an apostrophe at offset at ("'ll"), or 0. With fold, in any case, as
 * Unicode folds it: the long s is an s. */
static size_t contraction(const struct pretok_scan *p, size_t at, bool fold)
{
    size_t n = p->limit - at;
    const unsigned char *s = (const unsigned char *)p->text + at;
    if (n < 2 || s[0] != '\'')
        return 0;
    if (fold && n > 2 && s[1] == 0xc5 && s[2] == 0xbf)
        return 3;
    unsigned char lower = fold ? 0x20 : 0;
    unsigned char a = s[1] | lower, b = n > 2 ? s[2] | lower : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'l' && b == 'l') || ((a == 'r' || a == 'v') && b == 'e') ? 3 : 0;
}

/* \s+(?!\S)|\s+ for a run of white space at pos: a word that follows keeps its last space. */
static size_t spaces(const struct pretok_scan *p)
{
    size_t at = p->pos, last = at;
    for (struct point x = look(p, at); x.class == SPACE; x = look(p, at)) {
        last = at;
        at += x.len;
    }
    return at == p->limit || last == p->pos ? at : last;
}

static size_t gpt2_end(const struct pretok_scan *p)
{
    size_t n = contraction(p, p->pos, false);
    if (n)
        return p->pos + n;
    struct point x = look(p, p->pos);
    size_t at = p->pos;
    if (x.cp == ' ') {
        struct point next = look(p, at + 1);
        if (next.class != SPACE && next.class != END) {
            x = next;
            at++;
        }
    }
    return x.class == SPACE ? spaces(p) : run(p, at, x.class);
}

/* \s*[\r\n]+ : up to the last line end of the run of white space, or pos when it has none. */
static size_t line_ends(const struct pretok_scan *p)
{
    size_t at = p->pos, end = at;
    for (struct point x = look(p, at); x.class == SPACE; x = look(p, at)) {
        at += x.len;
        if (is_newline(x.cp))
            end = at;
    }
    return end;
}

static size_t llama3_end(const struct pretok_scan *p, int digits)
{
    size_t n = contraction(p, p->pos, true);
    if (n)
        return p->pos + n;
    struct point x = look(p, p->pos), next = look(p, p->pos + x.len);
    size_t at = p->pos;
    if (x.class == LETTER)
        return run(p, at, LETTER);
    if (x.class == NUMBER) {
        for (int i = 0; i < digits && x.class == NUMBER; i++, x = look(p, at))
            at += x.len;
        return at;
    }
    if (next.class == LETTER && !is_newline(x.cp)) /* [^\r\n\p{L}\p{N}]?\p{L}+ */
        return run(p, at + x.len, LETTER);
    if (x.class == SYMBOL || (x.cp == ' ' && next.class == SYMBOL)) {
        at = run(p, at + x.len, SYMBOL);
        while (at < p->limit && is_newline((unsigned char)p->text[at]))
            at++;
        return at;
    }
    size_t end = line_ends(p);
    return end > p->pos ? end : spaces(p);
}

/* Where the part that starts at pos ends, for the kinds that cut in two steps. */
static size_t smollm_limit(struct pretok_scan *p)
{
    size_t at = p->pos;
    p->limit = p->len;
    struct point x = look(p, at);
    if (x.class == NUMBER)
        return at + x.len;
    for (; x.class != END && x.class != NUMBER; x = look(p, at))
        at += x.len;
    return at;
}

static size_t default_limit(struct pretok_scan *p)
{
    size_t at = p->pos;
    p->limit = p->len;
    struct point x = look(p, at);
    bool marks = is_mark(x.cp);
    for (; x.class != END && is_mark(x.cp) == marks; x = look(p, at))
        at += x.len;
    return at;
}

static bool three_digits(const struct pretok_scan *p, size_t at)
{
    for (size_t i = at; i < at + 3; i++)
        if (i >= p->limit || p->text[i] < '0' || p->text[i] > '9')
            return false;
    return true;
}

/* A word of gpt-2 with \p{N}+ cut out of it, and [0-9][0-9][0-9] out of that. */
static size_t default_end(const struct pretok_scan *p)
{
    struct point x = look(p, p->pos), next = look(p, p->pos + x.len);
    size_t at = p->pos;
    if (x.cp == ' ' && next.class == NUMBER)
        return at + 1;
    if (x.class != NUMBER)
        return gpt2_end(p);
    if (three_digits(p, at))
        return at + 3;
    for (; x.class == NUMBER && !three_digits(p, at); x = look(p, at))
        at += x.len;
    return at;
}

void pretok_start(struct pretok_scan *p, enum pretok kind, const char *text, size_t len)
{
    bool two_steps = kind == PRETOK_SMOLLM || kind == PRETOK_DEFAULT;
    *p = (struct pretok_scan){
        .kind = kind, .text = text, .len = len, .limit = two_steps ? 0 : len};
}

static size_t word_end(const struct pretok_scan *p)
{
    switch (p->kind) {
    case PRETOK_LLAMA3:
        return llama3_end(p, 3);
    case PRETOK_QWEN2:
        return llama3_end(p, 1);
    case PRETOK_DEFAULT:
        return default_end(p);
    default:
        return gpt2_end(p);
    }
}

bool pretok_next(struct pretok_scan *p, const char **word, size_t *len)
{
    if (p->pos >= p->len)
        return false;
    if (p->pos == p->limit)
        p->limit = p->kind == PRETOK_SMOLLM ? smollm_limit(p) : default_limit(p);
    size_t end = word_end(p);
    *word = p->text + p->pos;
    *len = end - p->pos;
    p->pos = end;
    return true;
}

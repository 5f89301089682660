#include "stages/chunk/boundary.h"

#include "stages/base/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* How far a look at the text before an offset goes: white space, closing marks, one word. */
enum { LOOK_SPACE = 64, LOOK_CLOSERS = 4, LOOK_WORD = 24 };

/* Words after which a full stop ends no sentence, in lower case. Missing one costs a cut inside a sentence,
 * a needless one costs nothing: there is another sentence end close by. */
static const char *const abbreviations[] = {
    "al",  "apr", "approx", "art", "aug",  "ave", "bd",  "bzw",  "ca",  "capt", "cf",   "ch",
    "co",  "col", "corp",   "dec", "dept", "dr",  "ed",  "eds",  "eq",  "esp",  "est",  "etc",
    "feb", "fig", "figs",   "gen", "gov",  "hon", "hr",  "hrsg", "inc", "jan",  "jr",   "jul",
    "jun", "lt",  "ltd",    "mar", "mme",  "mr",  "mrs", "ms",   "mt",  "no",   "nos",  "nov",
    "nr",  "oct", "op",     "pp",  "prof", "rep", "rev", "sec",  "sen", "sep",  "sept", "sgt",
    "sr",  "st",  "str",    "usw", "vgl",  "viz", "vol", "vols", "vs",
};

static bool is_space(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x3000 || c == 0x1680;
}

static bool is_closer(uint32_t c)
{
    static const uint32_t closers[] = {')',    ']',    '}',    '"',    '\'',   0xbb,   0x2019,
                                       0x201d, 0x203a, 0x300d, 0x300f, 0x3009, 0x300b, 0xff09};
    for (size_t i = 0; i < ARRAY_LEN(closers); i++)
        if (c == closers[i])
            return true;
    return false;
}

/* Marks that end a sentence or clause without white space after them. */
static bool is_wide_stop(uint32_t c)
{
    return c == 0x3002 || c == 0xff01 || c == 0xff1f || c == 0xff61;
}

static bool is_wide_pause(uint32_t c)
{
    return c == 0x3001 || c == 0xff0c || c == 0xff1b || c == 0xff1a || c == 0x2014;
}

static bool is_stop(uint32_t c)
{
    return c == '.' || c == '!' || c == '?' || c == 0x2026 || c == 0x61f || c == 0x6d4 ||
           c == 0x964 || c == 0x965 || is_wide_stop(c);
}

static bool is_pause(uint32_t c)
{
    return c == ',' || c == ';' || c == ':' || c == 0x2013 || c == 0x60c || c == 0x61b ||
           is_wide_pause(c);
}

/* The code point that ends at p > 0. */
static uint32_t code_point_before(const char *text, size_t p, size_t *begin)
{
    size_t b = p - 1;
    while (b > 0 && p - b < 4 && ((unsigned char)text[b] & 0xc0) == 0x80)
        b--;
    uint32_t cp;
    utf8_decode(text + b, p - b, &cp);
    *begin = b;
    return cp;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* Does the full stop after the word that ends at `end` belong to the word? */
static bool is_abbreviation(const char *text, size_t end)
{
    char word[LOOK_WORD + 1];
    size_t begin = end, n = 0;
    while (begin > 0 && end - begin < LOOK_WORD && !is_space((unsigned char)text[begin - 1]) &&
           !strchr("([{\"'", text[begin - 1]))
        begin--;
    bool digits = end > begin, dots = false;
    for (size_t i = begin; i < end; i++) {
        digits = digits && text[i] >= '0' && text[i] <= '9';
        dots = dots || text[i] == '.';
        word[n++] = lower(text[i]);
    }
    word[n] = '\0';
    if (digits || (n == 1 && text[begin] >= 'A' && text[begin] <= 'Z'))
        return true;
    if (dots) /* "e.g.", "U.S."; but not an ellipsis */
        return word[n - 1] != '.';
    for (size_t i = 0; i < ARRAY_LEN(abbreviations); i++)
        if (strcmp(word, abbreviations[i]) == 0)
            return true;
    return false;
}

/* Rank of a place with the text that ends at `end` before it and `next` after it. */
static enum boundary mark_rank(const char *text, size_t end, uint32_t next, bool space)
{
    size_t begin = end, mark_end = end;
    uint32_t mark = 0;
    for (int i = 0; i <= LOOK_CLOSERS && mark_end > 0; i++) {
        mark = code_point_before(text, mark_end, &begin);
        if (!is_closer(mark))
            break;
        mark_end = begin;
    }
    if (!space && !is_wide_stop(mark) && !is_wide_pause(mark))
        return BOUNDARY_CODE_POINT;
    if (!space && is_closer(next))
        return BOUNDARY_CODE_POINT;
    if (is_stop(mark)) {
        if (is_wide_stop(mark))
            return BOUNDARY_SENTENCE;
        bool inside = utf8proc_category((utf8proc_int32_t)next) == UTF8PROC_CATEGORY_LL ||
                      (mark == '.' && is_abbreviation(text, begin));
        return inside ? BOUNDARY_WORD : BOUNDARY_SENTENCE;
    }
    return is_pause(mark) ? BOUNDARY_CLAUSE : BOUNDARY_WORD;
}

/* Index of the last block that begins at or before p, or n_blocks. */
static size_t block_before(const struct cut_text *t, size_t p)
{
    size_t lo = 0, hi = t->n_blocks;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->blocks[mid].begin <= p)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 ? lo - 1 : t->n_blocks;
}

static enum boundary block_begin_rank(const struct cut_text *t, size_t i)
{
    const struct block *b = &t->blocks[i], *before = i > 0 ? b - 1 : NULL;
    if (before && before->kind == BLOCK_HEADING)
        return BOUNDARY_WORD;
    if (b->kind == BLOCK_HEADING) {
        int level = b->level < 1 ? 1 : b->level > 9 ? 9 : b->level;
        return (enum boundary)(BOUNDARY_HEADING + 9 - level);
    }
    bool run = before && before->kind == b->kind &&
               (b->kind == BLOCK_LIST_ITEM || b->kind == BLOCK_TABLE_ROW);
    return run ? BOUNDARY_LINE : BOUNDARY_PARAGRAPH;
}

static bool keeps_lines(const struct cut_text *t, size_t block, size_t p)
{
    if (block == t->n_blocks || p >= t->blocks[block].end)
        return true;
    enum block_kind k = t->blocks[block].kind;
    return k == BLOCK_CODE || k == BLOCK_LIST_ITEM || k == BLOCK_TABLE_ROW;
}

/* Rank of p when `block` is block_before(p). */
static enum boundary rank_in_block(const struct cut_text *t, size_t p, size_t block)
{
    if (((unsigned char)t->text[p] & 0xc0) == 0x80)
        return BOUNDARY_NONE;
    if (block < t->n_blocks && t->blocks[block].begin == p)
        return block_begin_rank(t, block);
    uint32_t next;
    utf8_decode(t->text + p, t->len - p, &next);
    if (is_space(next))
        return BOUNDARY_CODE_POINT;
    size_t end = p, lines = 0, begin;
    while (end > 0 && p - end < LOOK_SPACE) {
        uint32_t c = code_point_before(t->text, end, &begin);
        if (!is_space(c))
            break;
        lines += c == '\n' || c == 0x2028;
        end = begin;
    }
    if (lines > 1)
        return BOUNDARY_PARAGRAPH;
    if (lines == 1 && keeps_lines(t, block, p))
        return BOUNDARY_LINE;
    return mark_rank(t->text, end, next, end < p);
}

enum boundary boundary_rank(const struct cut_text *t, size_t p)
{
    return rank_in_block(t, p, block_before(t, p));
}

enum boundary boundary_best(const struct cut_text *t, size_t after, size_t limit, size_t *at)
{
    enum boundary best = BOUNDARY_NONE;
    *at = 0;
    size_t block = block_before(t, limit);
    for (size_t p = limit; p > after && best < BOUNDARY_TOP; p--) {
        while (block < t->n_blocks && t->blocks[block].begin > p)
            block = block > 0 ? block - 1 : t->n_blocks;
        enum boundary r = rank_in_block(t, p, block);
        if (r > best) {
            best = r;
            *at = p;
        }
    }
    return best;
}

/* A cluster can be of any length, so its borders are known only from the front. */
static size_t last_grapheme(const struct cut_text *t, size_t begin, size_t limit)
{
    utf8proc_int32_t state = 0;
    uint32_t before, cp;
    size_t last = begin,
           p = begin + (size_t)utf8_decode(t->text + begin, t->len - begin, &before);
    while (p <= limit) {
        int n = utf8_decode(t->text + p, t->len - p, &cp);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)cp,
                                             &state))
            last = p;
        before = cp;
        p += (size_t)n;
    }
    return last;
}

size_t boundary_choose(const struct cut_text *t, size_t begin, size_t limit,
                       enum boundary *rank)
{
    size_t half = begin + (limit - begin) / 2, eighth = begin + (limit - begin) / 8, at, early;
    *rank = boundary_best(t, half, limit, &at);
    if (*rank >= BOUNDARY_SENTENCE)
        return at;
    enum boundary r = boundary_best(t, eighth, half, &early);
    if (r >= BOUNDARY_SENTENCE || (r >= BOUNDARY_WORD && *rank < BOUNDARY_WORD)) {
        *rank = r;
        return early;
    }
    if (*rank >= BOUNDARY_WORD)
        return at;
    at = last_grapheme(t, begin, limit);
    *rank = BOUNDARY_GRAPHEME;
    if (at > begin)
        return at;
    *rank = BOUNDARY_CODE_POINT;
    at = utf8_floor(t->text, t->len, limit);
    return at > begin ? at : begin;
}

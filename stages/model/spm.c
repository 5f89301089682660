/* SentencePiece BPE: the text is a row of characters; the two neighbours whose text together is the token of the
 * highest score merge first. What stays without a token becomes byte tokens.
 *
 * Files spell the space as U+2581. Here both are a space: the look-up table holds the tokens with spaces, so that
 * the text needs no longer form. (A character U+2581 in the text is a space too, as in SentencePiece.)
 *
 * Merging works on the whole text, which would need a heap as large as the text. But a token with a space after
 * another character is rare; where none has this character before a space, no merge can cross that place, and the
 * text is cut there without changing the result. */
#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/model/vocab_impl.h"

#include <string.h>

static const char mark[] = "\xe2\x96\x81"; /* U+2581 */
enum { MARK_BYTES = 3 };

size_t spm_unmark(const char *s, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; n++) {
        bool is_mark =
            s[i] == mark[0] && len - i >= MARK_BYTES && memcmp(s + i, mark, MARK_BYTES) == 0;
        out[n] = is_mark ? ' ' : s[i];
        i += is_mark ? MARK_BYTES : 1;
    }
    return n;
}

int spm_piece(const char *name, size_t len, char *out)
{
    int n = (int)spm_unmark(name, len, out);
    /* A raw space in a name is no space of the text: those all come as U+2581. */
    return memchr(name, ' ', len) ? -1 : n;
}

static bool find_text(const struct vocab *v, const char *text, const struct symbol *l,
                      const struct symbol *r, uint32_t *rank, int32_t *id)
{
    size_t len = (size_t)l->len + r->len;
    if (len > v->longest)
        return false;
    *id = text_index_find(&v->by_piece, text + l->at, len);
    if (*id < 0)
        return false;
    *rank = v->ranks[*id];
    return true;
}

static int encode_span(struct encoder *c, const char *text, size_t len)
{
    const struct vocab *v = c->v;
    if (merger_start(&c->merger, len, c->e) != 0)
        return -ERR_NOMEM;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int step = utf8_decode(text + i, len - i, &cp);
        size_t n = (size_t)(step < 0 ? -step : step);
        merger_add(&c->merger, i, n, text_index_find(&v->by_piece, text + i, n));
        i += n;
    }
    return encoder_merge(c, text, find_text);
}

int spm_prepare(struct encoder *c, const char *text, size_t len, const char **copy, size_t *n)
{
    c->copy = mem_resize(NULL, len + 1);
    if (!c->copy)
        return err_set(c->e, REACH_DOC, ERR_NOMEM, "no memory to tokenize %zu bytes", len);
    *copy = c->copy + 1;
    *n = spm_unmark(text, len, c->copy + 1);
    return 0;
}

int spm_encode(struct encoder *c, const char *text, size_t n, bool prefix)
{
    char *s = c->copy + (text - c->copy);
    if (prefix) { /* the byte before belongs to nothing, or to a special token that was emitted */
        *--s = ' ';
        n++;
    }
    for (size_t start = 0, i = 1; i <= n; i++) {
        bool cut =
            i == n || (s[i] == ' ' && s[i - 1] != ' ' && !c->v->joins[(unsigned char)s[i - 1]]);
        if (!cut)
            continue;
        int rc = encode_span(c, s + start, i - start);
        if (rc != 0)
            return rc;
        start = i;
    }
    return 0;
}

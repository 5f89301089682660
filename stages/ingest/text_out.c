#include "stages/ingest/text_out.h"

#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    BLOCK_BYTES = 64, /* of text per block, on average, at the least; bounds the table */
    BLOCKS_MIN = 1024,
    NFC_PIECE = 64 << 10, /* utf8proc takes 4 bytes per code point at a time */
};

void text_out_init(struct text_out *t, size_t cap)
{
    *t = (struct text_out){0};
    buf_init(&t->text, cap);
    buf_init(&t->open, cap);
}

void text_out_release(struct text_out *t)
{
    buf_release(&t->text);
    buf_release(&t->open);
    free(t->blocks);
    t->blocks = NULL;
}

/* ---- normal form ---- */

/* Below U+0300 every character is its own normal form and combines with nothing before it. */
static bool needs_nfc(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0xcc)
            return true;
    return false;
}

/* A place to cut at or after `at`: before ASCII or an ideograph (U+4000 to U+9FFF), which never
 * combine with what is before them. */
static size_t safe_cut(const char *s, size_t n, size_t at)
{
    while (at < n && (unsigned char)s[at] >= 0x80 &&
           !((unsigned char)s[at] >= 0xe4 && (unsigned char)s[at] <= 0xe9))
        at++;
    return at < n ? at : n;
}

static int add_nfc(struct buf *out, const char *s, size_t n, struct err *e)
{
    utf8proc_uint8_t *nfc = NULL;
    utf8proc_ssize_t len = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &nfc,
                                        UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (len < 0)
        return err_set(e, REACH_DOC, len == UTF8PROC_ERROR_NOMEM ? ERR_NOMEM : ERR_BUG,
                       "normal form: %s", utf8proc_errmsg(len));
    int rc = buf_add(out, nfc, (size_t)len, e);
    free(nfc);
    return rc;
}

/* U+00A0 to a blank, U+00AD to nothing, in place from `from` to the end of out. */
static void plain_blanks(struct buf *out, size_t from)
{
    size_t to = from;
    for (size_t i = from; i < out->len; i++) {
        unsigned char c = (unsigned char)out->data[i];
        if (c == 0xc2 && i + 1 < out->len) {
            unsigned char next = (unsigned char)out->data[i + 1];
            if (next == 0xa0 || next == 0xad) {
                if (next == 0xa0)
                    out->data[to++] = ' ';
                i++;
                continue;
            }
        }
        out->data[to++] = (char)c;
    }
    out->len = to;
    if (out->data)
        out->data[to] = '\0';
}

int text_normalise(struct buf *out, const char *s, size_t n, struct err *e)
{
    size_t from = out->len;
    for (size_t at = 0; at < n;) {
        size_t end = n - at > NFC_PIECE ? safe_cut(s, n, at + NFC_PIECE) : n;
        int rc = needs_nfc(s + at, end - at) ? add_nfc(out, s + at, end - at, e)
                                             : buf_add(out, s + at, end - at, e);
        if (rc != 0)
            return rc;
        at = end;
    }
    plain_blanks(out, from);
    return 0;
}

/* ---- blocks ---- */

static size_t most_blocks(size_t cap)
{
    return cap / BLOCK_BYTES + BLOCKS_MIN;
}

size_t text_blocks_bytes(size_t cap)
{
    return most_blocks(cap) * sizeof(struct block);
}

static int add_block(struct text_out *t, struct block b, struct err *e)
{
    size_t bound = most_blocks(t->text.cap);
    if (t->n_blocks == bound) {
        t->blocks[t->n_blocks - 1].end = b.end;
        return 0;
    }
    if (t->n_blocks == t->blocks_cap) {
        size_t grown = t->blocks_cap ? t->blocks_cap * 2 : 64, bytes;
        if (grown > bound)
            grown = bound;
        struct block *p =
            size_mul(grown, sizeof(*p), &bytes) ? mem_resize(t->blocks, bytes) : NULL;
        if (!p)
            return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %zu blocks", grown);
        t->blocks = p;
        t->blocks_cap = grown;
    }
    t->blocks[t->n_blocks++] = b;
    return 0;
}

int text_mark(struct text_out *t, enum block_kind kind, int level, size_t begin, size_t end,
              int page, struct err *e)
{
    const char *s = t->text.data;
    while (begin < end && text_is_space(s[begin]))
        begin++;
    while (end > begin && text_is_space(s[end - 1]))
        end--;
    if (begin == end)
        return 0;
    return add_block(
        t,
        (struct block){
            .kind = kind, .level = level, .begin = begin, .end = end, .page = page, .part = -1},
        e);
}

int text_open(struct text_out *t, enum block_kind kind, int level, bool pre, struct err *e)
{
    int rc = text_close(t, e);
    t->kind = kind;
    t->level = level;
    t->pre = pre;
    return rc;
}

int text_add(struct text_out *t, const char *s, size_t n, struct err *e)
{
    if (t->pre)
        return buf_add(&t->open, s, n, e);
    for (size_t i = 0; i < n;) {
        size_t from = i;
        while (i < n && !text_is_space(s[i]))
            i++;
        if (i > from) {
            int rc = buf_add(&t->open, s + from, i - from, e);
            if (rc != 0)
                return rc;
        }
        from = i;
        while (i < n && text_is_space(s[i]))
            i++;
        if (i > from && t->open.len > 0 && !text_is_space(t->open.data[t->open.len - 1])) {
            int rc = buf_addc(&t->open, ' ', e);
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}

int text_break(struct text_out *t, struct err *e)
{
    if (!t->pre)
        while (t->open.len > 0 && t->open.data[t->open.len - 1] == ' ')
            t->open.len--;
    return t->open.len > 0 ? buf_addc(&t->open, '\n', e) : 0;
}

/* Rows of a table and items of a list stand close together, other blocks apart. */
static const char *gap_before(const struct text_out *t)
{
    if (t->n_blocks == 0)
        return "";
    enum block_kind last = t->blocks[t->n_blocks - 1].kind;
    bool close = t->kind == last && (t->kind == BLOCK_TABLE_ROW || t->kind == BLOCK_LIST_ITEM);
    return close ? "\n" : "\n\n";
}

int text_close(struct text_out *t, struct err *e)
{
    size_t n = t->open.len, from = 0;
    while (n > 0 && text_is_space(t->open.data[n - 1]))
        n--;
    while (from < n &&
           (t->pre ? t->open.data[from] == '\n' : text_is_space(t->open.data[from])))
        from++;
    int rc = 0;
    if (from < n) {
        rc = buf_adds(&t->text, gap_before(t), e);
        size_t begin = t->text.len;
        if (rc == 0)
            rc = text_normalise(&t->text, t->open.data + from, n - from, e);
        if (rc == 0)
            rc = text_mark(t, t->kind, t->level, begin, t->text.len, 0, e);
    }
    buf_clear(&t->open);
    return rc;
}

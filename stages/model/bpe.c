/* Byte-level BPE: a word is a row of byte tokens, merged by the rank of the pair in the file's list.
 *
 * Names in the file spell each byte as a printable character (GPT-2's table): those that are printable in
 * Latin-1 stand for themselves, the others for U+0100, U+0101, ... in order. */
#include "stages/base/utf8.h"
#include "stages/model/vocab_impl.h"

static bool stands_for_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

/* 0x00..0x20, 0x7f..0xa0 and 0xad are spelt 0x100 + their place in this order. */
static uint32_t byte_point(unsigned byte)
{
    if (stands_for_itself(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100 + byte;
    return byte == 0xad ? 0x143 : 0x121 + byte - 0x7f;
}

static int point_byte(uint32_t cp)
{
    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120)
        return (int)cp - 0x100;
    if (cp <= 0x142)
        return (int)cp - 0x121 + 0x7f;
    return cp == 0x143 ? 0xad : -1;
}

int bpe_byte_name(unsigned byte, char out[4])
{
    return utf8_encode(byte_point(byte), out);
}

int bpe_piece(const char *name, size_t len, char *out)
{
    int n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int step = utf8_decode(name + i, len - i, &cp);
        int byte = step > 0 ? point_byte(cp) : -1;
        if (byte < 0)
            return -1;
        out[n++] = (char)byte;
        i += (size_t)step;
    }
    return n;
}

static bool find_pair(const struct vocab *v, const char *text, const struct symbol *l,
                      const struct symbol *r, uint32_t *rank, int32_t *id)
{
    (void)text;
    const struct pair_slot *slot = pair_index_find(&v->merges, l->id, r->id);
    if (!slot)
        return false;
    *rank = slot->rank;
    *id = slot->id;
    return true;
}

static int encode_word(struct encoder *c, const char *word, size_t len)
{
    const struct vocab *v = c->v;
    if (v->ignore_merges && len <= v->longest) {
        int32_t whole = text_index_find(&v->by_piece, word, len);
        if (whole >= 0)
            return encoder_emit(c, whole);
    }
    if (merger_start(&c->merger, len, c->e) != 0)
        return -ERR_NOMEM;
    for (size_t i = 0; i < len; i++)
        if (v->byte_ids[(unsigned char)word[i]] >=
            0) /* else its neighbours become neighbours */
            merger_add(&c->merger, i, 1, v->byte_ids[(unsigned char)word[i]]);
    return encoder_merge(c, word, find_pair);
}

int bpe_encode(struct encoder *c, const char *text, size_t len)
{
    struct pretok_scan scan;
    const char *word;
    size_t n;
    pretok_start(&scan, c->v->pre, text, len);
    while (pretok_next(&scan, &word, &n)) {
        int rc = encode_word(c, word, n);
        if (rc != 0)
            return rc;
    }
    return 0;
}

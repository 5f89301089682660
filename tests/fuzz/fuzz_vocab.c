/* Property: any bytes encode, with any flags; without VOCAB_SPECIAL no special token comes out. The pieces
 * concatenate to the input: exactly for byte-level BPE; for SentencePiece to the input with U+2581 as a space and
 * one more space wherever text begins (its start, and after a special token) if the file asks for it and the
 * caller does not forbid it. The first byte chooses vocabulary and flags. */
#include "tests/unit/vocab_writer.h"

#include "stages/model/vocab.h"

#include <stdint.h>
#include <stdlib.h>

static const char *const bpe_tokens[] = {"he",         "ll",      "hell", "hello",
                                         "<|im_end|>", "<think>", "  ",   "\xc4\xa0t",
                                         "aa",         "aaaa",    NULL};
static const int bpe_types[] = {1, 1, 1, 1, 3, 4, 4, 1, 1, 1};
static const char *const bpe_merges[] = {"l l",        "h e", "he ll", "hell o",
                                         "\xc4\xa0 t", "a a", "aa aa", NULL};
static const char *const spm_tokens[] = {"<unk>",
                                         "\xe2\x96\x81",
                                         "a",
                                         "b",
                                         "ab",
                                         "\xe2\x96\x81"
                                         "ab",
                                         "\n\n",
                                         "a\xe2\x96\x81",
                                         "<s>",
                                         "aa",
                                         "aaa",
                                         "\xe4\xb8\xad",
                                         NULL};
static const int spm_types[] = {2, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1};
static const char *const kinds[] = {"gpt-2",   "smollm", "llama-bpe", "qwen2",
                                    "default", NULL,     NULL};
enum { KINDS = 7 };

static struct vocab *vocabularies[KINDS];

static void open_all(void)
{
    static struct gguf_writer w;
    for (int i = 0; i < KINDS; i++) {
        struct vocab_plan p = plan_default;
        struct gguf g;
        struct err e = {0};
        p.model = kinds[i] ? "gpt2" : "llama";
        p.pre = kinds[i];
        p.tokens = kinds[i] ? bpe_tokens : spm_tokens;
        p.types = kinds[i] ? bpe_types : spm_types;
        p.merges = kinds[i] ? bpe_merges : NULL;
        p.bos = p.eos = kinds[i] ? 260 : 264;
        p.add_space = i == KINDS - 1 ? 0 : 1;
        put_vocab(&w, &p);
        if (gguf_parse(&g, w.data, w.len, &e) != 0 || vocab_open(&vocabularies[i], &g, &e) != 0)
            abort();
        gguf_release(&g);
    }
}

/* The next byte that the pieces must spell, with U+2581 as a space for SentencePiece. */
static char next_byte(const char *text, size_t size, size_t *at, bool spm)
{
    if (spm && size - *at >= 3 && memcmp(text + *at, "\xe2\x96\x81", 3) == 0) {
        *at += 3;
        return ' ';
    }
    return text[(*at)++];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct token_list t = {0};
    struct err e = {0};
    if (!vocabularies[0])
        open_all();
    if (size == 0)
        return 0;
    const struct vocab *v = vocabularies[data[0] % KINDS];
    unsigned flags = data[0] / KINDS % 4;
    const char *text = (const char *)data + 1;
    bool spm = strcmp(vocab_kind(v), "spm") == 0;
    size--;
    if (vocab_encode(v, text, size, flags, &t, &e) != 0)
        abort();
    bool starts = vocab_adds_space(v) && !(flags & VOCAB_NO_PREFIX) && size > 0;
    size_t at = 0;
    for (int i = 0; i < t.n; i++) {
        size_t n;
        bool special = vocab_is_special(v, t.ids[i]);
        const char *piece =
            special ? vocab_name(v, t.ids[i], &n) : vocab_piece(v, t.ids[i], &n);
        if (special && !(flags & VOCAB_SPECIAL))
            abort();
        if (special && starts && i == 0)
            starts = false; /* nothing in front of it */
        for (size_t k = 0; k < n; k++) {
            if (k == 0 && starts) {
                if (piece[0] != ' ')
                    abort();
                starts = false;
                continue;
            }
            if (at >= size || next_byte(text, size, &at, spm) != piece[k])
                abort();
        }
        starts =
            special ? vocab_adds_space(v) && !(flags & VOCAB_NO_PREFIX) && at < size : starts;
        if (special && starts && i + 1 < t.n && vocab_is_special(v, t.ids[i + 1]))
            starts = false;
    }
    if (at != size)
        abort();
    token_list_release(&t);
    return 0;
}

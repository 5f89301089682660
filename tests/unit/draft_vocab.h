/* tests/unit/draft_vocab.h - a model file of nothing but a small vocabulary and a chat template, for tests.
 * Include it after cmocka.h. */
#ifndef QUIRE_TESTS_DRAFT_VOCAB_H
#define QUIRE_TESTS_DRAFT_VOCAB_H

#include "stages/base/buf.h"
#include "stages/base/le.h"
#include "stages/base/utf8.h"
#include "stages/model/vocab.h"

#include <stdio.h>
#include <string.h>

struct draft {
    struct buf kv, all;
    uint64_t n;
};

static void add(struct buf *b, const void *p, size_t n)
{
    struct err e = {0};
    assert_int_equal(buf_add(b, p, n, &e), 0);
}

static void add_u32(struct buf *b, uint32_t v)
{
    uint8_t x[4];
    le32_put(x, v);
    add(b, x, 4);
}

static void add_string(struct buf *b, const char *s)
{
    uint8_t x[8];
    le64_put(x, strlen(s));
    add(b, x, 8);
    add(b, s, strlen(s));
}

static void key(struct draft *d, const char *name, enum gguf_type type)
{
    add_string(&d->kv, name);
    add_u32(&d->kv, type);
    d->n++;
}

static void key_string(struct draft *d, const char *name, const char *s)
{
    key(d, name, GGUF_STRING);
    add_string(&d->kv, s);
}

static void key_u32(struct draft *d, const char *name, uint32_t v)
{
    key(d, name, GGUF_U32);
    add_u32(&d->kv, v);
}

static void key_bool(struct draft *d, const char *name, bool v)
{
    key(d, name, GGUF_BOOL);
    add(&d->kv, &(uint8_t){v}, 1);
}

static void key_array(struct draft *d, const char *name, enum gguf_type type, uint64_t n)
{
    uint8_t x[8];
    le64_put(x, n);
    key(d, name, GGUF_ARRAY);
    add_u32(&d->kv, type);
    add(&d->kv, x, 8);
}

/* Byte b as byte-level BPE spells it. */
static void byte_name(int b, char out[8])
{
    static const int gaps[] = {0, 33, 127, 161, 173, 174};
    int cp = b;
    bool plain = (b >= gaps[1] && b < gaps[2]) || (b >= gaps[3] && b < gaps[4]) || b >= gaps[5];
    if (!plain) {
        cp = 256;
        for (int i = 0; i < b; i++)
            cp += !((i >= gaps[1] && i < gaps[2]) || (i >= gaps[3] && i < gaps[4]) ||
                    i >= gaps[5]);
    }
    out[utf8_encode((uint32_t)cp, out)] = '\0';
}

struct vocabulary {
    struct draft d;
    struct gguf g;
    struct vocab *v;
};

/* Byte tokens 0..255 (for SentencePiece 3 more in front), then the specials; the first two are BOS and EOS. */
static void open_vocabulary(struct vocabulary *x, bool spm, bool adds_bos, bool adds_space,
                            const char *template, const char *const *specials)
{
    struct err e = {0};
    int n_special = 0, base = spm ? 1 : 0;
    while (specials[n_special])
        n_special++;
    int extra = spm ? 5 : 0, n = base + 256 + extra + n_special;
    static const char *const pieces[] = {"\xe2\x96\x81", "U", "\xe2\x96\x81U", "[",
                                         "\xe2\x96\x81["};
    *x = (struct vocabulary){0};
    buf_init(&x->d.kv, 1 << 20);
    buf_init(&x->d.all, 1 << 20);
    key_string(&x->d, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    key_string(&x->d, "tokenizer.ggml.pre", spm ? "default" : "llama-bpe");
    key_array(&x->d, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)n);
    if (spm)
        add_string(&x->d.kv, "<unk>");
    for (int i = 0; i < 256; i++) {
        char name[8];
        if (spm)
            snprintf(name, sizeof(name), "<0x%02X>", i);
        else
            byte_name(i, name);
        add_string(&x->d.kv, name);
    }
    for (int i = 0; i < extra; i++)
        add_string(&x->d.kv, pieces[i]);
    for (int i = 0; i < n_special; i++)
        add_string(&x->d.kv, specials[i]);
    key_array(&x->d, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)n);
    for (int i = 0; i < n; i++)
        add_u32(&x->d.kv, spm && i == 0 ? 2 : i >= n - n_special ? 3 : spm && i <= 256 ? 6 : 1);
    if (spm) {
        key_array(&x->d, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)n);
        for (int i = 0; i < n; i++) {
            float f = i > 256 ? (float)(-i) : 0;
            uint32_t u;
            memcpy(&u, &f, 4);
            add_u32(&x->d.kv, u);
        }
    } else {
        key_array(&x->d, "tokenizer.ggml.merges", GGUF_STRING, 0);
    }
    key_u32(&x->d, "tokenizer.ggml.bos_token_id", (uint32_t)(n - n_special));
    key_u32(&x->d, "tokenizer.ggml.eos_token_id", (uint32_t)(n - n_special + 1));
    key_bool(&x->d, "tokenizer.ggml.add_bos_token", adds_bos);
    key_bool(&x->d, "tokenizer.ggml.add_space_prefix", adds_space);
    if (template)
        key_string(&x->d, "tokenizer.chat_template", template);
    add(&x->d.all, "GGUF", 4);
    add_u32(&x->d.all, 3);
    uint8_t count[16] = {0};
    le64_put(count + 8, x->d.n);
    add(&x->d.all, count, 16);
    add(&x->d.all, x->d.kv.data, x->d.kv.len);
    while (x->d.all.len % 32)
        add(&x->d.all, "", 1);
    if (gguf_parse(&x->g, (const uint8_t *)x->d.all.data, x->d.all.len, &e) < 0 ||
        vocab_open(&x->v, &x->g, &e) < 0)
        fail_msg("%s", e.msg);
}

static void close_vocabulary(struct vocabulary *x)
{
    vocab_free(x->v);
    gguf_release(&x->g);
    buf_release(&x->d.kv);
    buf_release(&x->d.all);
}

#endif

/* Small vocabularies as GGUF files in memory, for tests: what a test changes, it names in a `vocab_plan`. */
#ifndef QUIRE_TESTS_VOCAB_WRITER_H
#define QUIRE_TESTS_VOCAB_WRITER_H

#include "stages/base/utf8.h"
#include "tests/unit/gguf_writer.h"

#include <stdio.h>

struct vocab_plan {
    const char *model, *pre;     /* NULL: no such key */
    const char *const *tokens;   /* NULL-terminated; come after the bytes */
    const int *types;            /* of these; NULL: all normal (1) */
    const float *scores;         /* of these; NULL: -1, -2, ... */
    const char *const *merges;   /* NULL-terminated, or NULL: no such key */
    int no_byte;                 /* 1..256: this byte - 1 has no token */
    bool no_types;               /* no token_type key */
    int drop_types, drop_scores; /* this many items fewer */
    uint32_t types_item;         /* 0: i32 */
    int bos, eos;                /* -1: no such key */
    int add_bos, add_space;      /* -1: no such key */
};

static const struct vocab_plan plan_default = {
    .model = "gpt2", .pre = "gpt-2", .bos = -1, .eos = -1, .add_bos = -1, .add_space = -1};

static inline void put_byte_token(struct gguf_writer *w, const struct vocab_plan *p, int byte)
{
    char name[8];
    if (strcmp(p->model, "gpt2") != 0) {
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)byte);
        put_str(w, byte == p->no_byte - 1 ? "(none)" : name);
        return;
    }
    /* GPT-2's table: unprintable bytes in order from U+0100. */
    uint32_t next = 0x100, cp = 0;
    for (int b = 0; b <= byte; b++) {
        bool prints = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        cp = prints ? (uint32_t)b : next++;
    }
    name[utf8_encode(byte == p->no_byte - 1 ? 0x4e00 : cp, name)] = '\0';
    put_str(w, name);
}

static inline void put_vocab(struct gguf_writer *w, const struct vocab_plan *p)
{
    int n = 0, m = 0;
    while (p->tokens && p->tokens[n])
        n++;
    while (p->merges && p->merges[m])
        m++;
    bool spm = strcmp(p->model, "gpt2") != 0;
    put_header(w, 3, 0,
               2u + (p->pre != NULL) + !p->no_types + spm + (p->merges != NULL) +
                   (p->bos >= 0) + (p->eos >= 0) + (p->add_bos >= 0) + (p->add_space >= 0));
    put_key(w, "tokenizer.ggml.model", 8), put_str(w, p->model);
    if (p->pre)
        put_key(w, "tokenizer.ggml.pre", 8), put_str(w, p->pre);
    put_array(w, "tokenizer.ggml.tokens", 8, 256 + (uint64_t)n);
    for (int b = 0; b < 256; b++)
        put_byte_token(w, p, b);
    for (int i = 0; i < n; i++)
        put_str(w, p->tokens[i]);
    if (!p->no_types) {
        put_array(w, "tokenizer.ggml.token_type", p->types_item ? p->types_item : 5,
                  256 + (uint64_t)(n - p->drop_types));
        for (int i = 0; i < 256 + n - p->drop_types; i++)
            put_u32(w, i < 256 ? (spm ? 6 : 1) : p->types ? (uint32_t)p->types[i - 256] : 1);
    }
    if (spm) {
        put_array(w, "tokenizer.ggml.scores", 6, 256 + (uint64_t)(n - p->drop_scores));
        for (int i = 0; i < 256 + n - p->drop_scores; i++)
            put_f32(w, i < 256 ? 0.0f : p->scores ? p->scores[i - 256] : (float)(255 - i));
    }
    if (p->merges) {
        put_array(w, "tokenizer.ggml.merges", 8, (uint64_t)m);
        for (int i = 0; i < m; i++)
            put_str(w, p->merges[i]);
    }
    if (p->bos >= 0)
        put_key(w, "tokenizer.ggml.bos_token_id", 4), put_u32(w, (uint32_t)p->bos);
    if (p->eos >= 0)
        put_key(w, "tokenizer.ggml.eos_token_id", 4), put_u32(w, (uint32_t)p->eos);
    if (p->add_bos >= 0)
        put_key(w, "tokenizer.ggml.add_bos_token", 7), put_u8(w, (uint8_t)p->add_bos);
    if (p->add_space >= 0)
        put_key(w, "tokenizer.ggml.add_space_prefix", 7), put_u8(w, (uint8_t)p->add_space);
}

#endif

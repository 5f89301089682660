/* stages/model/vocab.h - text to token ids and back.
 *
 * What:   byte-level BPE (pre-tokenizers: gpt-2, smollm, llama-bpe, qwen2) and SentencePiece BPE
 *         (llama, gemma), from the metadata of a GGUF file; and a built-in byte vocabulary for the null model.
 * Rules:  1. Encoding is linear in the input up to a logarithm, uses constant stack, and any bytes work. (A byte
 *            for which the file has no token is left out: SmolLM2 lacks six control characters.)
 *         2. Without VOCAB_SPECIAL no special or control token is ever produced from text.
 *         3. vocab_encode never adds BOS or EOS; the chat template does, exactly once.
 * Thread: immutable after opening.
 */
#ifndef QUIRE_MODEL_VOCAB_H
#define QUIRE_MODEL_VOCAB_H

#include "stages/model/gguf.h"

struct vocab;

struct token_list { /* growing, capped at INT32_MAX */
    int32_t *ids;   /* heap */
    int n, cap;
};
void token_list_release(struct token_list *t);
int token_list_add(struct token_list *t, int32_t id, struct err *e) MUST_CHECK;

/* A vocabulary from metadata; the strings are copied. Errors CONFIG/FORMAT/UNSUPPORTED, reach JOB; an unknown
 * pre-tokenizer is named with the list of those that are known. */
int vocab_open(struct vocab **out, const struct gguf *g, struct err *e) MUST_CHECK;
/* 256 byte tokens, then <bos> <eos> <turn>: for the null model. */
struct vocab *vocab_bytes(void);
void vocab_free(struct vocab *v);

enum vocab_encode_flags {
    VOCAB_SPECIAL = 1, /* special-token strings in the text become their tokens */
    VOCAB_NO_PREFIX =
        2, /* SentencePiece: no space in front of the text, nor after a special token in it */
};
/* Append the tokens of text[0, len). -ERR_LIMIT past 2^31 tokens, -ERR_NOMEM (reach DOC). */
int vocab_encode(const struct vocab *v, const char *text, size_t len, unsigned flags,
                 struct token_list *out, struct err *e) MUST_CHECK;
/* As vocab_encode without flags, counting only. -1 when there is no memory. */
int64_t vocab_count(const struct vocab *v, const char *text, size_t len);

/* id is 0..vocab_size()-1 in all of these. The bytes of a token, possibly a part of a code point; control tokens have none. Valid while v is. */
const char *vocab_piece(const struct vocab *v, int32_t id, size_t *len);
/* The token whose text is exactly s, special ones included; -1 if none. */
int32_t vocab_find(const struct vocab *v, const char *s);
/* The text of a token as the file spells it (control tokens too), for printing. */
const char *vocab_name(const struct vocab *v, int32_t id, size_t *len);

int vocab_size(const struct vocab *v);
int32_t vocab_bos(const struct vocab *v); /* -1: none */
int32_t vocab_eos(const struct vocab *v);
bool vocab_adds_bos(const struct vocab *v);
bool vocab_adds_space(
    const struct vocab *v); /* SentencePiece: a space goes in front of the text */
bool vocab_is_end(const struct vocab *v, int32_t id); /* EOS, end of turn, ... */
bool vocab_is_special(const struct vocab *v,
                      int32_t id); /* control or unknown: never made from plain text */
const char *vocab_kind(const struct vocab *v); /* "bpe smollm", "spm", "bytes" */
/* Digest of all that changes encoding, for cache keys. */
void vocab_digest(const struct vocab *v, uint8_t out[32]);

#endif

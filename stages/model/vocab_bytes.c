/* The vocabulary of the null model: a token per byte, and three that text cannot spell. */
#include "stages/base/hash.h"
#include "stages/base/mem.h"
#include "stages/model/vocab_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BOS = 256, EOS, TURN, TOKENS };

static void add_token(struct vocab *v, int32_t id, const char *name, enum token_type type,
                      const char *piece, size_t n)
{
    size_t len = strlen(name);
    memcpy(v->names.data + v->names.at[id], name, len);
    v->names.at[id + 1] = v->names.at[id] + (uint32_t)len;
    memcpy(v->pieces.data + v->pieces.at[id], piece, n);
    v->pieces.at[id + 1] = v->pieces.at[id] + (uint32_t)n;
    v->types[id] = (uint8_t)type;
    text_index_add(&v->by_name, id);
    if (type == TOKEN_CONTROL && !special_tree_add(&v->special, name, len, id, true))
        mem_none("the vocabulary of bytes");
}

struct vocab *vocab_bytes(void)
{
    struct vocab *v = vocab_new(TOKENS, TOKENS * 8);
    if (!v)
        mem_none("the vocabulary of bytes");
    for (int i = 0; i < 256; i++) {
        char name[8], byte = (char)i;
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)i);
        add_token(v, i, name, TOKEN_BYTE, &byte, 1);
        v->byte_ids[i] = i;
    }
    add_token(v, BOS, "<bos>", TOKEN_CONTROL, "", 0);
    add_token(v, EOS, "<eos>", TOKEN_CONTROL, "", 0);
    add_token(v, TURN, "<turn>", TOKEN_CONTROL, "", 0);
    v->type = VOCAB_BYTES;
    v->bos = BOS;
    v->eos = EOS;
    v->adds_bos = true;
    v->ends[v->n_ends++] = EOS;
    snprintf(v->kind, sizeof(v->kind), "bytes");
    hash_bytes("bytes 1", 7, v->digest);
    return v;
}

/* stages/model/hparams.h - the numbers of a model, read from GGUF metadata and checked. */
#ifndef QUIRE_MODEL_HPARAMS_H
#define QUIRE_MODEL_HPARAMS_H

#include "stages/base/hash.h"
#include "stages/model/gguf.h"

enum arch { ARCH_LLAMA, ARCH_QWEN2, ARCH_QWEN3, ARCH_GEMMA3, ARCH_NULL };
enum { MAX_LAYERS = 512 };

struct hparams {
    enum arch arch;
    char name[128]; /* general.name, or the architecture */
    int n_vocab, n_layer, n_embd, n_ff, n_head, n_kv_head, head_dim;
    int context_train;
    float rms_eps;
    float embed_scale;                 /* 1, or sqrt(n_embd) for gemma3 */
    float attn_scale;                  /* multiplies q */
    bool neox;                         /* RoPE pairs (i, i + rot/2) */
    int rot;                           /* rotated dimensions of a head */
    double rope_base, rope_base_local; /* local 0: local layers rotate as the others do */
    double rope_linear; /* positions are divided by this (linear scaling); 1: none */
    bool rope_llama3;   /* frequency factors tensor rope_freqs.weight */
    bool qk_norm, qkv_bias, post_norms, gelu; /* what a layer has */
    bool tied;                                /* the head is the embedding */
    int window; /* sliding window in tokens of local layers, 0: none */
    uint8_t local
        [MAX_LAYERS]; /* 1: the layer has the window and rope_base_local, which is not scaled */
};

/* -ERR_UNSUPPORTED for an architecture or feature not known, with the list; -ERR_FORMAT otherwise; reach JOB. */
int hparams_read(struct hparams *h, const struct gguf *g, struct err *e) MUST_CHECK;
/* Digest of all of them that change a number: not the name, not the length that the model was trained for. */
void hparams_digest(const struct hparams *h, uint8_t out[HASH_BYTES]);
const char *arch_name(enum arch a);

#endif

/* stages/model/model.h - a language model: tokens in, logits out.
 *
 * What:   opens a GGUF file (llama, qwen2, qwen3, gemma3) or the null model; one forward pass for many
 *         rows (prefill) or few (decode), of any mix of sequences.
 * Rules:  1. A row's result depends on its own sequence only: not on the batch, its order, or threads.
 *         2. Memory is planned: model_plan() says what model_open() will take.
 * Thread: model_forward() from one thread; everything else is immutable after opening.
 */
#ifndef QUIRE_MODEL_MODEL_H
#define QUIRE_MODEL_MODEL_H

#include "kernels/kernels.h"
#include "stages/kv/block_table.h"
#include "stages/kv/codec.h"
#include "stages/model/hparams.h"
#include "stages/model/leading.h"
#include "stages/model/model_opts.h"
#include "stages/model/vocab.h"

struct model;

struct model_sizes {  /* bytes where nothing else is said */
    uint64_t weights; /* packed */
    bool shared;      /* they are mapped from a file that an earlier run has left */
    uint64_t mapped;  /* part of the file that stays in use through the map (embedding rows) */
    uint64_t scratch; /* activations of a pass */
    uint64_t page_bytes;
    size_t slice_bytes;
    int n_layer;
};

/* Read the file's metadata: hparams, vocabulary, tensor shapes; all checked. No weights are loaded. */
int model_open(struct model **out, const struct model_config *c, struct err *e) MUST_CHECK;
/* Before model_load(): use the packed weights that lie in this folder, or leave them there (packed_cache.h). limit: most
 * bytes of them in the folder; 0: none. */
void model_use_packed(struct model *m, const char *folder, uint64_t limit);
/* Bytes of the packed weights. */
uint64_t model_packed_bytes(const struct model *m);
/* What loading and running with max_rows rows per pass will take, max_logits of which want logits. */
void model_plan(const struct model *m, int max_rows, int max_logits, struct model_sizes *out);
/* Pack the weights and get scratch for max_rows rows, max_logits of which want logits. k is copied. */
int model_load(struct model *m, const struct kernels *k, int max_rows, int max_logits,
               struct err *e) MUST_CHECK;
void model_free(struct model *m);

/* What its KV pages hold. Of the null model bytes that mean nothing to anyone else. */
struct kv_shape model_kv_shape(const struct model *m);

const struct hparams *model_hparams(const struct model *m);
const struct vocab *model_vocab(const struct model *m);
const struct gguf *model_gguf(const struct model *m); /* NULL for the null model */
/* SHA-256 of the model file (hex): remembered (digest_cache.h), computed beside the packing, or at first use. */
int model_digest(struct model *m, char out[HASH_HEX], struct err *e) MUST_CHECK;
/* Version of the arithmetic: other versions may give other bits. */
int model_arithmetic_version(void);

/* What a run does to pages that changes their numbers. */
struct page_use {
    const char *codec;     /* "exact", or the name of the lossy codec that they went through */
    bool q8;               /* full pages are of 8 bits in memory, too */
    const char *attention; /* mode, and its parameters if it has any: "full" */
    int grid; /* prefill passes end at multiples of this; matters for lossy codecs only */
};
/* Digest of everything that changes the numbers in a page or the logits: weights by content, vocabulary,
 * hyperparameters, the use of pages, versions of arithmetic and layout. Key of prefix_index_new(). */
int model_context_digest(struct model *m, const struct page_use *use, uint8_t out[HASH_BYTES],
                         struct err *e) MUST_CHECK;

/* New rows of one sequence in a pass. */
struct forward_rows {
    const int32_t *tokens; /* whole sequence so far; rows are tokens[pos, pos + n) */
    int pos, n;
    struct block_table *table; /* pages for positions < pos + n are reserved */
    bool want_logits;          /* of the last row */
    float *logits;             /* [n_vocab], written when want_logits */
    bool failed;               /* out: a value was not finite; the sequence is lost */
    /* With want_logits. 0: all are wanted. Else so many of the greatest are enough (LEADING_MOST and n_vocab at
     * most), and are written here in order; what is in logits then means nothing. */
    int n_leading;
    struct logit *leading; /* [n_leading], the caller's */
};
/* One pass over all rows; sum of n <= max_rows. -ERR_LIMIT when over (reach JOB), or for a position past
 * model.context or a token outside the vocabulary (reach DOC; nothing was computed); faults of one sequence's
 * values only set failed. -ERR_CORRUPT (reach JOB) when the packed weights of an earlier run turn out to be damaged. */
int model_forward(struct model *m, struct forward_rows *seqs, int n_seqs,
                  struct err *e) MUST_CHECK;

#endif

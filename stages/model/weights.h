/* stages/model/weights.h - the tensors of a model: checked against its numbers, then packed for the kernels.
 *
 * Rules:  1. weights_bind() checks presence, shape and type of every tensor; a tensor that the architecture
 *            does not have is refused, because leaving it out would change answers in silence.
 *         2. weights_load() packs one tensor after the other, each on all threads, and gives the mapped source
 *            back to the system behind it: the peak is the packed size and a part of one tensor.
 *         3. Rows of the embedding are read through the map for good; forward.c bounds how much of it stays.
 *         4. Packed weights are one range of bytes that holds no pointers: kept somewhere, it can be used again
 *            (weights_use) by a model with the same weights and the same weights_layout().
 */
#ifndef QUIRE_MODEL_WEIGHTS_H
#define QUIRE_MODEL_WEIGHTS_H

#include "kernels/kernels.h"
#include "stages/base/hash.h"
#include "stages/model/hparams.h"

struct layer_weights { /* NULL or empty: the architecture has none */
    const float *attn_norm, *attn_post_norm, *ffn_norm, *ffn_post_norm; /* [n_embd] */
    const float *q_norm, *k_norm;                                       /* [head_dim] */
    const float *q_bias, *k_bias, *v_bias; /* [n_head or n_kv_head * head_dim] */
    struct kern_weights q, k, v, o, gate, up, down;
};

struct weight_binding;

struct weights {
    const struct gguf_tensor *embd; /* [n_vocab][n_embd], in the file's layout */
    const float *output_norm;       /* [n_embd] */
    const float *rope_factors;      /* [rot/2] or NULL */
    struct kern_weights head;       /* [n_vocab][n_embd] */
    struct layer_weights *layers;   /* [n_layer] heap */

    struct weight_binding *bindings; /* where each tensor goes */
    size_t n_bindings;
    const void
        *packed; /* packed weights and vectors, once loaded: `bytes` bytes, aligned to 64 */
    bool own;    /* they were packed here */
    size_t bytes;
};

/* -ERR_FORMAT for a missing tensor or a wrong shape, -ERR_UNSUPPORTED for a type or tensor that is not read;
 * reach JOB, the tensor named. On failure *w is released. g must outlive w. */
int weights_bind(struct weights *w, const struct hparams *h, const struct gguf *g,
                 struct err *e) MUST_CHECK;
/* -ERR_NOMEM, or -ERR_FORMAT when a vector has a value that is not finite; reach JOB. */
int weights_load(struct weights *w, struct err *e) MUST_CHECK;
/* Use what an earlier weights_load() left. `packed` is aligned to 64 and outlives w. -ERR_FORMAT as weights_load(). */
int weights_use(struct weights *w, const void *packed, struct err *e) MUST_CHECK;
/* Digest of which tensor lies where in the packed bytes, and of the layout of the kernels. */
void weights_layout(const struct weights *w, uint8_t out[HASH_BYTES]);
/* Rows of the embedding that were read so far need not stay in memory. */
void weights_give_back_embedding(const struct weights *w);
void weights_release(struct weights *w);

#endif

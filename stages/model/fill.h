/* stages/model/fill.h - the KV of a prompt, chunk by chunk.
 *
 * What:   passes over tokens[pos, n_tokens) that end at absolute multiples of `chunk`, wherever they begin. (No
 *         result depends on it: a row's numbers are its own. It keeps the shape of the work the same.)
 */
#ifndef QUIRE_MODEL_FILL_H
#define QUIRE_MODEL_FILL_H

#include "stages/model/model.h"

struct fill {
    const int32_t *tokens; /* [n_tokens] */
    int n_tokens, pos;     /* computed are [0, pos) */
    int chunk;             /* a multiple of PAGE_TOKENS */
    struct block_table *table;
    float *logits; /* [n_vocab] of the last token, or NULL: not wanted */
    bool failed;   /* out: a value was not finite */
};

/* One pass. Moves pos on; errors as model_forward(). */
int fill_chunk(struct model *m, struct fill *f, struct err *e) MUST_CHECK;

#endif

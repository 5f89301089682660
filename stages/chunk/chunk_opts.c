#include "stages/chunk/chunk_opts.h"

#define AT(field) offsetof(struct chunk_config, field)

const struct opt chunk_opts[] = {
    {"tokens", OPT_TOKENS, AT(tokens), "1500", 0, 1 << 24, NULL, 0,
     "Largest chunk of map_reduce, in tokens of the document. 0, and anything larger than the "
     "context "
     "allows: what fits beside the prompt and the answer."},
    {"min_tokens", OPT_TOKENS, AT(min_tokens), "64", 0, 1 << 20, NULL, 0,
     "A last chunk shorter than this is evened out with the one before it."},
};
const size_t n_chunk_opts = sizeof(chunk_opts) / sizeof(chunk_opts[0]);

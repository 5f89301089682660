#include "stages/prefill/prefill_opts.h"

static const char *const attention_names[] = {"full", NULL};

#define AT(field) offsetof(struct prefill_config, field)

const struct opt prefill_opts[] = {
    {"attention", OPT_ENUM, AT(attention), "full", 0, 0, attention_names, 0,
     "full: every token attends to all before it (models with windows of their own keep "
     "them)."},
    {"batch", OPT_TOKENS, AT(batch), "512", 64, 4096, NULL, OPT_FREE,
     "Tokens of one prefill step, rounded up to a multiple of 64. Changes speed and memory, "
     "never an answer."},
    {"lookahead", OPT_INT, AT(lookahead), "64", 1, 64, NULL, OPT_FREE,
     "Requests that are looked at together: those with the same beginning are computed one "
     "after the other, "
     "and pages that none of them needs make room first. Never changes an answer."},
};
const size_t n_prefill_opts = sizeof(prefill_opts) / sizeof(prefill_opts[0]);

/* stages/model/model_opts.h - the `model` and `prompt` sections of the job file. */
#ifndef QUIRE_MODEL_OPTS_H
#define QUIRE_MODEL_OPTS_H

#include "stages/base/opt.h"

enum model_kind { MODEL_GGUF, MODEL_NULL };
enum kernel_choice {
    KERNELS_AUTO,
    KERNELS_REF,
    KERNELS_AVX2,
    KERNELS_AVX512,
    KERNELS_NEON,
    KERNELS_DOTPROD
};

struct model_config {
    int kind; /* enum model_kind */
    char *file;
    int context; /* tokens of prompt and answer together; 0: min(8192, what the model was trained for) */
    int kernels;           /* enum kernel_choice */
    bool verify;           /* compute the digests anew, whatever is remembered */
    char *packed_cache;    /* "auto", "no", or a folder */
    uint64_t packed_limit; /* bytes */
};

struct prompt_config {
    char *template; /* "auto", a family name, "none", or a file with a Jinja template */
    char *system;   /* NULL: none given (the template's default stays) */
    char
        *document; /* user turn over a document: {{text}} {{title}} {{question}} {{headings}} */
    char *reduce;  /* user turn over partial answers: {{text}} {{question}} */
    char *date;    /* for templates that print one; NULL: such templates are refused */
};

extern const struct opt model_opts[], prompt_opts[];
extern const size_t n_model_opts, n_prompt_opts;

#endif

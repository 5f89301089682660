/* stages/prefill/prefill_opts.h - the `prefill` section of the job file. */
#ifndef QUIRE_PREFILL_OPTS_H
#define QUIRE_PREFILL_OPTS_H

#include "stages/base/opt.h"

enum attention_mode { ATTENTION_FULL };

struct prefill_config {
    int attention; /* enum attention_mode */
    int batch;     /* rows of one forward pass; multiple of 64 */
    int lookahead; /* requests that are ordered by their prefixes */
};

extern const struct opt prefill_opts[];
extern const size_t n_prefill_opts;

#endif

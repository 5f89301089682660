/* stages/decode/decode_opts.h - the `decode` section of the job file. */
#ifndef QUIRE_DECODE_OPTS_H
#define QUIRE_DECODE_OPTS_H

#include "stages/base/opt.h"

enum thinking_mode { THINKING_DROP, THINKING_KEEP };

struct decode_config {
    int max_tokens;
    int batch; /* sequences per step */
    double temperature, top_p, min_p, repetition_penalty;
    int top_k;
    int seed;
    struct opt_list stop;
    bool stop_repetition;
    int thinking; /* enum thinking_mode */
};

extern const struct opt decode_opts[];
extern const size_t n_decode_opts;

#endif

/* stages/chunk/chunk_opts.h - the `chunk` section of the job file. */
#ifndef QUIRE_CHUNK_OPTS_H
#define QUIRE_CHUNK_OPTS_H

#include "stages/base/opt.h"

struct chunk_config {
    int tokens;     /* 0: as many as fit into the context */
    int min_tokens; /* a shorter last chunk joins the one before it when both fit */
};

extern const struct opt chunk_opts[];
extern const size_t n_chunk_opts;

#endif

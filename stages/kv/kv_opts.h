/* stages/kv/kv_opts.h - the `kv` section of the job file. */
#ifndef QUIRE_KV_OPTS_H
#define QUIRE_KV_OPTS_H

#include "stages/base/opt.h"

struct kv_config {
    uint64_t
        memory; /* bytes of the page pool; 0: enough for decode.batch sequences of full context, capped */
    bool reuse; /* share the pages of equal prefixes */
};

extern const struct opt kv_opts[];
extern const size_t n_kv_opts;

#endif

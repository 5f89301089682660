#include "stages/kv/kv_opts.h"

#define AT(field) offsetof(struct kv_config, field)

const struct opt kv_opts[] = {
    {"memory", OPT_BYTES, AT(memory), "0", 0, 0x1p50, NULL, 0,
     "Memory of the KV page pool. 0: what decode.batch sequences need, at most half of the "
     "free memory."},
    {"reuse", OPT_BOOL, AT(reuse), "yes", 0, 0, NULL, 0,
     "Compute a prefix that requests share once. Never changes an answer."},
};
const size_t n_kv_opts = sizeof(kv_opts) / sizeof(kv_opts[0]);

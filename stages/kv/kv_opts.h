/* stages/kv/kv_opts.h - the `kv` section of the job file. */
#ifndef QUIRE_KV_OPTS_H
#define QUIRE_KV_OPTS_H

#include "stages/base/opt.h"

struct kv_config {
    uint64_t
        memory; /* bytes of the page pool; 0: enough for decode.batch full contexts, capped */
    bool reuse; /* share the pages of equal prefixes */
    char *disk; /* folder of pages, or NULL: memory only */
    uint64_t disk_limit; /* bytes of blocks that the folder may occupy */
    int codec;           /* enum codec_kind */
    int keep;            /* enum keep (store.h) */
    int ahead;           /* prompts that prefill may be ahead of decode; with a disk only */
};

extern const struct opt kv_opts[];
extern const size_t n_kv_opts;

#endif

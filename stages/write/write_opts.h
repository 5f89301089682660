/* stages/write/write_opts.h - the `write` section of the job file. */
#ifndef QUIRE_WRITE_OPTS_H
#define QUIRE_WRITE_OPTS_H

#include "stages/base/opt.h"

enum write_format { FORMAT_JSONL = 1, FORMAT_MARKDOWN = 2 };

struct write_config {
    char *to;
    struct opt_list formats;
    bool chunks;
    bool partial_ok;
};

extern const struct opt write_opts[];
extern const size_t n_write_opts;

#endif

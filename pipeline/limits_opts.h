/* pipeline/limits_opts.h - the `limits` section of the job file. */
#ifndef QUIRE_PIPELINE_LIMITS_OPTS_H
#define QUIRE_PIPELINE_LIMITS_OPTS_H

#include "stages/base/opt.h"

struct limits_config {
    uint64_t memory; /* bytes of the whole process; 0: what is free */
    int threads;     /* of the compute team; 0: as many as there are CPUs to use */
    int queue;       /* records between two stages */
    uint64_t queue_bytes;
    double drain;           /* seconds to finish what is in flight after a signal */
    char *deadline;         /* limit_values.h; NULL: none */
    double deadline_margin; /* seconds before it at which the run is to be done */
    double per_document;    /* seconds; 0: no limit */
    char *max_failures;     /* limit_values.h; NULL: no limit */
};

extern const struct opt limits_opts[];
extern const size_t n_limits_opts;

#endif

/* pipeline/run.h - one job, from its first document to its manifest.
 *
 * What:   opens what the job needs (kernels, model, chat template, page pool, output folder), starts
 *         one thread per stage, waits, and reports how it ended.
 * Not:    parses no job file (job.h), prints no usage (main.c).
 * Rules:  1. A document that fails is a record; only an error with reach JOB ends the run early.
  *         2. However it ends, threads are joined, memory is freed, and the output folder holds either
 *            the finished new results, or the whole old ones beside what the next run goes on with.
 *         3. The one exception: a stage that does not stop when it is told to cannot be freed under its
 *            thread. Then the finished records are published as after any signal, and the process ends.
 * Read:   docs/architecture.md.
 */
#ifndef QUIRE_PIPELINE_RUN_H
#define QUIRE_PIPELINE_RUN_H

#include "pipeline/job.h"
#include "pipeline/progress.h"

struct run_options {
    bool restart; /* begin anew: forget what earlier runs have done */
    bool signals; /* handle SIGINT, SIGTERM, SIGHUP for the time of the run */
    enum progress_mode progress;
    bool quiet_if_locked; /* RUN_LOCKED is not worth a line */
    int give_up_ms;       /* after a stop: how long a stage may take to notice; 0: 10 s */
};

enum run_end {
    RUN_STOPPED,     /* an error, in *e */
    RUN_FINISHED,    /* every document has its record */
    RUN_INTERRUPTED, /* a signal; the next run goes on */
    RUN_DEADLINE,    /* limits.deadline: as after a signal */
    RUN_LOCKED       /* another run holds the output folder; nothing was touched */
};

struct run_result {
    enum run_end end;
    int signal; /* RUN_INTERRUPTED: which */
    int64_t found, ok, partial,
        failed;      /* documents; found = ok + partial + failed when finished */
    int64_t kept;    /* of those, by an earlier run */
    int exit_status; /* for main: 0, 1, 2, 3, 4, 75 or 128 + signal; docs/output.md */
};

/* Runs the job. Returns 0 for every end but RUN_STOPPED, then the negative code of *e. r is always filled. */
int run_job(const struct job *job, const struct run_options *o, struct run_result *r,
            struct err *e) MUST_CHECK;

#endif

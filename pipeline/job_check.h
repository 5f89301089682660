/* pipeline/job_check.h - what no single key shows: keys that need, exclude or bound each other.
 *
 * Rules:  pure; the place of a message is the key that is wrong, or its section, or the top of the file.
 */
#ifndef QUIRE_PIPELINE_JOB_CHECK_H
#define QUIRE_PIPELINE_JOB_CHECK_H

#include "pipeline/job.h"
#include "pipeline/job_file.h"

/* Where a job came from, for messages. */
struct job_source {
    const struct job_file *file;
    const char *path;
    const char *cwd; /* base of the paths of --set */
};

/* Sets "path:line:column: message", code CONFIG, reach JOB; returns -ERR_CONFIG. */
int job_fail(const struct job_source *src, struct job_place at, struct err *e, const char *fmt,
             ...) PRINTF_LIKE(4, 5);

/* 0 or -ERR_CONFIG. All keys of j are set and inside their own ranges. */
int job_check(const struct job *j, const struct job_source *src, struct err *e) MUST_CHECK;

#endif

/* pipeline/limit_values.h - what the texts of limits.deadline and limits.max_failures mean. Pure but for the time zone. */
#ifndef QUIRE_PIPELINE_LIMIT_VALUES_H
#define QUIRE_PIPELINE_LIMIT_VALUES_H

#include "stages/base/err.h"

#include <stdint.h>
#include <time.h>

/* "06:00": the next time that the clock shows it after `now`, local time. "8h", "90m": after now. "1780000000": seconds
 * of Unix time, as SLURM_JOB_END_TIME. -ERR_CONFIG. */
int limit_deadline(const char *text, time_t now, time_t *at, struct err *e) MUST_CHECK;

/* "20": documents. "5%": of those that are done, from LIMIT_SHARE_FROM on. */
struct limit_failures {
    int64_t count; /* INT64_MAX: no limit */
    double share;  /* 1: no limit */
};
enum { LIMIT_SHARE_FROM = 20 };

/* -ERR_CONFIG. NULL is no limit. */
int limit_failures(const char *text, struct limit_failures *out, struct err *e) MUST_CHECK;
/* More than that have failed. */
bool limit_failures_passed(const struct limit_failures *l, int64_t failed, int64_t done);

#endif

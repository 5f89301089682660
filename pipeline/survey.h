/* pipeline/survey.h - how many files, and bytes, the names in ingest.from stand for, without opening one.
 *
 * Rules:  a name that is not there, and a pattern that matches nothing, are errors: a job that reads
 *         nothing is a mistake, found before the night.
 * Not:    what is inside (archives count as one file), nor the order: that is ingest.
 */
#ifndef QUIRE_PIPELINE_SURVEY_H
#define QUIRE_PIPELINE_SURVEY_H

#include "stages/base/opt.h"

struct survey {
    uint64_t files, bytes;
};

/* -ERR_CONFIG, reach JOB, with the name. */
int survey_count(struct survey *s, const struct opt_list *from, struct err *e) MUST_CHECK;

#endif

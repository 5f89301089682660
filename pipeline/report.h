/* pipeline/report.h - run.json: what a run did, for people and programs. docs/output.md has the fields. */
#ifndef QUIRE_PIPELINE_REPORT_H
#define QUIRE_PIPELINE_REPORT_H

#include "pipeline/run.h"
#include "pipeline/setup.h"
#include "stages/stats.h"
#include "stages/write/tally.h"

#include <time.h>

struct report {
    const struct job *job;
    const struct setup *setup;
    const struct run_stats *stats;
    const struct tally *tally;
    const struct run_result *result;
    const struct err *why; /* RUN_STOPPED */
    const char *resolved_job;
    struct page_stats pages;
    struct disk_stats disk; /* all 0 without setup->disk */
    int64_t run;            /* number of this run of the job, from 1 */
    time_t started, ended;
    double seconds;
    uint64_t peak_rss;    /* of this process */
    uint64_t reader_peak; /* of the largest that read documents; 0 without one */
};

/* The JSON text, indented; heap. NULL with e set. */
char *report_json(const struct report *r, struct err *e) MUST_CHECK;

#endif

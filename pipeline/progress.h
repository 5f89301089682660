/* pipeline/progress.h - how far a run is, on stderr.
 *
 *     21 %, 4 min left | 12/57 documents, 1 failed | 34/120 requests | prefill 310, decode 92 tok/s
 *
 * What:   on a terminal one line, redrawn; elsewhere a plain log line every 10 s and at the end.
 * Rules:  log lines never mix with the redrawn line: the log's hook wipes it and draws it again.
 *         The percentage is of the source's bytes; it is left out while their number is unknown.
 * Thread: start, tick and end from one thread; one at a time per process.
 */
#ifndef QUIRE_PIPELINE_PROGRESS_H
#define QUIRE_PIPELINE_PROGRESS_H

#include "stages/stats.h"

#include <stdbool.h>
#include <stddef.h>

/* The counters at one moment. */
struct progress_sample {
    int64_t us;
    int64_t found, done, failed;
    int64_t requests_made, requests_done, chunks_made;
    int64_t prefill_tokens, generated_tokens;
    int64_t bytes_read, bytes_planned;
};

enum { PROGRESS_HISTORY = 40, PROGRESS_LINE = 256 };

struct progress {
    struct run_stats *stats;
    bool enabled, terminal;
    int64_t started_us, drawn_us;
    double share;                                     /* largest so far, -1: none */
    struct progress_sample history[PROGRESS_HISTORY]; /* a ring, oldest overwritten */
    int n, at;
};

enum progress_mode {
    PROGRESS_NONE,
    PROGRESS_AUTO, /* a bar on a terminal, else lines */
    PROGRESS_BAR,
    PROGRESS_LINES,
};

void progress_start(struct progress *p, struct run_stats *stats, enum progress_mode mode);
/* Draw if it is time to. Call it about every progress_interval_ms(). */
void progress_tick(struct progress *p);
int progress_interval_ms(const struct progress *p);
/* Wipes the line, or prints the last one. */
void progress_end(struct progress *p);

/* The text, at most width columns (0: no bound), from now and an earlier sample, the share that is done, and
 * the start of the run. Pure. */
void progress_text(const struct progress_sample *now, const struct progress_sample *then,
                   double share, int64_t since, int width, char out[PROGRESS_LINE]);
/* Share of the work that is done, 0..1, or -1 while it cannot be told. Pure. */
double progress_share(const struct progress_sample *s);

#endif

/* pipeline/peaks.h - what the machine can do at most right now, on one core and on all.
 *
 * What:   times the loops of kernels/peak.h. Each thread's best turn counts, since others use the machine too;
 *         all cores are the sum of the threads while all of them work.
 * Thread: one at a time; keeps the cores busy for the time that is given.
 */
#ifndef QUIRE_PIPELINE_PEAKS_H
#define QUIRE_PIPELINE_PEAKS_H

#include "kernels/peak.h"
#include "stages/base/err.h"

struct peak {
    double one, all; /* threads */
};

struct peaks {
    struct kern_peaks loops;
    int threads;        /* all */
    struct peak floats; /* GFLOP/s */
    struct peak bytes;  /* GOP/s of multiply-adds of bytes */
    struct peak read;   /* GB/s from memory, or from caches of more than 256 MiB */
};

/* All zero, for the table of this name. */
void peaks_init(struct peaks *p, const char *table, int threads);
/* Measure for some seconds and keep what is higher than what was known. -ERR_NOMEM, reach JOB. */
int peaks_measure(struct peaks *p, double seconds, struct err *e) MUST_CHECK;

#endif

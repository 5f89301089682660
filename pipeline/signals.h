/* pipeline/signals.h - SIGINT, SIGTERM, SIGHUP and SIGUSR1 as bytes in a pipe, for the time of a run.
 *
 * What:   SIGUSR1 is what batch systems send ahead of time; SIGCONT, which some send before SIGTERM, needs nothing.
 * Rules:  the handler only writes its signal number to the pipe. SIGPIPE and SIGXFSZ are ignored meanwhile.
 * Thread: open and close from one thread; one at a time per process.
 */
#ifndef QUIRE_PIPELINE_SIGNALS_H
#define QUIRE_PIPELINE_SIGNALS_H

#include "stages/base/err.h"

/* *fd becomes readable when a signal came. */
int signals_open(int *fd, struct err *e) MUST_CHECK;
/* The next signal that came, or 0. Never waits. */
int signals_next(int fd);
/* Puts the old handlers back. -1 is fine. */
void signals_close(int fd);

#endif

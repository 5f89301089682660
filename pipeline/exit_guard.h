/* pipeline/exit_guard.h - what a library's exit() means during a run.
 *
 * What:   libgomp without memory or threads, and libarchive without memory, print a line and call exit(1). Of quire, 1
 *         says that every document has its record. Between on and off such an end is EXIT_STOPPED instead.
 * Thread: on and off from one thread; exit() may come from any.
 */
#ifndef QUIRE_PIPELINE_EXIT_GUARD_H
#define QUIRE_PIPELINE_EXIT_GUARD_H

void exit_guard_on(void);
void exit_guard_off(void);

#endif

/* stages/ingest/jail.h - what a process gives up before it reads documents.
 *
 * What:   jail_enter() takes from the calling process, for good: memory past a limit, time past what it is
 *         allowed, files, connections, other processes.
 * Rules:  1. The process keeps the descriptors it has, and can read, write and close them; it can open
 *            none, nor a socket. Files it writes to end at SPOOL_CAP.
 *         2. A system call of the list "never" (a socket, a new process, another program, a signal to
 *            another) ends the process; any other that is not needed fails with ENOSYS, so that a
 *            library that tries something new goes on without it.
 *         3. Limits of memory are not set in builds with a sanitizer, which maps terabytes.
 *         4. It ends when the process that started it ends; signals of a terminal or a scheduler do not
 *            reach it: its end is decided by who started it.
 * Thread: process-wide; from the only thread.
 * Source: seccomp(2), getrlimit(2), prctl(2).
 */
#ifndef QUIRE_INGEST_JAIL_H
#define QUIRE_INGEST_JAIL_H

#include "stages/base/mem.h"

#include <stdint.h>
#include <sys/types.h>

struct jail {
    uint64_t memory; /* address space beyond what the process has now; 0: no limit */
    pid_t parent;    /* that must be alive */
};

/* Exit statuses of a process in jail. */
enum {
    JAIL_DONE = 0,
    JAIL_NO_MEMORY = MEM_EXIT,
    JAIL_REFUSED = 72, /* it could not be confined */
    JAIL_LOST = 73,    /* it could not talk with who started it */
};

/* Returns 0, or -ERR_IO, reach JOB, when the kernel refuses one of the limits. Filters are left out where
 * jail_can_filter() is false. */
int jail_enter(const struct jail *j, struct err *e) MUST_CHECK;

/* From now on so many seconds of CPU time; past them SIGXCPU ends the process. */
void jail_allow_cpu(double seconds);

/* Can system calls be filtered here? */
bool jail_can_filter(void);

/* Closes all descriptors but the n in keep; standard input, output and error are empty then. */
int jail_close_all(const int *keep, int n, struct err *e) MUST_CHECK;

/* What a status of waitpid(2) means, for the record of a document. said: what the process left as its last
 * words, or "". */
void jail_verdict(int status, double seconds, const char *said, struct err *e);

/* For jail.c: installs the filter (jail_filter.c). Returns 0 or -1 with errno. */
int jail_filter(void);

#endif

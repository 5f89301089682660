/* stages/ingest/keeper.h - a small process that starts, ends and buries the processes which read documents.
 *
 *     run ----- control ----- keeper --fork--> reader
 *      |                                          |
 *      +------------- documents ------------------+
 *
 * What:   the run grows to gigabytes and has threads; a process forked from it late would have both. The
 *         keeper is forked before all that, stays small, and forks a reader whenever one is needed. A reader
 *         takes files (wire.h), reads them in jail (jail.h), and gives documents.
 * Not:    it sees no document and no file; who was at fault is not its business (isolate.h).
 * Rules:  1. One reader at a time. 2. Keeper and reader end with the run, however that ends.
 *         3. Neither holds a descriptor of the run that the other side might wait for: a lock, a pipe.
 * Thread: keeper_open() before the process has threads; the rest from one thread.
 */
#ifndef QUIRE_INGEST_KEEPER_H
#define QUIRE_INGEST_KEEPER_H

#include "stages/ingest/reader.h"

struct keeper;

/* read: reader_file; tests have others. */
int keeper_open(struct keeper **out, const struct ingest_config *cfg, read_file_fn *read,
                struct err *e) MUST_CHECK;
void keeper_close(struct keeper *k); /* safe on NULL */

/* Starts a reader. Returns the descriptor to talk with it, the caller's, or -ERR_IO with reach JOB. */
int keeper_start(struct keeper *k, struct err *e) MUST_CHECK;
/* Ends it, if it has not ended; *status as of waitpid(2). */
int keeper_end(struct keeper *k, int *status, struct err *e) MUST_CHECK;

/* Most memory that a reader which was ended had resident, in bytes. */
uint64_t keeper_peak(const struct keeper *k);

/* Where the reader is, or was. */
struct board *keeper_board(struct keeper *k);

/* Address space that a reader may take: ingest.memory, or what its documents need. */
uint64_t keeper_memory(const struct ingest_config *cfg);

#endif

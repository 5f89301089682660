/* stages/ingest/spool.h - temporary files without a name, for archives in which one must seek.
 *
 * What:   a stack of files: an archive inside an archive inside an archive takes one for each of them.
 * Rules:  1. A zeroed spool opens a file when it is first needed, and keeps it for the next.
 *         2. A process that may open nothing later calls spool_fill() before; then it opens none any more.
 *         3. Files have no name in the file system (TMPDIR, else /tmp): nothing is left after a crash.
 * Thread: one owner.
 */
#ifndef QUIRE_INGEST_SPOOL_H
#define QUIRE_INGEST_SPOOL_H

#include "stages/base/err.h"

#include <stdint.h>

enum { SPOOL_FILES = 20 };            /* more than ingest.max_depth can ask for */
#define SPOOL_CAP (UINT64_C(4) << 30) /* bytes of one file */

struct spool {
    int fds[SPOOL_FILES];
    int n, used;
    bool sealed;
    struct err why; /* sealed: why there are no more files */
};

/* Opens n files now, or as many as can be. */
void spool_fill(struct spool *sp, int n);

/* An empty file. The descriptor is the caller's to close; spool_put() gives the file back after that.
 * Returns the descriptor or -ERR_IO, reach DOC. */
int spool_take(struct spool *sp, struct err *e) MUST_CHECK;
void spool_put(struct spool *sp); /* the one taken last */

void spool_release(struct spool *sp); /* safe on a zeroed struct */

#endif

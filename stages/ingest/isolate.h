/* stages/ingest/isolate.h - files are read by another process; what that process does costs one document.
 *
 * What:   sends files to a reader (keeper.h), takes documents from it, watches it. A reader that crashes, takes
 *         too long, too much memory, or sends what makes no sense is ended; the next one goes on behind
 *         the place where it was, and that place becomes one failed document.
 * Rules:  1. Documents come in the order of the files and entries, each once, whatever happens to readers.
 *         2. A few files are sent ahead; their descriptors stay here until they are done.
 *         3. Time counts while the reader is waited for, not while the run is busy with what it has.
 *         4. After DEATHS readers in one file the rest of it is one failure.
 *         5. When the run is told to stop, the reader is ended, and what it was at is not a document.
 * Thread: one.
 */
#ifndef QUIRE_INGEST_ISOLATE_H
#define QUIRE_INGEST_ISOLATE_H

#include "stages/ingest/keeper.h"

struct isolate;

enum { ISOLATE_AHEAD = 8 }; /* files that are sent before they are waited for */

/* All documents of the first of the files that were sent have come. */
typedef void isolate_done_fn(void *to);

/* What a reader (reader.h) has here, too. */
struct isolate_to {
    const struct ingest_config *cfg;
    atomic_llong *bytes_read;  /* may be NULL */
    const atomic_bool *cancel; /* may be NULL */
    reader_emit_fn *emit;
    isolate_done_fn *done;
    void *to;
};

struct isolate *isolate_new(struct keeper *k, const struct isolate_to *to);
void isolate_free(struct isolate *x); /* ends the reader */

enum { ISOLATE_STOPPED = 1 }; /* told to stop */

/* Reads a file, at the latest in isolate_finish(). Takes fd; fd < 0: why it cannot be opened. known: of its documents,
 * from the first on, nobody needs so many. Returns 0, ISOLATE_STOPPED, what emit returned, or an error with reach JOB. */
int isolate_file(struct isolate *x, const struct walk_file *f, int fd, const char *why,
                 int64_t known, struct err *e) MUST_CHECK;
/* Reads all files that were sent. Returns the same. */
int isolate_finish(struct isolate *x, struct err *e) MUST_CHECK;

#endif

/* stages/ingest/walk.h - the files that `ingest.from` names, in a fixed order.
 *
 * What:   expands globs, descends into folders in the byte order of names, and shows each file once.
 * Rules:  1. In folders: names that begin with a dot are skipped, as are sockets and devices. What
 *            the job names itself is never skipped.
 *         2. Symbolic links are followed; a link to a folder that is being walked already is not.
 *         3. A file that two items of `from` lead to by the same path is shown for the first one.
 *         4. A file's name is its path from the item of `from` on: it does not change when the folder
 *            that holds the archive moves.
 *         5. The folders `skips` (write.to, kv.disk; NULL or absent: none) are left out by whatever path
 *            they are reached: what a job writes is not its input.
 *         6. A path that is absent, or a glob without a match, is -ERR_CONFIG with reach JOB.
 * Thread: one at a time.
 */
#ifndef QUIRE_INGEST_WALK_H
#define QUIRE_INGEST_WALK_H

#include "stages/base/opt.h"

#include <stdint.h>

struct walk_file {
    const char *path;
    const char *name; /* the end of path, from the last part of the item of `from` */
    uint64_t size, inode;
    int64_t mtime_ns;

    const char *bad; /* why it cannot be read (a folder that cannot be listed), or NULL */
};

/* Called for each file. Returns 0 to go on, anything else stops the walk and is returned by it. */
typedef int walk_fn(void *to, const struct walk_file *f);

enum { WALK_SKIPS = 2 };

int walk(const struct opt_list *from, const char *const skips[WALK_SKIPS], walk_fn *fn,
         void *to, struct err *e) MUST_CHECK;

#endif

/* pipeline/lock.h - one run at a time per output folder.
 *
 * What:   flock(2) on FOLDER/.lock, so the lock ends with its process and none is ever stale. The file
 *         holds pid, host and start time of the holder, for the message of the other run.
 */
#ifndef QUIRE_PIPELINE_LOCK_H
#define QUIRE_PIPELINE_LOCK_H

#include "stages/base/err.h"

#include <stddef.h>

/* Makes the folder if it is missing and takes the lock; *fd is then to be given to lock_release().
 * Returns 0; 1 when another process holds it (holder says which); -ERR_IO. */
int lock_take(const char *folder, int *fd, char *holder, size_t holder_cap,
              struct err *e) MUST_CHECK;
void lock_release(int fd); /* -1 is fine */

/* Who holds the lock, without touching it: a run that begins just now must not meet it taken by somebody who only
 * looks. True: held, and holder says by whom. */
bool lock_look(const char *folder, char *holder, size_t holder_cap);

#endif

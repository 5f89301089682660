/* stages/model/digest_cache.h - digests of model files, remembered from run to run.
 *
 * What:   hashing 8 GB takes many seconds; that a file is still the same (path, device, inode, size, both
 *         times to the nanosecond) is known in microseconds. One text file,
 *         $XDG_CACHE_HOME/quire/digests, or ~/.cache/quire/digests; a line is
 *
 *             CHECK DEV INO SIZE MTIME CTIME FILE WEIGHTS PATH
 *
 *         with numbers as 16 hexadecimal digits, digests as 64, and CHECK the start of the SHA-256 of the
 *         rest of the line.
 * Rules:  1. Only a speed-up: what is missing, unreadable, not ours, or does not check is a miss; what cannot be
 *            written is not.
 *         2. A file that changed less than two seconds before it was hashed is not remembered: a second change
 *            within the same tick of its clock would not be seen.
 *         3. Replaced whole, newest line first, the oldest of more than 256 dropped.
 * Thread: safe, between processes too: the last writer's lines stay.
 * Source: the second rule is that of git's index (its documentation, racy-git).
 */
#ifndef QUIRE_MODEL_DIGEST_CACHE_H
#define QUIRE_MODEL_DIGEST_CACHE_H

#include "stages/base/file.h"
#include "stages/base/hash.h"

struct model_digests {
    uint8_t file[HASH_BYTES]; /* all bytes */
    uint8_t
        weights[HASH_BYTES]; /* tensors by content; no other metadata, no order, no padding */
};

/* False on a miss; *out is then untouched. */
bool digest_cache_find(const char *path, const struct file_id *id, struct model_digests *out);
/* hashed_ns: when hashing began, by the clock that files are stamped with. */
void digest_cache_put(const char *path, const struct file_id *id, int64_t hashed_ns,
                      const struct model_digests *d);

#endif

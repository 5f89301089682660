/* stages/model/packed_cache.h - packed weights in a folder, from run to run.
 *
 * What:   KEY.packed, KEY in hexadecimal, holds the packed weights of a model as packed_file.h says. Mapped, they are
 *         there at once, and shared by all processes that use them; the system may drop their pages and read
 *         them again.
 * Rules:  1. Only a speed-up: a file that is missing, cut short, of another key, not ours or not to be trusted is a
 *            miss; what cannot be written is not.
 *         2. Head and sums are checked when a file is opened, and so is a sample of its blocks, or all of them when
 *            that is asked for. The rest is checked by the thread that reads ahead: what is damaged is removed, and
 *            packed_damaged() says so.
 *         3. A file is written under another name and renamed when all of it is on the disk: it is never seen half.
 *         4. After a write the files that were used longest ago go, until the folder keeps to its limit. The
 *            time of the last use is the file's own.
 * Thread: one owner; processes may share a folder.
 */
#ifndef QUIRE_MODEL_PACKED_CACHE_H
#define QUIRE_MODEL_PACKED_CACHE_H

#include "stages/base/hash.h"

#define PACKED_SUFFIX ".packed"

struct packed_map;

/* The weights of this key, `bytes` of them; NULL: a miss, for which *why has a reason (a constant) unless there is
 * no file. all: check every block before anything is used. */
struct packed_map *packed_open(const char *folder, const uint8_t key[HASH_BYTES],
                               uint64_t bytes, bool all, const char **why);
const void *packed_data(const struct packed_map *p); /* aligned to PACKED_ALIGN */
/* Start the thread that reads ahead and checks; once. */
void packed_read_ahead(struct packed_map *p);
/* Has a block turned out not to be what was written? Cheap. */
bool packed_damaged(const struct packed_map *p);
/* What lies in it cannot be: remove the file, and close. */
void packed_condemn(struct packed_map *p);
void packed_close(struct packed_map *p); /* NULL is fine */

struct packed_writer;

/* Write the file of this key, by a thread of its own, which only reads data[0, bytes): it must stay until
 * packed_write_end(). limit: most bytes of such files in the folder; 0: none. NULL: not written, and *why says why. */
struct packed_writer *packed_write(const char *folder, uint64_t limit,
                                   const uint8_t key[HASH_BYTES], const void *data,
                                   uint64_t bytes, const char **why);
/* Waits for the end. Returns true when the file is there. NULL is fine. */
bool packed_write_end(struct packed_writer *w);

#endif

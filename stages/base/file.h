/* stages/base/file.h - whole files in, whole files out, maps for reading.
 *
 * Rules:  1. file_write_atomic() leaves the old file or the new one, never a mixture: temporary
 *            file in the same folder, fsync, rename, fsync of the folder.
 *         2. Errors have reach JOB unless said otherwise; the message has the path and the reason.
 */
#ifndef QUIRE_BASE_FILE_H
#define QUIRE_BASE_FILE_H

#include "stages/base/buf.h"

#include <stdint.h>

/* Read a whole file into b (appending); more than b's cap is -ERR_LIMIT. */
int file_read(const char *path, struct buf *b, struct err *e) MUST_CHECK;

/* Replace path by n bytes with mode 0644. */
int file_write_atomic(const char *path, const void *data, size_t n, struct err *e) MUST_CHECK;

/* Write all n bytes to fd, whatever write(2) takes at a time. path is for the message. */
int file_write_all(int fd, const void *data, size_t n, const char *path,
                   struct err *e) MUST_CHECK;

/* fsync the folder that holds path, so that a rename in it is durable. */
int file_sync_parent(const char *path, struct err *e) MUST_CHECK;

/* Make a folder and its parents (mode 0755); an existing folder is fine. */
int file_make_dirs(const char *path, struct err *e) MUST_CHECK;

/* Which file, in which state: differs after a write, a replacement, or a change of its times. */
struct file_id {
    uint64_t dev, ino, size;
    int64_t mtime_ns, ctime_ns;
};
int file_id_of(const char *path, struct file_id *out, struct err *e) MUST_CHECK;
bool file_id_equal(const struct file_id *a, const struct file_id *b);

/* Open a cache of ours for reading: a plain file of this user that nobody else may write. Its size in *size. -1 when it
 * is absent (*why NULL) or not that (*why says what it is). */
int file_open_own(const char *path, uint64_t *size, const char **why) MUST_CHECK;

/* A read-only map of a file. An empty file has data "" and len 0. */
struct file_map {
    const unsigned char *data;
    size_t len;
    struct file_id id; /* when it was mapped */
};
int file_map_open(struct file_map *m, const char *path, struct err *e) MUST_CHECK;
void file_map_close(struct file_map *m); /* safe on a zeroed struct */

/* folder/name as a heap string (free() it); an absolute name stays as it is. "~/" is $HOME. */
char *file_join(const char *folder, const char *name);
/* The folder part of path as a heap string, "." when there is none. */
char *file_parent(const char *path);

/* $XDG_CACHE_HOME/quire, or ~/.cache/quire, as a heap string; NULL when there is no such place. */
char *file_cache_folder(void);

#endif

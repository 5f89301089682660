/* The folder itself: made, locked, made anew when it was deleted; when writing stops; and the file of uses. */
#include "stages/kv/disk_inner.h"

#include "stages/base/clock.h"
#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    USES_FILE_CAP = 128 << 20,
    LOCK_PAUSE_NS = 1000000,
    LOCK_PATIENCE_US = 10000000,
};

uint32_t disk_now(void)
{
    return (uint32_t)time(NULL);
}

void disk_fail(struct disk *d, const char *what)
{
    int why = errno;
    pthread_mutex_lock(&d->table);
    bool was = d->st.writing;
    d->st.writing = false;
    pthread_mutex_unlock(&d->table);
    if (was)
        log_warn("kv", "%s: %s; from now on pages are read, not kept folder=%s", what,
                 strerror(why), d->folder);
}

bool disk_is_writing(struct disk *d)
{
    pthread_mutex_lock(&d->table);
    bool writing = d->st.writing;
    pthread_mutex_unlock(&d->table);
    return writing;
}

/* ---- folder and lock ---- */

int folder_open_lock(int dir)
{
    return openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
}

int folder_open(const struct disk_options *o)
{
    struct err ignored = {0}; /* errno says it */
    int why = !o->read_only && mkdir(o->folder, 0700) != 0 ? errno : 0;
    if (why == ENOENT) {
        char *parent = file_parent(o->folder);
        why = file_make_dirs(parent, &ignored) == 0 && mkdir(o->folder, 0700) == 0 ? 0 : errno;
        free(parent);
    }
    int dir = open(o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && errno == ENOENT && why)
        errno = why; /* why it is not there */
    return dir;
}

/* Are the folder and the lock that we hold those that others find? */
static bool lock_is_current(struct disk *d)
{
    struct stat path, held, dir;
    return stat(d->folder, &path) == 0 && fstat(d->dir, &dir) == 0 &&
           path.st_ino == dir.st_ino && path.st_dev == dir.st_dev &&
           fstatat(d->dir, "lock", &path, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(d->lock, &held) == 0 && path.st_ino == held.st_ino &&
           path.st_dev == held.st_dev;
}

/* The folder, or its lock, was deleted while we had it open: begin anew. */
static bool reopen(struct disk *d)
{
    int dir = folder_open(&d->o), lock = dir < 0 ? -1 : folder_open_lock(dir);
    if (lock < 0) {
        if (dir >= 0)
            close(dir);
        return false;
    }
    segs_release(d);
    run_end(d);
    pthread_mutex_lock(&d->table);
    close(d->dir);
    close(d->lock);
    d->dir = dir;
    d->lock = lock;
    pthread_mutex_unlock(&d->table);
    segs_load(d);
    return true;
}

/* A holder writes one record, and is gone. One that was stopped in the middle is not waited for: pages are worth
 * less than time. */
static int flock_wait(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    int64_t begin = clock_us();
    int rc;
    while ((rc = flock(fd, LOCK_EX | LOCK_NB)) != 0 &&
           (errno == EINTR || errno == EWOULDBLOCK) && clock_us() - begin < LOCK_PATIENCE_US)
        nanosleep(&pause, NULL);
    if (rc != 0 && errno == EWOULDBLOCK)
        errno = ETIMEDOUT;
    return rc;
}

bool disk_lock(struct disk *d)
{
    if (!disk_is_writing(d))
        return false;
    for (int tries = 0;; tries++) {
        if (flock_wait(d->lock) != 0) {
            disk_fail(d, "cannot take the lock (another process that is stopped may hold it)");
            return false;
        }
        if (lock_is_current(d))
            break;
        if (tries == 3 || !reopen(d)) {
            disk_fail(d, "it was deleted, and cannot be made again");
            return false;
        }
    }
    segs_refresh(d, true);
    if (disk_is_writing(d))
        return true;
    flock(d->lock, LOCK_UN);
    return false;
}

void disk_unlock(struct disk *d)
{
    if (disk_is_writing(d))
        evict_tell(d);
    d->n_notices = 0;
    segs_drop_dead(d);
    flock(d->lock, LOCK_UN);
}

/* ---- the history ---- */

void folder_read_uses(struct disk *d, bool earlier)
{
    struct buf b;
    struct err e = {0};
    struct stat st;
    buf_init(&b, USES_FILE_CAP);
    int fd = openat(d->dir, "uses", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    char *room = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
                         st.st_size < USES_FILE_CAP
                     ? buf_room(&b, (size_t)st.st_size, &e)
                     : NULL;
    if (room) {
        struct iovec iov = {room, (size_t)st.st_size};
        long n = sys_read_at(fd, &iov, 1, 0);
        pthread_mutex_lock(&d->table);
        if (n > 0)
            uses_merge(&d->uses, (const uint8_t *)room, (size_t)n, earlier);
        pthread_mutex_unlock(&d->table);
    }
    if (fd >= 0)
        close(fd);
    buf_release(&b);
}

void folder_save_uses(struct disk *d)
{
    struct buf b;
    struct err e = {0};
    pthread_mutex_lock(&d->table);
    bool changed = d->uses.changed;
    pthread_mutex_unlock(&d->table);
    if (!changed || !disk_lock(d))
        return;
    folder_read_uses(d, false);
    buf_init(&b, USES_FILE_CAP);
    pthread_mutex_lock(&d->table);
    int rc = uses_print(&d->uses, &b, &e);
    d->uses_saved = disk_now();
    pthread_mutex_unlock(&d->table);
    int fd =
        rc ? -1
           : openat(d->dir, "uses.new",
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd >= 0) {
        struct iovec iov = {b.data, b.len};
        bool ok = sys_write_at(fd, &iov, 1, 0) == 0 && sys_fdatasync(fd) == 0;
        close(fd);
        if (!ok || renameat(d->dir, "uses.new", d->dir, "uses") != 0)
            unlinkat(d->dir, "uses.new", 0); /* its loss is harmless */
    }
    buf_release(&b);
    disk_unlock(d);
}

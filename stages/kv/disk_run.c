/* Which runs are alive: each that writes ephemeral records holds a lock on a file <name>.run of its own as long
 * as it lives, so that any process can ask, also from another container, where process ids mean nothing.
 */
#include "stages/kv/disk_inner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUN_NAME_CAP = 24 };

static void file_of(uint64_t name, char out[RUN_NAME_CAP])
{
    snprintf(out, RUN_NAME_CAP, "%016" PRIx64 ".run", name);
}

uint64_t run_name(struct disk *d)
{
    char file[RUN_NAME_CAP];
    uint64_t name;
    if (d->run)
        return d->run;
    if (getrandom(&name, sizeof(name), 0) != (ssize_t)sizeof(name) || name == 0)
        return 0;
    file_of(name, file);
    int fd = openat(d->dir, file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return 0;
    /* Before it was locked another process may have taken it for a dead run's and unlinked it. */
    struct stat mine, there;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &mine) != 0 ||
        fstatat(d->dir, file, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
        there.st_ino != mine.st_ino) {
        close(fd);
        unlinkat(d->dir, file, 0);
        return 0; /* the next record asks again */
    }
    d->run_fd = fd;
    return d->run = name;
}

bool run_is_alive(struct disk *d, uint64_t name)
{
    char file[RUN_NAME_CAP];
    if (name == 0)
        return false; /* it had no name to be asked by */
    if (name == d->run)
        return true;
    file_of(name, file);
    int fd = openat(d->dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool alive = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!alive)
        unlinkat(d->dir, file, 0);
    close(fd);
    return alive;
}

void run_end(struct disk *d)
{
    char file[RUN_NAME_CAP];
    if (!d->run)
        return;
    file_of(d->run, file);
    unlinkat(d->dir, file, 0);
    close(d->run_fd);
    d->run = 0;
}

void run_sweep(struct disk *d)
{
    int fd = openat(d->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *x; (x = readdir(dir)) != NULL;)
        if (strlen(x->d_name) == 20 && strcmp(x->d_name + 16, ".run") == 0 &&
            strspn(x->d_name, "0123456789abcdef") == 16)
            run_is_alive(d, strtoull(x->d_name, NULL, 16));
    closedir(dir);
}

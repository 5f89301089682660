#include "pipeline/lock.h"

#include "stages/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { SIGNED_TRIES = 25, SIGNED_WAIT_NS = 10000000 };

static void sign(int fd)
{
    char host[128] = "", when[32] = "", line[256];
    struct tm tm;
    time_t now = time(NULL);
    gethostname(host, sizeof(host) - 1);
    if (gmtime_r(&now, &tm))
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    int n =
        snprintf(line, sizeof(line), "pid %ld on %s since %s\n", (long)getpid(), host, when);
    /* For people only: a lock that could not be signed is still a lock. */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, line, (size_t)n, 0) < 0)
        (void)0;
}

/* The line may be missing yet, or be that of a holder before: that process is gone, or this host has another name. */
static bool is_signed(const char *line)
{
    long pid;
    char host[128], own[128] = "";
    gethostname(own, sizeof(own) - 1);
    if (sscanf(line, "pid %ld on %127s since", &pid, host) != 2 || pid < 1)
        return false;
    return strcmp(host, own) != 0 || kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

/* The holder signs right after it took the lock. One that is stopped in between is not waited for. */
static void read_holder(int fd, char *holder, size_t cap)
{
    for (int i = 0; i < SIGNED_TRIES; i++) {
        ssize_t n = pread(fd, holder, cap - 1, 0);
        holder[n > 0 ? n : 0] = '\0';
        holder[strcspn(holder, "\n")] = '\0';
        if (is_signed(holder))
            return;
        nanosleep(&(struct timespec){.tv_nsec = SIGNED_WAIT_NS}, NULL);
    }
    snprintf(holder, cap, "another process");
}

int lock_take(const char *folder, int *fd, char *holder, size_t holder_cap, struct err *e)
{
    *fd = -1;
    int rc = file_make_dirs(folder, e);
    if (rc)
        return rc;
    char *path = file_join(folder, ".lock");
    int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (f < 0) {
        rc = err_set(e, REACH_JOB, ERR_IO, "cannot open \"%s\": %s", path, strerror(errno));
    } else if (flock(f, LOCK_EX | LOCK_NB) == 0) {
        sign(f);
        *fd = f;
    } else if (errno == EWOULDBLOCK) {
        read_holder(f, holder, holder_cap);
        rc = 1;
    } else {
        rc = err_set(e, REACH_JOB, ERR_IO, "cannot lock \"%s\": %s", path, strerror(errno));
    }
    if (rc && f >= 0)
        close(f);
    free(path);
    return rc;
}

/* A line of /proc/locks, "1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE ...", about this file? Some file systems have
 * other device numbers there than stat(2) gives; then the holder's signature decides. */
static bool is_lock_of(const char *line, const struct stat *st, long signer)
{
    long pid;
    unsigned major_no, minor_no;
    unsigned long long inode;
    if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%llu", &pid, &major_no, &minor_no, &inode) !=
            4 ||
        inode != st->st_ino)
        return false;
    return (major_no == major(st->st_dev) && minor_no == minor(st->st_dev)) || pid == signer;
}

bool lock_look(const char *folder, char *holder, size_t cap)
{
    struct stat st;
    long signer = -1;
    bool held = false;
    char line[256], *path = file_join(folder, ".lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    free(path);
    if (fd < 0)
        return false;
    ssize_t n = pread(fd, holder, cap - 1, 0);
    holder[n > 0 ? n : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    if (sscanf(holder, "pid %ld on", &signer) != 1)
        snprintf(holder, cap, "another process");
    FILE *locks = fstat(fd, &st) == 0 ? fopen("/proc/locks", "re") : NULL;
    while (locks && !held && fgets(line, sizeof(line), locks))
        held = is_lock_of(line, &st, signer);
    if (locks)
        fclose(locks);
    close(fd);
    return held;
}

void lock_release(int fd)
{
    if (fd >= 0)
        close(fd);
}

#include "stages/ingest/jail.h"

#include "stages/ingest/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_FILES = 64, NO_MEMORY_SHARE = 2 };

/* ---- memory ---- */

static int statm_fd = -1;      /* /proc/self/statm: nothing can be opened later */
static uint64_t memory_before; /* address space when the limit was set */
static uint64_t memory_limit;

/* 0 with errno when it is not known. */
static uint64_t address_space(void)
{
    char text[128];
    ssize_t n;
    do
        n = pread(statm_fd, text, sizeof(text) - 1, 0);
    while (n < 0 && errno == EINTR);
    uint64_t pages = 0;
    for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        pages = pages * 10 + (uint64_t)(text[i] - '0');
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A library that is refused memory may see no other way than abort(). With much of the limit in use
 * that is what has happened. */
static void on_abort(int sig)
{
    if (memory_limit && address_space() - memory_before > memory_limit / NO_MEMORY_SHARE)
        _exit(JAIL_NO_MEMORY);
    signal(sig, SIG_DFL);
    raise(sig);
}

static int limit(int what, rlim_t value, const char *name, struct err *e)
{
    struct rlimit l = {value, value}, now;
    if (getrlimit((__rlimit_resource_t)what, &now) == 0 && now.rlim_max < value)
        l.rlim_cur = l.rlim_max = now.rlim_max; /* stricter already */
    if (setrlimit((__rlimit_resource_t)what, &l) == 0)
        return 0;
    return err_set(e, REACH_JOB, ERR_IO, "%s cannot be limited: %s", name, strerror(errno));
}

static int limit_memory(uint64_t bytes, struct err *e)
{
    errno = EIO; /* what a file without a number comes to */
    statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    memory_before = statm_fd < 0 ? 0 : address_space();
    int why = errno;
#ifdef SANITIZED
    bytes = 0;
#endif
    memory_limit = bytes;
    if (!bytes)
        return 0;
    if (memory_before == 0)
        return err_set(e, REACH_JOB, ERR_IO, "/proc/self/statm: cannot be read: %s",
                       strerror(why));
    return limit(RLIMIT_AS, memory_before + bytes, "memory", e);
}

/* ---- time ---- */

void jail_allow_cpu(double seconds)
{
    static time_t last;
    struct timespec used;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0)
        return;
    /* Whole seconds: one more for the one that has begun. Set only when it changes. */
    time_t until = used.tv_sec + (time_t)seconds + 2;
    if (until == last)
        return;
    last = until;
    struct rlimit l = {(rlim_t)until, RLIM_INFINITY};
    setrlimit(RLIMIT_CPU, &l);
}

/* ---- the rest ---- */

static bool is_kept(int fd, const int *keep, int n)
{
    for (int i = 0; i < n; i++)
        if (keep[i] == fd)
            return true;
    return false;
}

int jail_close_all(const int *keep, int n, struct err *e)
{
    int nothing = open("/dev/null", O_RDWR);
    if (nothing < 0)
        return err_set(e, REACH_JOB, ERR_IO, "/dev/null: %s", strerror(errno));
    for (int fd = 0; fd <= 2; fd++)
        if (!is_kept(fd, keep, n))
            dup2(nothing, fd);
    struct rlimit l;
    int most =
        getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < 1 << 16 ? (int)l.rlim_cur : 1 << 16;
    int from = 3;
    for (int fd = from; fd < most; fd++) {
        if (!is_kept(fd, keep, n))
            continue;
        if (fd > from)
            syscall(__NR_close_range, from, fd - 1, 0);
        from = fd + 1;
    }
    if (syscall(__NR_close_range, from, ~0u, 0) != 0) /* before Linux 5.9 */
        for (int fd = 3; fd < most; fd++)
            if (!is_kept(fd, keep, n))
                close(fd);
    return 0;
}

static void quiet_signals(void)
{
    static const int ignored[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGTSTP,
                                  SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2, SIGALRM};
    sigset_t none;
    sigemptyset(&none);
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
#ifndef SANITIZED /* whose report these cause */
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < ARRAY_LEN(crashes); i++)
        signal(crashes[i], SIG_DFL);
#endif
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int jail_enter(const struct jail *j, struct err *e)
{
    quiet_signals();
    signal(SIGABRT, on_abort);
    setpgid(0, 0); /* signals to the group of the run are not for it */
    prctl(PR_SET_NAME, "quire-reader", 0, 0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != j->parent)
        return err_set(e, REACH_JOB, ERR_IO, "the process that started this one has ended");
    int rc = limit_memory(j->memory, e);
    if (!rc)
        rc = limit(RLIMIT_FSIZE, SPOOL_CAP, "the size of files", e);
    if (!rc)
        rc = limit(RLIMIT_CORE, 0, "core files", e);
    if (!rc)
        rc = limit(RLIMIT_NOFILE, OPEN_FILES, "descriptors", e);
    if (!rc && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        rc =
            err_set(e, REACH_JOB, ERR_IO, "privileges cannot be given up: %s", strerror(errno));
    if (!rc && jail_can_filter() && jail_filter() != 0)
        rc = err_set(e, REACH_JOB, ERR_IO, "system calls cannot be filtered: %s",
                     strerror(errno));
    return rc;
}

void jail_verdict(int status, double seconds, const char *said, struct err *e)
{
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == JAIL_NO_MEMORY)
        err_set(e, REACH_DOC, ERR_NOMEM, "needs more memory than ingest.memory allows");
    else if (code == JAIL_LOST)
        err_set(e, REACH_DOC, ERR_IO, "its reader lost its connection: %s", said);
    else if (sig == SIGXCPU)
        err_set(e, REACH_DOC, ERR_LIMIT, "not read after %g s of CPU time (ingest.timeout)",
                seconds);
    else if (sig == SIGSYS)
        err_set(e, REACH_DOC, ERR_BUG,
                "its reader was stopped at a system call that reading does not need");
    else if (sig == SIGKILL)
        err_set(
            e, REACH_DOC, ERR_IO,
            "its reader was killed from outside (signal 9: by hand, or for want of memory)");
    else if (sig)
        err_set(e, REACH_DOC, ERR_BUG, "its reader crashed (signal %d, %s)", sig,
                strsignal(sig));
    else
        err_set(e, REACH_DOC, ERR_BUG, "its reader ended with status %d", code);
}

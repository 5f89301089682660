#include "pipeline/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ};
enum { IGNORED_FROM = 4 }; /* a closed pipe, a file at its limit: write(2) says so */
static struct sigaction before[ARRAY_LEN(caught)];
static volatile sig_atomic_t write_end = -1;

static void handler(int sig)
{
    int saved = errno;
    unsigned char byte = (unsigned char)sig;
    ssize_t n = write(write_end, &byte, 1); /* full pipe: enough signals are waiting in it */
    (void)n;
    errno = saved;
}

int signals_open(int *fd, struct err *e)
{
    int ends[2];
    *fd = -1;
    if (pipe(ends) != 0)
        return err_set(e, REACH_JOB, ERR_IO, "cannot make a pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    write_end = ends[1];
    for (size_t i = 0; i < ARRAY_LEN(caught); i++) {
        struct sigaction sa = {.sa_flags = SA_RESTART};
        sa.sa_handler = i >= IGNORED_FROM ? SIG_IGN : handler;
        sigemptyset(&sa.sa_mask);
        sigaction(caught[i], NULL, &before[i]);
        /* nohup(1) set SIGHUP to be ignored: it stays so. */
        if (caught[i] != SIGHUP || before[i].sa_handler != SIG_IGN)
            sigaction(caught[i], &sa, NULL);
    }
    *fd = ends[0];
    return 0;
}

int signals_next(int fd)
{
    unsigned char byte;
    return fd >= 0 && read(fd, &byte, 1) == 1 ? byte : 0;
}

void signals_close(int fd)
{
    if (fd < 0)
        return;
    for (size_t i = 0; i < ARRAY_LEN(caught); i++)
        sigaction(caught[i], &before[i], NULL);
    close(write_end);
    write_end = -1;
    close(fd);
}

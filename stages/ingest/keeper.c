#include "stages/ingest/keeper.h"

#include "stages/base/mem.h"
#include "stages/ingest/jail.h"
#include "stages/ingest/libraries.h"
#include "stages/ingest/read_worker.h"
#include "stages/ingest/text_out.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* A dictionary of zstd or xz at its largest common setting, an inner archive beside it, and what
     * libraries keep. */
    DECODERS = 192 << 20,
    COPIES = 4, /* of a document: its bytes, as UTF-8, its text, and what a parser has open */
};

struct keeper {
    pid_t pid;
    int fd; /* control */
    struct board *board;
    uint64_t peak;
};

/* ---- control messages ---- */

enum order { ORDER_START = 1, ORDER_END = 2 };

/* Two integers, and a descriptor unless fd < 0. */
struct note {
    int value;
    long peak_kib;
};

static bool send_one(int to, struct note note, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {&note, sizeof(note)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    }
    ssize_t n;
    do
        n = sendmsg(to, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(note);
}

static bool receive_one(int from, struct note *note, int *fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {note, sizeof(*note)};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    ssize_t n;
    do
        n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    *fd = -1;
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), sizeof(int));
    return n == (ssize_t)sizeof(*note);
}

/* ---- the keeper's own process ---- */

struct home {
    int fd; /* control */
    const struct ingest_config *cfg;
    read_file_fn *read;
    struct board *board;
    struct spool spool;
};

static int be_reader(struct home *h, int fd, pid_t parent)
{
    struct err e = {0};
    int keep[SPOOL_FILES + 2] = {fd}, n = 1;
    for (int i = 0; i < h->spool.n; i++)
        keep[n++] = h->spool.fds[i];
#ifdef SANITIZED
    keep[n++] = STDERR_FILENO; /* what the sanitizer has to say */
#endif
    struct jail j = {.memory = keeper_memory(h->cfg), .parent = parent};
    if (jail_close_all(keep, n, &e) != 0 || jail_enter(&j, &e) != 0) {
        board_say(h->board, e.msg);
        return JAIL_REFUSED;
    }
    return read_worker(fd, h->board, h->cfg, &h->spool, h->read);
}

/* Answers with the descriptor, or with an errno. */
static pid_t start_reader(struct home *h)
{
    int ends[2];
    pid_t self = getpid(), pid = -1;
    board_clear(h->board); /* what a reader left there */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        send_one(h->fd, (struct note){errno, 0}, -1);
        return -1;
    }
    pid = fork();
    if (pid == 0)
        _exit(be_reader(h, ends[1], self));
    int why = pid < 0 ? errno : 0;
    close(ends[1]);
    send_one(h->fd, (struct note){why, 0}, pid < 0 ? -1 : ends[0]);
    close(ends[0]);
    return pid;
}

static struct note end_reader(pid_t pid)
{
    struct rusage used = {0};
    int status = 0;
    if (pid <= 0)
        return (struct note){0};
    kill(pid, SIGKILL); /* one that has ended keeps the status it ended with */
    while (wait4(pid, &status, 0, &used) < 0 && errno == EINTR)
        ;
    return (struct note){status, used.ru_maxrss};
}

static void keep_house(struct home *h, pid_t parent)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE};
    struct err e = {0};
    struct libraries l;
    pid_t reader = -1;
    struct note order;
    int none;
    setpgid(0, 0);
    prctl(PR_SET_NAME, "quire-keeper", 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    libraries_enter(&l);
    int keep[] = {h->fd, STDERR_FILENO}; /* it may have to say that there is no memory */
    if (getppid() != parent)
        _exit(JAIL_REFUSED);
    if (jail_close_all(keep, 2, &e) != 0) {
        board_say(h->board, e.msg);
        _exit(JAIL_REFUSED);
    }
    spool_fill(&h->spool, h->cfg->max_depth + 2);
    libraries_load();
    while (receive_one(h->fd, &order, &none)) {
        if (order.value == ORDER_START) {
            reader = start_reader(h);
        } else {
            send_one(h->fd, end_reader(reader), -1);
            reader = -1;
        }
    }
    end_reader(reader);
    _exit(JAIL_DONE);
}

/* ---- the run's side ---- */

uint64_t keeper_memory(const struct ingest_config *cfg)
{
    uint64_t n = cfg->max_document;
    return cfg->memory ? cfg->memory : COPIES * n + 2 * text_blocks_bytes((size_t)n) + DECODERS;
}

int keeper_open(struct keeper **out, const struct ingest_config *cfg, read_file_fn *read,
                struct err *e)
{
    int ends[2];
    *out = NULL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return err_set(e, REACH_JOB, ERR_IO, "cannot make a socket: %s", strerror(errno));
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t self = getpid(), pid = -1;
    if (board != MAP_FAILED)
        pid = fork();
    if (pid == 0) {
        struct home h = {.fd = ends[1], .cfg = cfg, .read = read, .board = board};
        keep_house(&h, self);
    }
    int why = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        if (board != MAP_FAILED)
            munmap(board, sizeof(*board));
        return err_set(e, REACH_JOB, ERR_NOMEM, "cannot start a process to read documents: %s",
                       strerror(why));
    }
    struct keeper *k = mem_need(sizeof(*k));
    *k = (struct keeper){pid, ends[0], board, 0};
    *out = k;
    return 0;
}

void keeper_close(struct keeper *k)
{
    if (!k)
        return;
    close(k->fd); /* it ends its reader and then itself */
    while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    munmap(k->board, sizeof(*k->board));
    free(k);
}

/* It does not answer. Why? */
static int gone(const struct keeper *k, struct err *e)
{
    int status = 0;
    char why[160] = "it does not answer";
    shutdown(k->fd, SHUT_RDWR); /* ends it if it has not ended */
    while (waitpid(k->pid, &status, 0) < 0 && errno == EINTR)
        ;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : JAIL_DONE;
    if (WIFSIGNALED(status))
        snprintf(why, sizeof(why), "signal %d, %s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (code == JAIL_NO_MEMORY)
        snprintf(why, sizeof(why), "out of memory");
    else if (code == JAIL_REFUSED)
        board_said(k->board, why, sizeof(why));
    else if (code != JAIL_DONE)
        snprintf(why, sizeof(why), "status %d", code);
    return err_set(e, REACH_JOB, code == JAIL_NO_MEMORY ? ERR_NOMEM : ERR_IO,
                   "the process that starts readers of documents has ended: %s", why);
}

int keeper_start(struct keeper *k, struct err *e)
{
    struct note answer;
    int fd;
    if (!send_one(k->fd, (struct note){ORDER_START, 0}, -1) ||
        !receive_one(k->fd, &answer, &fd))
        return gone(k, e);
    if (fd < 0)
        return err_set(e, REACH_JOB, ERR_NOMEM, "cannot start a process to read documents: %s",
                       strerror(answer.value));
    return fd;
}

int keeper_end(struct keeper *k, int *status, struct err *e)
{
    struct note answer;
    int none;
    if (!send_one(k->fd, (struct note){ORDER_END, 0}, -1) ||
        !receive_one(k->fd, &answer, &none))
        return gone(k, e);
    *status = answer.value;
    uint64_t peak = (uint64_t)answer.peak_kib * 1024;
    k->peak = peak > k->peak ? peak : k->peak;
    return 0;
}

uint64_t keeper_peak(const struct keeper *k)
{
    return k->peak;
}

struct board *keeper_board(struct keeper *k)
{
    return k->board;
}

#define _GNU_SOURCE /* fallocate() */
#include "stages/base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_uint fail_ops;
static atomic_long fail_in;
static atomic_int fail_how;

void sys_fail_after(unsigned ops, long k, int how)
{
    atomic_store(&fail_how, how);
    atomic_store(&fail_in, k);
    atomic_store(&fail_ops, k > 0 ? ops : 0);
}

/* How this call goes wrong; 0: it does not. */
static int fault(enum sys_op op)
{
    if (!(atomic_load_explicit(&fail_ops, memory_order_relaxed) & op))
        return 0;
    return atomic_fetch_sub(&fail_in, 1) <= 1 ? atomic_load(&fail_how) : 0;
}

/* True when the call fails before it does anything. */
static bool fails(int how)
{
    if (how == SYS_DIE)
        raise(SIGKILL);
    if (how > 0)
        errno = how;
    return how > 0;
}

/* Cut the first iovec to its first half and leave out the others. */
static void halve(struct iovec *iov, int *n)
{
    *n = 1;
    iov->iov_len -= iov->iov_len / 2;
}

/* Move past `done` bytes. */
static void advance(struct iovec **iov, int *n, size_t done)
{
    while (*n > 0 && done >= (*iov)->iov_len) {
        done -= (*iov)->iov_len;
        ++*iov;
        --*n;
    }
    if (*n > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + done;
        (*iov)->iov_len -= done;
    }
}

long sys_read_at(int fd, struct iovec *iov, int n, uint64_t at)
{
    long total = 0;
    int how = fault(SYS_READ);
    if (fails(how))
        return -1;
    for (;;) {
        advance(&iov, &n, 0);
        if (n == 0)
            return total;
        struct iovec first = *iov;
        ssize_t got;
        if (how == SYS_SHORT) {
            int one = 1;
            halve(&first, &one);
            got = preadv(fd, &first, one, (off_t)at);
        } else {
            got = preadv(fd, iov, n, (off_t)at);
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -1 : total;
        total += got;
        at += (uint64_t)got;
        advance(&iov, &n, (size_t)got);
    }
}

int sys_write_at(int fd, struct iovec *iov, int n, uint64_t at)
{
    int how = fault(SYS_WRITE);
    if (how > 0) {
        errno = how;
        return -1;
    }
    for (;;) {
        advance(&iov, &n, 0);
        if (n == 0)
            return 0;
        struct iovec first = *iov;
        ssize_t put;
        if (how) {
            int one = 1;
            halve(&first, &one);
            put = pwritev(fd, &first, one, (off_t)at);
        } else {
            put = pwritev(fd, iov, n, (off_t)at);
        }
        if (how == SYS_DIE)
            raise(SIGKILL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        if (put == 0) {
            errno = ENOSPC;
            return -1;
        }
        at += (uint64_t)put;
        advance(&iov, &n, (size_t)put);
    }
}

long sys_read(int fd, void *to, size_t n)
{
    ssize_t got;
    if (fails(fault(SYS_READ)))
        return -1;
    do
        got = read(fd, to, n);
    while (got < 0 && errno == EINTR);
    return got;
}

int sys_fsync(int fd)
{
    if (fails(fault(SYS_SYNC)))
        return -1;
    int rc;
    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

int sys_fdatasync(int fd)
{
    if (fails(fault(SYS_SYNC)))
        return -1;
    int rc;
    do
        rc = fdatasync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

int sys_truncate(int fd, uint64_t size)
{
    if (fails(fault(SYS_TRUNCATE)))
        return -1;
    int rc;
    do
        rc = ftruncate(fd, (off_t)size);
    while (rc != 0 && errno == EINTR);
    return rc;
}

int sys_punch(int fd, uint64_t at, uint64_t n)
{
    if (fails(fault(SYS_PUNCH)))
        return -1;
    int rc;
    do
        rc = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n);
    while (rc != 0 && errno == EINTR);
    return rc;
}

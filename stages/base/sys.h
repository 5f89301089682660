/* stages/base/sys.h - the system calls that a store makes on its files, and faults in them for tests.
 *
 * What:   each goes on after EINTR; reads and writes also after short counts, until all is done.
 * Rules:  1. They return 0 and set errno, as the calls behind them do, unless said otherwise.
 *         2. sys_fail_after() is for tests; without it nothing here costs more than the call itself.
 * Thread: safe.
 */
#ifndef QUIRE_BASE_SYS_H
#define QUIRE_BASE_SYS_H

#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Read into iov[0, n) from `at`. Returns the bytes read, fewer than asked only at the end of the file; -1. */
long sys_read_at(int fd, struct iovec *iov, int n, uint64_t at) MUST_CHECK;
/* As read(2) and fsync(2), again after EINTR. */
long sys_read(int fd, void *to, size_t n) MUST_CHECK;
int sys_fsync(int fd) MUST_CHECK;
/* Write all of iov[0, n) at `at`; the iovecs are used up. -1: some of it may be there. */
int sys_write_at(int fd, struct iovec *iov, int n, uint64_t at) MUST_CHECK;
int sys_fdatasync(int fd) MUST_CHECK;
int sys_truncate(int fd, uint64_t size) MUST_CHECK;
/* Give the blocks inside [at, at + n) back; the size of the file stays. */
int sys_punch(int fd, uint64_t at, uint64_t n) MUST_CHECK;

enum sys_op { SYS_READ = 1, SYS_WRITE = 2, SYS_SYNC = 4, SYS_TRUNCATE = 8, SYS_PUNCH = 16 };
/* Instead of an errno: each call moves half of the bytes only; or half of them, and then kill -9. */
enum { SYS_SHORT = -1, SYS_DIE = -2 };

/* The k-th call of one of ops (enum sys_op, or-ed) from now on, and all after it, go wrong: they fail with errno
 * `how`, or as SYS_SHORT or SYS_DIE say. k = 0 switches it off. */
void sys_fail_after(unsigned ops, long k, int how);

#endif

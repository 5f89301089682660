/* tests/faults/shim.c - makes calls of the C library fail, for tests: LD_PRELOAD=libshim.so quire run ...
 *
 *     QUIRE_FAULTS="alloc:17"                     the 17th allocation gives NULL
 *     QUIRE_FAULTS="write:5+:ENOSPC"              the 5th write and all after it fail with ENOSPC
 *     QUIRE_FAULTS="write:1+:EIO:*.jsonl.partial" those on files of such a name
 *     QUIRE_FAULTS="read:3/7:EINTR;write:1/2:short"   the 3rd and every 7th after it; half of the bytes only
 *
 * What:   rules OP:WHICH[:HOW[:PATTERN]], separated by ';'. OP is one of ops[] below. HOW is the name of an errno,
 *         or `short`; without it the usual one. A rule with a pattern counts the calls whose file matches it (fnmatch
 *         of the whole path, where * also matches '/'), any other counts all of its OP.
 *         QUIRE_FAULTS_COUNTS=FILE: counts of calls are kept in FILE, shared by all processes that descend from
 *         the first, valid however they end: uint64 for each of ops[], then the number of calls that failed.
 *         QUIRE_FAULTS_EARLY=1: calls before main() count, too (those of constructors).
 * Not:    calls that the C library makes inside itself (the mmap of malloc, the write of printf) are not seen.
 * Rules:  1. An eventfd and standard error do not count: the one cannot fail, the other is how a test hears of it.
 *         2. free() is not replaced: what calls reach is the next allocator in order, which may be a sanitizer's.
 *            With gcc's asan the shim comes first and ASAN_OPTIONS has verify_asan_link_order=0.
 * Thread: any.
 * Source: the idea of failing calls by file name: jq's tests/inject_errors.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum op {
    OP_ALLOC,
    OP_READ,
    OP_WRITE,
    OP_SYNC,
    OP_RENAME,
    OP_TRUNCATE,
    OP_FALLOCATE,
    OP_OPEN,
    OP_MMAP,
    OP_THREAD,
    OP_COUNT
};

static const struct {
    const char *name;
    int usual; /* errno, when a rule names none */
} ops[OP_COUNT] = {
    [OP_ALLOC] = {"alloc", ENOMEM},      [OP_READ] = {"read", EIO},
    [OP_WRITE] = {"write", EIO},         [OP_SYNC] = {"sync", EIO},
    [OP_RENAME] = {"rename", EIO},       [OP_TRUNCATE] = {"truncate", EIO},
    [OP_FALLOCATE] = {"fallocate", EIO}, [OP_OPEN] = {"open", EIO},
    [OP_MMAP] = {"mmap", ENOMEM},        [OP_THREAD] = {"thread", EAGAIN},
};

static const struct {
    const char *name;
    int value;
} errors[] = {
    {"ENOSPC", ENOSPC}, {"EIO", EIO},       {"EINTR", EINTR},   {"ENOMEM", ENOMEM},
    {"EDQUOT", EDQUOT}, {"EACCES", EACCES}, {"EMFILE", EMFILE}, {"ENFILE", ENFILE},
    {"EAGAIN", EAGAIN}, {"EROFS", EROFS},   {"ENOENT", ENOENT}, {"EPIPE", EPIPE},
    {"EXDEV", EXDEV},   {"EFBIG", EFBIG},
};

enum { SHORT = -1, MAX_RULES = 8, ALWAYS = 1 };

struct rule {
    enum op op;
    uint64_t first, every; /* every: 0 only the first, ALWAYS, or each so many after it */
    int how;               /* an errno, or SHORT */
    char pattern[256];     /* "": any */
};

struct counts {
    atomic_ullong calls[OP_COUNT], failed;
    atomic_ullong matched[MAX_RULES]; /* calls that a rule with a pattern looked at */
};

static struct rule rules[MAX_RULES];
static int n_rules;
static struct counts *counts; /* set before `active` */
static atomic_bool active;

/* ---- rules ---- */

static void bad_rule(const char *text)
{
    fprintf(stderr, "shim: QUIRE_FAULTS: cannot read \"%s\"\n", text);
    _exit(125);
}

static int parse_how(const char *text, enum op op)
{
    if (!text || !*text)
        return ops[op].usual;
    if (strcmp(text, "short") == 0 && (op == OP_READ || op == OP_WRITE))
        return SHORT;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(text, errors[i].name) == 0)
            return errors[i].value;
    bad_rule(text);
    return 0;
}

static void parse_rule(char *text)
{
    char *fields[4] = {text}, *end;
    struct rule *r = &rules[n_rules];
    int n = 1;
    for (char *p; n < 4 && (p = strchr(fields[n - 1], ':')) != NULL; n++) {
        *p = '\0';
        fields[n] = p + 1;
    }
    while (r->op < OP_COUNT && strcmp(ops[r->op].name, fields[0]) != 0)
        r->op++;
    if (r->op == OP_COUNT || n < 2 || n_rules == MAX_RULES - 1)
        bad_rule(text);
    r->first = strtoull(fields[1], &end, 10);
    if (*end == '+')
        r->every = ALWAYS;
    else if (*end == '/')
        r->every = strtoull(end + 1, &end, 10);
    else if (*end)
        bad_rule(fields[1]);
    r->how = parse_how(fields[2], r->op);
    if (fields[3])
        snprintf(r->pattern, sizeof(r->pattern), "%s", fields[3]);
    n_rules++;
}

static void read_rules(void)
{
    char text[2048], *at = text, *one;
    const char *given = getenv("QUIRE_FAULTS");
    snprintf(text, sizeof(text), "%s", given ? given : "");
    while ((one = strsep(&at, ";")) != NULL)
        if (*one)
            parse_rule(one);
}

/* Of one file, or without it of this process and those that it forks. */
static void share_counts(void)
{
    const char *path = getenv("QUIRE_FAULTS_COUNTS");
    int fd = -1;
    if (path) {
        fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || syscall(SYS_ftruncate, fd, (long)sizeof(*counts)) != 0)
            bad_rule(path);
    }
    long p = syscall(SYS_mmap, NULL, sizeof(*counts), PROT_READ | PROT_WRITE,
                     MAP_SHARED | (path ? 0 : MAP_ANONYMOUS), fd, 0L);
    if (p == -1)
        bad_rule("counts");
    counts = (struct counts *)p;
    if (path)
        syscall(SYS_close, fd);
}

static bool chosen(const struct rule *r, uint64_t n)
{
    if (n < r->first)
        return false;
    return n == r->first || (r->every > 0 && (n - r->first) % r->every == 0);
}

/* How this call goes wrong; 0: it does not. path is NULL where there is none. */
static int fault(enum op op, const char *path)
{
    if (!atomic_load(&active))
        return 0;
    uint64_t n = atomic_fetch_add(&counts->calls[op], 1) + 1;
    for (int i = 0; i < n_rules; i++) {
        struct rule *r = &rules[i];
        if (r->op != op)
            continue;
        uint64_t nth = n;
        if (r->pattern[0]) {
            if (!path || fnmatch(r->pattern, path, 0) != 0)
                continue;
            nth = atomic_fetch_add(&counts->matched[i], 1) + 1;
        }
        if (chosen(r, nth)) {
            atomic_fetch_add(&counts->failed, 1);
            return r->how;
        }
    }
    return 0;
}

/* As fault(), for a call on a descriptor. */
static int fault_fd(enum op op, int fd)
{
    struct stat st;
    int saved = errno;
    char link[64], path[4096] = "";
    if (!atomic_load(&active) || fd == STDERR_FILENO ||
        (fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == 0))
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof(path) - 1);
    path[len > 0 ? len : 0] = '\0';
    errno = saved;
    return fault(op, path);
}

static bool fails(int how)
{
    if (how > 0)
        errno = how;
    return how > 0;
}

static size_t cut(size_t n, int how)
{
    return how == SHORT ? n - n / 2 : n;
}

/* The next definition of the calling function's name, found once. */
#define NEXT(name)                                                                             \
    static __typeof__(&name) next;                                                             \
    if (!next)                                                                                 \
    next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* ---- memory ---- */

void *malloc(size_t n)
{
    NEXT(malloc);
    return fails(fault(OP_ALLOC, NULL)) ? NULL : next(n);
}

void *calloc(size_t n, size_t size)
{
    NEXT(calloc);
    return !next || fails(fault(OP_ALLOC, NULL)) ? NULL : next(n, size);
}

void *realloc(void *p, size_t n)
{
    NEXT(realloc);
    return fails(fault(OP_ALLOC, NULL)) ? NULL : next(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    NEXT(aligned_alloc);
    return fails(fault(OP_ALLOC, NULL)) ? NULL : next(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    NEXT(posix_memalign);
    int how = fault(OP_ALLOC, NULL);
    return how ? how : next(p, align, n);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    NEXT(mmap);
    return fails(fault(OP_MMAP, NULL)) ? MAP_FAILED : next(at, n, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return mmap(at, n, prot, flags, fd, offset);
}

/* ---- reading and writing ---- */

ssize_t read(int fd, void *to, size_t n)
{
    NEXT(read);
    int how = fault_fd(OP_READ, fd);
    return fails(how) ? -1 : next(fd, to, cut(n, how));
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    NEXT(pread);
    int how = fault_fd(OP_READ, fd);
    return fails(how) ? -1 : next(fd, to, cut(n, how), at);
}

ssize_t pread64(int fd, void *to, size_t n, off_t at)
{
    return pread(fd, to, n, at);
}

ssize_t write(int fd, const void *from, size_t n)
{
    NEXT(write);
    int how = fault_fd(OP_WRITE, fd);
    return fails(how) ? -1 : next(fd, from, cut(n, how));
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    NEXT(pwrite);
    int how = fault_fd(OP_WRITE, fd);
    return fails(how) ? -1 : next(fd, from, cut(n, how), at);
}

ssize_t pwrite64(int fd, const void *from, size_t n, off_t at)
{
    return pwrite(fd, from, n, at);
}

/* A short one moves part of the first piece that is not empty. */
static int short_iov(const struct iovec *iov, int n, struct iovec *one)
{
    int i = 0;
    while (i < n - 1 && iov[i].iov_len == 0)
        i++;
    *one = iov[i];
    one->iov_len = cut(one->iov_len, SHORT);
    return 1;
}

ssize_t preadv(int fd, const struct iovec *iov, int n, off_t at)
{
    NEXT(preadv);
    struct iovec one;
    int how = fault_fd(OP_READ, fd);
    if (fails(how))
        return -1;
    return how == SHORT && n > 0 ? next(fd, &one, short_iov(iov, n, &one), at)
                                 : next(fd, iov, n, at);
}

ssize_t preadv64(int fd, const struct iovec *iov, int n, off_t at)
{
    return preadv(fd, iov, n, at);
}

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
    NEXT(pwritev);
    struct iovec one;
    int how = fault_fd(OP_WRITE, fd);
    if (fails(how))
        return -1;
    return how == SHORT && n > 0 ? next(fd, &one, short_iov(iov, n, &one), at)
                                 : next(fd, iov, n, at);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off_t at)
{
    return pwritev(fd, iov, n, at);
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
    NEXT(writev);
    struct iovec one;
    int how = fault_fd(OP_WRITE, fd);
    if (fails(how))
        return -1;
    return how == SHORT && n > 0 ? next(fd, &one, short_iov(iov, n, &one)) : next(fd, iov, n);
}

ssize_t readv(int fd, const struct iovec *iov, int n)
{
    NEXT(readv);
    struct iovec one;
    int how = fault_fd(OP_READ, fd);
    if (fails(how))
        return -1;
    return how == SHORT && n > 0 ? next(fd, &one, short_iov(iov, n, &one)) : next(fd, iov, n);
}

/* ---- files ---- */

int fsync(int fd)
{
    NEXT(fsync);
    return fails(fault_fd(OP_SYNC, fd)) ? -1 : next(fd);
}

int fdatasync(int fd)
{
    NEXT(fdatasync);
    return fails(fault_fd(OP_SYNC, fd)) ? -1 : next(fd);
}

/* Never interrupted: syncfs(2). */
int syncfs(int fd)
{
    NEXT(syncfs);
    int how = fault_fd(OP_SYNC, fd);
    return how != EINTR && fails(how) ? -1 : next(fd);
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    return fails(fault(OP_RENAME, to)) ? -1 : next(from, to);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    NEXT(renameat);
    return fails(fault(OP_RENAME, to)) ? -1 : next(from_fd, from, to_fd, to);
}

int ftruncate(int fd, off_t n)
{
    NEXT(ftruncate);
    return fails(fault_fd(OP_TRUNCATE, fd)) ? -1 : next(fd, n);
}

int ftruncate64(int fd, off_t n)
{
    return ftruncate(fd, n);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    NEXT(fallocate);
    return fails(fault_fd(OP_FALLOCATE, fd)) ? -1 : next(fd, mode, at, n);
}

int fallocate64(int fd, int mode, off_t at, off_t n)
{
    return fallocate(fd, mode, at, n);
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    NEXT(posix_fallocate);
    int how = fault_fd(OP_FALLOCATE, fd);
    return how ? how : next(fd, at, n);
}

int openat(int folder, const char *path, int flags, ...)
{
    NEXT(openat);
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fails(fault(OP_OPEN, path)) ? -1 : next(folder, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return openat(AT_FDCWD, path, flags, mode);
}

/* The same under the names that programs built for files over 2 GiB use. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char *path, int flags, ...) __attribute__((alias("openat")));

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    return fails(fault(OP_OPEN, path)) ? NULL : next(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

/* ---- threads ---- */

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*work)(void *),
                   void *arg)
{
    NEXT(pthread_create);
    int how = fault(OP_THREAD, NULL);
    return how ? how : next(thread, attr, work, arg);
}

/* ---- from main() to its end ---- */

typedef int main_fn(int argc, char **argv, char **env);
static main_fn *real_main;

static int counted_main(int argc, char **argv, char **env)
{
    atomic_store(&active, true);
    int rc = real_main(argc, argv, env);
    atomic_store(&active, false);
    return rc;
}

int __libc_start_main(main_fn *start, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);

int __libc_start_main(main_fn *start, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    NEXT(__libc_start_main);
    real_main = start;
    read_rules();
    share_counts();
    atomic_store(&active, getenv("QUIRE_FAULTS_EARLY") != NULL);
    return next(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

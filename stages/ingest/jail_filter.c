/* The system calls that a reader of documents may make, as a program of the kernel's packet filter.
 *
 * The list is short because the reader has nothing to open: its input comes as descriptors. Tables of
 * encodings and the like were loaded before (libraries.h). */
#include "stages/ingest/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#else
#define THIS_ARCH 0 /* numbers of calls are not known: no filter */
#endif

static const unsigned allowed[] = {
    /* the descriptors it has */
    __NR_read,
    __NR_write,
    __NR_readv,
    __NR_writev,
    __NR_pread64,
    __NR_lseek,
    __NR_fstat,
    __NR_close,
    __NR_ftruncate,
    __NR_recvmsg,
    __NR_sendmsg,
    /* memory; mmap and mprotect have a rule of their own */
    __NR_munmap,
    __NR_mremap,
    __NR_madvise,
    __NR_brk,
    /* time, itself, the end */
    __NR_clock_gettime,
    __NR_gettimeofday,
    __NR_getrandom,
    __NR_getpid,
    __NR_gettid,
    __NR_sched_yield,
    __NR_futex,
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_sigaltstack,
    __NR_exit,
    __NR_exit_group,
    __NR_restart_syscall,
};

/* Nothing here is ever made by an honest reader. */
static const unsigned never[] = {
    __NR_execve,
    __NR_execveat,
    __NR_clone,
#ifdef __NR_clone3
    __NR_clone3,
#endif
#ifdef __NR_fork
    __NR_fork,
    __NR_vfork,
#endif
    __NR_socket,
    __NR_socketpair,
    __NR_connect,
    __NR_bind,
    __NR_listen,
    __NR_sendto,
    __NR_ptrace,
    __NR_process_vm_readv,
    __NR_process_vm_writev,
    __NR_kill,
    __NR_tkill,
    __NR_mount,
    __NR_unshare,
    __NR_setns,
    __NR_bpf,
    __NR_init_module,
    __NR_keyctl,
};

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000 /* <fcntl.h> has it for GNU programs only */
#endif

enum { PROGRAM_MAX = 160 };

struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short n;
};

static void add(struct program *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    p->code[p->n++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct program *p, size_t offset)
{
    add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void give(struct program *p, uint32_t verdict)
{
    add(p, BPF_RET | BPF_K, verdict, 0, 0);
}

/* The low half of argument i, on a little-endian machine. */
static size_t arg(int i)
{
    return offsetof(struct seccomp_data, args) + 8 * (size_t)i;
}

/* call: allowed when argument i has none of these bits; fails with EACCES otherwise. */
static void allow_without(struct program *p, unsigned call, int i, uint32_t bits)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    load(p, arg(i));
    add(p, BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0);
    give(p, SECCOMP_RET_ALLOW);
    give(p, SECCOMP_RET_ERRNO | EACCES);
}

/* call: allowed when argument i is this; fails with EACCES otherwise. */
static void allow_with(struct program *p, unsigned call, int i, uint32_t value)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    load(p, arg(i));
    add(p, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    give(p, SECCOMP_RET_ALLOW);
    give(p, SECCOMP_RET_ERRNO | EACCES);
}

static void build(struct program *p)
{
    load(p, offsetof(struct seccomp_data, arch));
    add(p, BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0);
    give(p, SECCOMP_RET_KILL_PROCESS);
    load(p, offsetof(struct seccomp_data, nr));
    /* The same table under other numbers (x32) is for nobody. */
    add(p, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
    give(p, SECCOMP_RET_KILL_PROCESS);
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        add(p, BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        give(p, SECCOMP_RET_ALLOW);
    }
    for (size_t i = 0; i < ARRAY_LEN(never); i++) {
        add(p, BPF_JMP | BPF_JEQ | BPF_K, never[i], 0, 1);
        give(p, SECCOMP_RET_KILL_PROCESS);
    }
    /* Each rule ends by itself when the number is its own, so the number is still loaded for the next. */
    allow_without(p, __NR_mmap, 2, PROT_EXEC);
    allow_without(p, __NR_mprotect, 2, PROT_EXEC);
    allow_with(p, __NR_fcntl, 1, F_DUPFD_CLOEXEC);
    allow_with(p, __NR_prlimit64, 1, RLIMIT_CPU);
    allow_with(p, __NR_tgkill, 0, (uint32_t)getpid()); /* abort() */
#ifdef __NR_newfstatat
    allow_with(p, __NR_newfstatat, 3, AT_EMPTY_PATH); /* fstat() of some libraries */
#endif
    /* Refused as the file system would refuse it. */
    add(p, BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 1);
    give(p, SECCOMP_RET_ERRNO | EACCES);
    give(p, SECCOMP_RET_ERRNO | ENOSYS);
}

bool jail_can_filter(void)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    return THIS_ARCH != 0 && syscall(__NR_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

int jail_filter(void)
{
    struct program p = {0};
    build(&p);
    struct sock_fprog f = {.len = p.n, .filter = p.code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &f) == 0 ? 0 : -1;
}

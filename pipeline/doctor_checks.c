/* The checks of `quire doctor`, of the machine first. */
#include "pipeline/doctor.h"

#include "pipeline/setup.h"
#include "stages/base/file.h"
#include "stages/base/mem.h"
#include "stages/ingest/jail.h"
#include "stages/ingest/walk.h"
#include "stages/kv/disk_look.h"
#include "stages/write/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { LOW_MEMORY = 1 << 30, LOW_SPACE = 1 << 30, LOCK_TRIES = 20, LOCK_WAIT_US = 10000 };

struct line {
    char *text;
    size_t cap;
};

static enum verdict say(struct line a, enum verdict v, const char *fmt, ...) PRINTF_LIKE(3, 4);
static enum verdict say(struct line a, enum verdict v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a.text, a.cap, fmt, ap);
    va_end(ap);
    return v;
}

/* "3.1 GiB" */
static const char *gib(uint64_t bytes, char out[32])
{
    snprintf(out, 32, "%.1f GiB", (double)bytes / (double)(1 << 30));
    return out;
}

/* ---- the machine ---- */

static enum verdict check_kernels(const struct patient *p, char *text, size_t cap)
{
    struct line a = {text, cap};
    struct kernels k;
    struct err e = {0};
    if (setup_kernels(&k, p->kernels, &e))
        return say(a, DOCTOR_FAIL, "%s", e.msg);
    if (strcmp(k.name, "ref") == 0)
        return say(a, DOCTOR_WARN,
                   "ref: plain C, some ten times slower than avx2; `quire doctor kernels` says "
                   "what is missing");
    return say(a, DOCTOR_OK, "%s", k.name);
}

static enum verdict check_rounding(const struct patient *p, char *text, size_t cap)
{
    (void)p;
    struct line a = {text, cap};
    return kern_float_environment_ok()
               ? say(a, DOCTOR_OK, "to nearest, small numbers kept")
               : say(a, DOCTOR_FAIL,
                     "something has changed how this process rounds: a library that is "
                     "preloaded?");
}

static enum verdict check_threads(const struct patient *p, char *text, size_t cap)
{
    char why[160];
    int n = doctor_threads(p, why, sizeof(why));
    struct line a = {text, cap};
    if (n > p->machine.cpus)
        return say(a, DOCTOR_WARN,
                   "%d (%s), but %d CPUs are for this process: they will wait for each other",
                   n, why, p->machine.cpus);
    if (getenv("OMP_NUM_THREADS"))
        return say(a, DOCTOR_WARN,
                   "%d (%s); OMP_NUM_THREADS is not looked at, limits.threads is", n, why);
    return say(a, DOCTOR_OK, "%d (%s)", n, why);
}

static enum verdict check_memory(const struct patient *p, char *text, size_t cap)
{
    struct line a = {text, cap};
    const struct machine *m = &p->machine;
    char size[32];
    bool grouped = m->group < m->available;
    uint64_t bytes = grouped ? m->group : m->available;
    if (bytes == UINT64_MAX)
        return say(a, DOCTOR_WARN, "/proc/meminfo does not say how much is free");
    return say(a, bytes < LOW_MEMORY ? DOCTOR_WARN : DOCTOR_OK, "%s (%s)", gib(bytes, size),
               grouped ? m->group_name : "free");
}

static enum verdict check_isolation(const struct patient *p, char *text, size_t cap)
{
    struct line a = {text, cap};
    int choice = p->job ? p->job->ingest.isolation : ISOLATION_AUTO;
    if (choice == ISOLATION_NO)
        return say(a, DOCTOR_WARN,
                   "documents are read in the process of the run (ingest.isolation: no)");
    if (jail_can_filter())
        return say(a, DOCTOR_OK, "documents are read apart, system calls are filtered");
    return say(
        a, choice == ISOLATION_YES ? DOCTOR_FAIL : DOCTOR_WARN,
        "documents are read apart, but this kernel does not filter system calls (seccomp)");
}

/* ---- a job ---- */

static enum verdict check_model(const struct patient *p, char *text, size_t cap)
{
    struct line a = {text, cap};
    struct err e = {0};
    struct setup s = {0};
    enum verdict v;
    if (setup_read(&s, p->job, &e) || plan_fits(&s.plan, &e)) {
        v = say(a, DOCTOR_FAIL, "%s", e.msg);
    } else {
        char need[32], limit[32];
        v = say(a, DOCTOR_OK, "%s, template %s; the plan takes %s of %s",
                model_hparams(s.model)->name, chat_family(s.chat), gib(s.plan.total, need),
                gib(s.plan.limit, limit));
    }
    setup_close(&s);
    return v;
}

struct files {
    uint64_t n, unreadable;
};

static int count_file(void *to, const struct walk_file *f)
{
    struct files *s = to;
    s->n++;
    s->unreadable += f->bad != NULL;
    return 0;
}

static enum verdict check_input(const struct patient *p, char *text, size_t cap)
{
    struct line a = {text, cap};
    struct err e = {0};
    struct files found = {0};
    const char *own[WALK_SKIPS] = {p->job->write.to, p->job->kv.disk};
    if (walk(&p->job->ingest.from, own, count_file, &found, &e))
        return say(a, DOCTOR_FAIL, "%s", e.msg);
    if (found.n == 0)
        return say(a, DOCTOR_WARN, "no file");
    if (found.unreadable)
        return say(a, DOCTOR_WARN,
                   "%" PRIu64 " files, %" PRIu64
                   " of them cannot be read and will fail by name",
                   found.n, found.unreadable);
    return say(a, DOCTOR_OK, "%" PRIu64 " file%s", found.n, found.n == 1 ? "" : "s");
}

/* The nearest folder above path that is there; heap. */
static char *existing(const char *path)
{
    struct stat st;
    char *at = mem_strdup(path);
    while (stat(at, &st) != 0 && errno == ENOENT && strcmp(at, ".") != 0 &&
           strcmp(at, "/") != 0) {
        char *up = file_parent(at);
        free(at);
        at = up;
    }
    return at;
}

static uint64_t free_space(const char *path)
{
    struct statvfs v;
    char *at = existing(path);
    uint64_t n = statvfs(at, &v) == 0 ? (uint64_t)v.f_bavail * v.f_frsize : 0;
    free(at);
    return n;
}

/* Does another process hold the lock? It may be let go at any time, so ask a few times. */
static bool is_held(const char *folder, const char *name, int tries)
{
    char *path = file_join(folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    free(path);
    if (fd < 0)
        return false;
    bool held = true;
    while (held && tries-- > 0) {
        held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (held && tries)
            usleep(LOCK_WAIT_US);
    }
    close(fd);
    return held;
}

static enum verdict check_output(const struct patient *p, char *text, size_t cap)
{
    struct line a = {text, cap};
    struct err e = {0};
    char size[32];
    const char *folder = p->job->write.to;
    if (output_check(folder, &e))
        return say(a, DOCTOR_FAIL, "%s", e.msg);
    if (is_held(folder, ".lock", 1))
        return say(a, DOCTOR_FAIL, "another run of this job is at work in %s", folder);
    uint64_t space = free_space(folder);
    return say(a, space < LOW_SPACE ? DOCTOR_WARN : DOCTOR_OK, "%s can be written, %s free",
               folder, gib(space, size));
}

static enum verdict check_kv_records(const char *folder, uint64_t limit, struct line a)
{
    struct err e = {0};
    struct disk *d;
    struct disk_stats t;
    char size[32], space[32], most[32];
    if (disk_open(&d, &(struct disk_options){.folder = folder, .read_only = true}, &e))
        return say(a, DOCTOR_FAIL, "%s", e.msg);
    disk_get_stats(d, &t);
    disk_close(d);
    uint64_t left = free_space(folder);
    if (t.corrupt)
        return say(a, DOCTOR_WARN,
                   "%" PRId64 " records; %" PRId64
                   " places hold none any more: `quire kv verify %s` reads all",
                   t.records, t.corrupt, folder);
    if (limit && (uint64_t)t.blocks < limit && left < limit - (uint64_t)t.blocks)
        return say(a, DOCTOR_WARN,
                   "%" PRId64 " records in %s; kv.disk_limit allows %s, but %s are free",
                   t.records, gib((uint64_t)t.blocks, size), gib(limit, most),
                   gib(left, space));
    return say(a, DOCTOR_OK, "%" PRId64 " records in %s, %s free", t.records,
               gib((uint64_t)t.blocks, size), gib(left, space));
}

static enum verdict check_kv(const struct patient *p, char *text, size_t cap)
{
    struct line a = {text, cap};
    const struct kv_config *kv = &p->job->kv;
    char size[32];
    struct stat st;
    if (!kv->disk)
        return say(a, DOCTOR_OK, "in memory only");
    char *at = existing(kv->disk);
    bool folder = stat(at, &st) == 0 && S_ISDIR(st.st_mode);
    bool writable = folder && access(at, W_OK | X_OK) == 0;
    enum verdict v;
    if (!folder)
        v = say(a, DOCTOR_FAIL, "%s is not a folder", at);
    else if (!writable)
        v = say(a, DOCTOR_WARN, "%s cannot be written: pages are read, not kept", at);
    else if (is_held(kv->disk, "lock", LOCK_TRIES))
        v = say(a, DOCTOR_WARN, "another process keeps %s locked", kv->disk);
    else if (disk_is_store(kv->disk))
        v = check_kv_records(kv->disk, kv->disk_limit, a);
    else if (strcmp(at, kv->disk) == 0)
        v = say(a, DOCTOR_OK, "%s holds no pages yet, %s free", kv->disk,
                gib(free_space(kv->disk), size));
    else
        v = say(a, DOCTOR_OK, "%s will be made, %s free", kv->disk,
                gib(free_space(kv->disk), size));
    free(at);
    return v;
}

const struct doctor_check doctor_checks[] = {
    {"kernels", false, check_kernels},
    {"rounding", false, check_rounding},
    {"threads", false, check_threads},
    {"memory", false, check_memory},
    {"isolation", false, check_isolation},
    {"model", true, check_model},
    {"input", true, check_input},
    {"output", true, check_output},
    {"kv", true, check_kv},
};
const size_t n_doctor_checks = ARRAY_LEN(doctor_checks);

/* The life of a job:
 *
 *   caller                                  a thread of the team
 *   writes the job, done = 0                spins, then sleeps until `turn` is past the one it knows
 *   ticket = (turn, parts, next 0)
 *   turn + 1, wakes those who sleep
 *   takes parts: ticket + 1                 takes parts: ticket + 1
 *   done + what it did                      done + what it did; the last one wakes a caller who sleeps
 *   waits until done = parts
 *
 * Taking a part gives turn, number of parts and part at once. A thread that comes late either has a part of the job that
 * the ticket is of, which cannot end before that part is done, or finds none and has read nothing else. It
 * takes the turn from the ticket as known, which may be ahead of `turn` for a moment, so it fails once a job at most. */
#define _GNU_SOURCE /* syscall, sched_getaffinity */
#include "kernels/team.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_THREADS = 1024,
    MOST_PARTS = 1 << 14, /* parts and one failed try of every thread fit into 16 bits */
    SPIN_US =
        50, /* longer than what lies between two ops of a pass, shorter than what sleeping costs others */
    LINE = 64,
};

struct member {
    struct team *team;
    pthread_t thread;
    int number;
};

struct team {
    int n; /* threads, the caller included */
    int spin_us;
    pid_t owner; /* the process that has the threads */

    /* The job; written by the caller while nobody has a part. */
    alignas(LINE) team_part_fn *fn;
    void *arg;
    int items, grain;

    alignas(LINE) _Atomic uint32_t turn; /* jobs so far; threads sleep on it */
    _Atomic int sleepers;
    atomic_bool stop;

    alignas(LINE) _Atomic uint64_t ticket; /* turn << 32 | parts << 16 | next */

    alignas(LINE) _Atomic uint32_t done; /* parts; the caller sleeps on it */
    atomic_bool caller_sleeps;

    struct member members[];
};

static _Thread_local struct team *current;

/* ---- waiting ---- */

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL,
                  0); /* all ends lead to a new look */
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Of counters that go round. */
static bool reached(uint32_t count, uint32_t want)
{
    return (int32_t)(count - want) >= 0;
}

/* True as soon as *word has reached `want`, false when the time is over. */
static bool spin(_Atomic uint32_t *word, uint32_t want, int spin_us)
{
    enum { BETWEEN_CLOCKS = 16 };
    for (int64_t end = 0;;) {
        for (int i = 0; i < BETWEEN_CLOCKS; i++) {
            if (reached(atomic_load_explicit(word, memory_order_acquire), want))
                return true;
            relax();
        }
        int64_t now = now_us();
        end = end ? end : now + spin_us;
        if (now >= end)
            return false;
    }
}

/* ---- parts ---- */

/* What a thread did of a job. */
struct share {
    uint32_t done, of; /* parts */
    uint32_t turn;     /* of the ticket that had none left */
};

static struct share do_parts(struct team *t, int thread)
{
    struct share s = {0};
    for (;; s.done++) {
        uint64_t ticket = atomic_fetch_add_explicit(&t->ticket, 1, memory_order_acq_rel);
        uint32_t parts = ticket >> 16 & 0xffff, part = ticket & 0xffff;
        s.turn = (uint32_t)(ticket >> 32);
        if (part >= parts)
            return s;
        s.of = parts;
        int begin = (int)part * t->grain, left = t->items - begin;
        t->fn(t->arg, begin, begin + (left < t->grain ? left : t->grain), thread);
    }
}

/* Whoever does the last part ends the wait of the caller. Both sides write, then read what the other wrote: one of
 * them sees it. */
static void add_done(struct team *t, struct share s)
{
    if (s.done && atomic_fetch_add(&t->done, s.done) + s.done == s.of &&
        atomic_load(&t->caller_sleeps))
        futex_wake(&t->done, 1);
}

static void wait_done(struct team *t, uint32_t parts)
{
    if (spin(&t->done, parts, t->spin_us))
        return;
    atomic_store(&t->caller_sleeps, true);
    for (uint32_t seen; (seen = atomic_load(&t->done)) != parts;)
        futex_wait(&t->done, seen);
    atomic_store(&t->caller_sleeps, false);
}

/* ---- threads ---- */

static void wait_turn(struct team *t, uint32_t want)
{
    if (spin(&t->turn, want, t->spin_us))
        return;
    atomic_fetch_add(&t->sleepers, 1);
    for (uint32_t seen; !reached(seen = atomic_load(&t->turn), want);)
        futex_wait(&t->turn, seen);
    atomic_fetch_sub(&t->sleepers, 1);
}

static void *serve(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    for (struct share s = {0};;) {
        wait_turn(t, s.turn + 1);
        if (atomic_load_explicit(&t->stop, memory_order_acquire))
            return NULL;
        s = do_parts(t, m->number);
        add_done(t, s);
    }
}

static void next_turn(struct team *t, int most)
{
    atomic_fetch_add(&t->turn, 1);
    if (atomic_load(&t->sleepers) > 0)
        futex_wake(&t->turn, most);
}

static int cpus_here(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

struct team *team_new(int n)
{
    n = n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
    size_t bytes = sizeof(struct team) + (size_t)n * sizeof(struct member);
    struct team *t = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
    if (!t)
        return NULL;
    *t = (struct team){.n = 1, .owner = getpid()};
    /* Threads without a CPU of their own take it from those who work. */
    t->spin_us = n <= cpus_here() ? SPIN_US : 0;
    for (; t->n < n; t->n++) {
        struct member *m = &t->members[t->n];
        *m = (struct member){.team = t, .number = t->n};
        if (pthread_create(&m->thread, NULL, serve, m) != 0)
            break;
    }
    return t;
}

void team_free(struct team *t)
{
    if (!t)
        return;
    if (current == t)
        current = NULL;
    if (t->owner == getpid()) {
        atomic_store_explicit(&t->stop, true, memory_order_release);
        next_turn(t, INT_MAX);
        for (int i = 1; i < t->n; i++)
            pthread_join(t->members[i].thread, NULL);
    }
    free(t);
}

int team_size(const struct team *t)
{
    return t->n;
}

void team_use(struct team *t)
{
    current = t;
}

int team_threads(void)
{
    return current ? current->n : 1;
}

static void share_out(struct team *t, int n, int grain, team_part_fn *fn, void *arg)
{
    uint32_t parts = (uint32_t)((n - 1) / grain + 1);
    uint64_t turn = atomic_load_explicit(&t->turn, memory_order_relaxed) + 1;
    t->fn = fn;
    t->arg = arg;
    t->items = n;
    t->grain = grain;
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->ticket, (turn & UINT32_MAX) << 32 | (uint64_t)parts << 16,
                          memory_order_release);
    next_turn(t, parts <= (uint32_t)t->n ? (int)parts - 1 : t->n - 1);
    add_done(t, do_parts(t, 0));
    wait_done(t, parts);
}

void team_run(int n, int grain, team_part_fn *fn, void *arg)
{
    struct team *t = current;
    int least = n / MOST_PARTS + 1;
    grain = grain < least ? least : grain;
    current = NULL; /* what a part calls is not shared out, whoever does it */
    if (t && t->n > 1 && n > grain)
        share_out(t, n, grain, fn, arg);
    else if (n > 0)
        fn(arg, 0, n, 0);
    current = t;
}

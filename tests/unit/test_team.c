/* Parts of a job, threads that share them out, and what happens when some of these cannot run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 40000, MOST_THREADS = 16 };

struct job {
    int done[MOST]; /* times per item; plain: an item belongs to one part */
    atomic_int here[MOST_THREADS];
    int grain, n;
    bool slow;
};

static void pause_us(long us)
{
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

static void count(void *arg, int begin, int end, int thread)
{
    struct job *j = arg;
    assert_true(thread >= 0 && thread < MOST_THREADS);
    assert_int_equal(atomic_fetch_add(&j->here[thread], 1),
                     0); /* nobody else has this number */
    assert_true(begin < end && end <= j->n);
    assert_true(end - begin == j->grain || end == j->n);
    for (int i = begin; i < end; i++)
        j->done[i]++;
    if (j->slow)
        pause_us(300);
    atomic_fetch_sub(&j->here[thread], 1);
}

static void check_job(struct job *j, int n, int grain)
{
    memset(j->done, 0, sizeof(j->done));
    j->n = n;
    j->grain = team_threads() > 1 ? grain : n;
    team_run(n, grain, count, j);
    for (int i = 0; i < n; i++)
        assert_int_equal(j->done[i], 1);
}

static struct job job;

static void every_item_is_done_once_whatever_the_team_and_the_grain(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, 64, 1000}, grains[] = {1, 2, 5, 64, 2000};
    check_job(&job, 100, 1); /* no team: alone */
    for (int threads = 1; threads <= 9; threads++) {
        struct team *t = team_new(threads);
        assert_int_equal(team_size(t), threads);
        team_use(t);
        assert_int_equal(team_threads(), threads);
        for (int rounds = 0; rounds < 20; rounds++)
            for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
                for (size_t g = 0; g < sizeof(grains) / sizeof(*grains); g++)
                    check_job(&job, sizes[s], grains[g]);
        team_free(t);
        assert_int_equal(team_threads(), 1);
    }
}

static void jobs_of_more_parts_than_a_ticket_counts_get_a_larger_grain(void **state)
{
    (void)state;
    struct team *t = team_new(3);
    team_use(t);
    job.n = MOST;
    job.grain = MOST / (1 << 14) + 1;
    memset(job.done, 0, sizeof(job.done));
    team_run(MOST, 1, count, &job);
    for (int i = 0; i < MOST; i++)
        assert_int_equal(job.done[i], 1);
    team_free(t);
}

/* Sums that a part writes must be there when the job has ended, job after job. */
static void add(void *arg, int begin, int end, int thread)
{
    (void)thread;
    for (int i = begin; i < end; i++)
        ((uint64_t *)arg)[i] += ((uint64_t *)arg)[(i + 1) % 8 + 8] + 1;
}

static void what_parts_write_is_seen_by_the_next_job(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 5; threads += 3) {
        struct team *t = team_new(threads);
        team_use(t);
        uint64_t x[16] = {0};
        for (int i = 0; i < 20000; i++) {
            team_run(8, 1, add, x);
            memcpy(x + 8, x, 8 * sizeof(*x));
            for (int k = 0; k < 8; k++)
                x[k] &= 0xffffff;
            for (int k = 1; k < 8; k++)
                assert_int_equal(x[k], x[0]);
        }
        team_free(t);
    }
}

/* A job in a part is done by the thread that has the part. */
struct inner {
    int done[64];
    bool alone;
};

static void count_inner(void *arg, int begin, int end, int thread)
{
    struct inner *in = arg;
    in->alone &= thread == 0 && begin == 0 && end == 64 && team_threads() == 1;
    for (int i = begin; i < end; i++)
        in->done[i]++;
}

static void run_inner(void *arg, int begin, int end, int thread)
{
    (void)thread;
    for (int i = begin; i < end; i++)
        team_run(64, 1, count_inner, (struct inner *)arg + i);
}

static void jobs_in_a_part_are_not_shared_out(void **state)
{
    (void)state;
    struct team *t = team_new(3);
    team_use(t);
    for (int n = 1; n <= 20; n += 19) {
        struct inner in[20] = {0};
        for (int i = 0; i < n; i++)
            in[i].alone = true;
        team_run(n, 1, run_inner, in);
        assert_int_equal(team_threads(), 3);
        for (int i = 0; i < n; i++) {
            assert_true(in[i].alone);
            for (int k = 0; k < 64; k++)
                assert_int_equal(in[i].done[k], 1);
        }
    }
    team_free(t);
}

static void threads_that_slept_come_again(void **state)
{
    (void)state;
    struct team *t = team_new(4);
    team_use(t);
    for (int i = 0; i < 10; i++) {
        pause_us(3000);  /* longer than any of them stays awake */
        job.slow = true; /* the caller cannot do them all */
        check_job(&job, 8, 1);
        job.slow = false;
    }
    team_free(t);
}

static void who(void *arg, int begin, int end, int thread)
{
    (void)begin;
    (void)end;
    atomic_fetch_or((atomic_int *)arg, 1 << thread);
    pause_us(1000);
}

static void all_threads_take_part_when_there_is_much_to_do(void **state)
{
    (void)state;
    struct team *t = team_new(4);
    team_use(t);
    atomic_int seen = 0;
    for (int tries = 0; tries < 100 && atomic_load(&seen) != 15; tries++)
        team_run(40, 1, who, &seen);
    assert_int_equal(atomic_load(&seen), 15);
    team_free(t);
}

static void a_team_that_never_worked_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++)
        team_free(team_new(1 + i % 6));
    struct team *t = team_new(3);
    pause_us(2000); /* all asleep */
    team_free(t);
    team_free(NULL);
}

static void *lead(void *arg)
{
    struct job *j = arg;
    struct team *t = team_new(3);
    team_use(t);
    for (int i = 0; i < 200; i++)
        check_job(j, 100, 3);
    team_free(t);
    return NULL;
}

static void two_threads_lead_a_team_each(void **state)
{
    (void)state;
    static struct job jobs[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, lead, &jobs[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* The child has the caller and the memory of the team, awake or asleep, but not its threads. */
static void after_a_fork_the_caller_goes_on_alone(void **state)
{
    (void)state;
    struct team *t = team_new(4);
    team_use(t);
    for (int asleep = 0; asleep < 2; asleep++) {
        check_job(&job, 100, 1);
        if (asleep)
            pause_us(3000);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(20);
            check_job(&job, 100, 1);
            team_free(t);
            _exit(job.done[99] == 1 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        check_job(&job, 100, 1);
    }
    team_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once_whatever_the_team_and_the_grain),
        cmocka_unit_test(jobs_of_more_parts_than_a_ticket_counts_get_a_larger_grain),
        cmocka_unit_test(what_parts_write_is_seen_by_the_next_job),
        cmocka_unit_test(jobs_in_a_part_are_not_shared_out),
        cmocka_unit_test(threads_that_slept_come_again),
        cmocka_unit_test(all_threads_take_part_when_there_is_much_to_do),
        cmocka_unit_test(a_team_that_never_worked_ends),
        cmocka_unit_test(two_threads_lead_a_team_each),
        cmocka_unit_test(after_a_fork_the_caller_goes_on_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

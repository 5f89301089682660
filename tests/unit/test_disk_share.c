/* Several processes, and several threads, with one folder of KV pages. */
#include "tests/unit/disk_rig.h"

#include "stages/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>

enum { PROCESSES = 4, KEYS = 200 };

/* Write all keys as fast as the others do, in another order; returns how many were stored. */
static int write_all(int me, int start)
{
    char go;
    struct disk *d = rig_open(NULL);
    if (read(start, &go, 1) != 0) /* the end of the pipe: all at once */
        return -1;
    int stored = 0;
    for (int i = 0; i < KEYS; i++)
        stored += rig_write(d, (i * 7 + me * 50 * (me % 2)) % KEYS, RIG_BODY, false) == 0;
    disk_sync(d);
    disk_refresh(d);
    for (int i = 0; i < KEYS; i++)
        if (rig_read(d, i, RIG_BODY) != 1)
            stored = -1;
    if (rig_stats(d).corrupt != 0)
        stored = -1;
    disk_close(d);
    return stored;
}

static void processes_that_write_the_same_keys_store_each_once(void **state)
{
    (void)state;
    int start[2], results[2], sum = 0;
    assert_int_equal(pipe(start), 0);
    assert_int_equal(pipe(results), 0);
    for (int p = 0; p < PROCESSES; p++)
        if (fork() == 0) {
            close(start[1]);
            int stored = write_all(p, start[0]);
            _exit(write(results[1], &stored, sizeof(stored)) != sizeof(stored));
        }
    close(start[0]);
    close(start[1]);
    close(results[1]);
    for (int p = 0; p < PROCESSES; p++) {
        int stored, status;
        assert_int_equal(read(results[0], &stored, sizeof(stored)), sizeof(stored));
        assert_true(stored >= 0);
        sum += stored;
        assert_true(wait(&status) > 0 && status == 0);
    }
    close(results[0]);
    assert_int_equal(sum, KEYS);
    struct disk *d = rig_open(NULL);
    assert_int_equal(rig_stats(d).records, KEYS);
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    disk_close(d);
}

/* While nobody writes: else what is moved meanwhile is counted twice. */
static uint64_t blocks_at_once(void)
{
    int lock = open(rig_path("lock"), O_RDONLY);
    assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
    uint64_t blocks = rig_blocks();
    close(lock);
    return blocks;
}

static void processes_that_evict_each_others_records_stay_within_the_limit(void **state)
{
    (void)state;
    enum { LIMIT = 4 << 20 };
    int status;
    for (int p = 0; p < PROCESSES; p++)
        if (fork() == 0) {
            struct disk *d = rig_open(&(struct disk_options){.limit = LIMIT});
            bool ok = true;
            for (int i = 0; i < KEYS; i++) {
                ok &= rig_write(d, 1000 * p + i, RIG_BODY, i % 3 == 0) < 2;
                ok &= blocks_at_once() <= LIMIT;
                int q = (p + i) % PROCESSES;
                for (int k = i > 5 ? i - 5 : 0; k <= i; k++)
                    ok &= rig_read(d, 1000 * q + k, RIG_BODY) >= 0;
                if (i % 3 == 0 && i > 9)
                    disk_remove(d, rig_info(1000 * p + i - 9).key);
            }
            ok &= rig_stats(d).corrupt == 0 && rig_stats(d).writing;
            disk_close(d);
            _exit(!ok);
        }
    for (int p = 0; p < PROCESSES; p++)
        assert_true(wait(&status) > 0 && status == 0);
    assert_true(rig_blocks() <= LIMIT);
}

/* As a process that opens the folder between the two steps in which another makes a segment sees it. */
static void a_segment_that_is_seen_before_its_head_is_read_and_counted_afterwards(void **state)
{
    (void)state;
    enum { N = 5 };
    size_t n;
    struct disk *d = rig_open(NULL);
    for (int i = 0; i < N; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    disk_close(d);
    uint8_t *bytes = rig_load("00000000.seg", &n);
    assert_int_equal(truncate(rig_path("00000000.seg"), 0), 0);
    struct disk *early = rig_open(NULL),
                *reader = rig_open(&(struct disk_options){.read_only = true});
    assert_int_equal(rig_stats(early).records, 0);
    rig_store("00000000.seg", bytes, n); /* the same inode */
    free(bytes);
    disk_refresh(reader);
    for (int i = 0; i < N; i++)
        assert_int_equal(rig_read(reader, i, RIG_BODY), 1);
    assert_int_equal(rig_write(early, N, RIG_BODY, false), 0);
    assert_int_equal(rig_stats(early).records, N + 1);
    assert_int_equal(rig_stats(early).segments, 1);
    disk_sync(early);
    assert_in_range(rig_stats(early).blocks, n, rig_blocks());
    disk_refresh(reader);
    assert_int_equal(rig_read(reader, N, RIG_BODY), 1);
    disk_close(early);
    disk_close(reader);
}

static void write_some(int me, const struct disk_options *o)
{
    struct disk *d = rig_open(o);
    bool ok = true;
    for (int i = 0; i < 60; i++) {
        int key = (i * 7 + me * 13) % 90;
        ok &= rig_write(d, key, RIG_BODY / 4, i % 5 == 0) < 2;
        ok &= rig_read(d, (key + me) % 90, RIG_BODY / 4) >= 0;
        if (i % 9 == 8)
            disk_remove(d, rig_info((key + 3) % 90).key);
    }
    ok &= rig_stats(d).corrupt == 0 && rig_stats(d).writing;
    disk_close(d);
    _exit(!ok);
}

static void a_writer_that_is_killed_among_others_harms_none(void **state)
{
    (void)state;
#ifdef SANITIZED
    enum { ROUNDS = 8 };
#else
    enum { ROUNDS = 60 };
#endif
    uint64_t s = 5;
    for (int round = 0; round < ROUNDS; round++) {
        struct disk_options o = {.limit = round % 2 ? 768 << 10 : 0,
                                 .segment_bytes = 128 << 10};
        pid_t children[PROCESSES];
        int status;
        for (int p = 0; p < PROCESSES; p++) {
            children[p] = fork();
            if (children[p] == 0)
                write_some(p + round, &o);
        }
        usleep((useconds_t)(rig_random(&s) % 12000));
        kill(children[0], SIGKILL);
        for (int p = 0; p < PROCESSES; p++) {
            assert_int_equal(waitpid(children[p], &status, 0), children[p]);
            assert_true(status == 0 || (p == 0 && WIFSIGNALED(status)));
        }
        struct disk *d = rig_open(&o);
        int found = 0;
        for (int i = 0; i < 90; i++)
            found += rig_read(d, i, RIG_BODY / 4);
        assert_true(found > 20);
        assert_int_equal(rig_stats(d).corrupt, 0);
        disk_close(d);
    }
}

struct work {
    struct disk *d;
    int me;
    bool ok;
};

/* As rig_read(), but for threads: no static memory, no cmocka. */
static bool read_right(struct disk *d, int i)
{
    struct record_info info = rig_info(i), got;
    struct err e = {0};
    size_t n;
    uint8_t *body = malloc(RIG_BODY), *want = malloc(RIG_BODY + 8);
    int rc = disk_read(d, info.key, info.tokens, info.n_tokens, &got, body, RIG_BODY, &n, &e);
    rig_body(i, want, rig_size(i, RIG_BODY / 4));
    bool ok =
        rc == 0 || (rc == 1 && n == rig_size(i, RIG_BODY / 4) && memcmp(body, want, n) == 0);
    free(body);
    free(want);
    return ok;
}

static void *work(void *arg)
{
    struct work *w = arg;
    uint64_t s = (uint64_t)w->me;
    uint8_t *body = malloc(RIG_BODY);
    w->ok = true;
    for (int step = 0; step < 400; step++) {
        int i = (int)(rig_random(&s) % 100);
        struct record_info info = rig_info(i);
        info.ephemeral = rig_random(&s) % 4 == 0;
        switch (rig_random(&s) % 8) {
        case 0:
        case 1:
        case 2:
            rig_body(i, body, rig_size(i, RIG_BODY / 4));
            disk_write(w->d, &info, body, rig_size(i, RIG_BODY / 4));
            break;
        case 3:
            disk_touch(w->d, info.key);
            disk_was_used(w->d, info.key);
            break;
        case 4:
            disk_pin(w->d, info.key, i % 10 == 0);
            break;
        case 5:
            if (rig_random(&s) % 4 == 0)
                disk_remove(w->d, info.key);
            disk_refresh(w->d);
            break;
        case 6:
            if (rig_random(&s) % 8 == 0)
                disk_sync(w->d);
            break;
        default:
            break;
        }
        disk_has(w->d, info.key);
        w->ok &= read_right(w->d, i);
    }
    free(body);
    return NULL;
}

struct race {
    struct disk *d;
    atomic_bool stop;
    int64_t found;
};

enum { RACE_BODY = 1000000, RACE_KEYS = 4 };

static void *read_on(void *arg)
{
    struct race *r = arg;
    uint8_t *body = malloc(RACE_BODY);
    for (int i = 0; !atomic_load(&r->stop); i = (i + 1) % RACE_KEYS) {
        struct record_info info = rig_info(5 * i), got;
        struct err e = {0};
        size_t n;
        r->found += disk_read(r->d, info.key, NULL, 0, &got, body, RACE_BODY, &n, &e) == 1;
        disk_refresh(r->d);
    }
    free(body);
    return NULL;
}

static void a_record_removed_while_it_is_read_is_not_called_corrupt(void **state)
{
    (void)state;
    struct race r = {.d = rig_open(NULL)};
    struct disk *d = rig_open(NULL);
    pthread_t thread;
    static uint8_t body[RACE_BODY];
    rig_body(1, body, sizeof(body));
    assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
    for (int64_t end = clock_us() + 500000; clock_us() < end;)
        for (int i = 0; i < RACE_KEYS; i++) {
            struct record_info info = rig_info(5 * i);
            disk_write(d, &info, body, sizeof(body));
            usleep(100);
            disk_remove(d, info.key);
        }
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(rig_stats(r.d).corrupt, 0);
    disk_close(r.d);
    disk_close(d);
}

static void threads_share_one_store(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct disk_options o = {.limit = 1 << 20, .segment_bytes = 128 << 10};
    pthread_t threads[THREADS];
    struct work w[THREADS];
    struct disk *d = rig_open(&o), *other = rig_open(&o);
    for (int t = 0; t < THREADS; t++) {
        w[t] = (struct work){.d = t % 2 ? d : other, .me = t};
        assert_int_equal(pthread_create(&threads[t], NULL, work, &w[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        assert_true(w[t].ok);
    }
    assert_int_equal(rig_stats(d).corrupt + rig_stats(other).corrupt, 0);
    assert_true(rig_stats(d).writing && rig_stats(other).writing);
    disk_close(d);
    disk_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(processes_that_write_the_same_keys_store_each_once,
                                        rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(
            processes_that_evict_each_others_records_stay_within_the_limit, rig_setup,
            rig_teardown),
        cmocka_unit_test_setup_teardown(
            a_segment_that_is_seen_before_its_head_is_read_and_counted_afterwards, rig_setup,
            rig_teardown),
        cmocka_unit_test_setup_teardown(a_writer_that_is_killed_among_others_harms_none,
                                        rig_setup_fast, rig_teardown),
        cmocka_unit_test_setup_teardown(a_record_removed_while_it_is_read_is_not_called_corrupt,
                                        rig_setup_fast, rig_teardown),
        cmocka_unit_test_setup_teardown(threads_share_one_store, rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

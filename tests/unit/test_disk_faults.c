/* Damage, failing system calls, and writers that are killed: what is read is right or a miss, and what
 * disk_sync() returned for is there. */
#include "tests/unit/disk_rig.h"

#include "stages/base/sys.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

enum { FEW = 5, SMALL = 900, SEGMENT_0_HEAD = SEGMENT_HEAD_BYTES };
static const char segment_0[] = "00000000.seg";

/* Where record i of a fresh folder begins. */
static size_t place_of(int i)
{
    size_t at = SEGMENT_0_HEAD;
    for (int k = 0; k < i; k++)
        at += record_bytes(rig_info(k).n_tokens, (uint32_t)rig_size(k, SMALL));
    return at;
}

static uint8_t *make_few(size_t *n)
{
    struct disk *d = rig_open(NULL);
    for (int i = 0; i < FEW; i++)
        assert_int_equal(rig_write(d, i, SMALL, false), 0);
    disk_close(d);
    return rig_load(segment_0, n);
}

/* The damaged folder is opened, read, repaired by writing again, and opened once more. Returns how many records
 * had been lost. */
static int lost_of_few(int64_t *corrupt)
{
    int lost = 0;
    struct disk *d = rig_open(NULL);
    bool there[FEW];
    for (int i = 0; i < FEW; i++) {
        int rc = rig_read(d, i, SMALL);
        assert_true(rc == 1 || rc == 0 || rc == -ERR_CORRUPT);
        there[i] = rc == 1;
        lost += !there[i];
        if (rc == -ERR_CORRUPT)
            assert_int_equal(rig_read(d, i, SMALL), 0); /* never found again */
    }
    *corrupt = rig_stats(d).corrupt;
    for (int i = 0; i < FEW; i++)
        assert_int_equal(rig_write(d, i, SMALL, false), there[i]);
    disk_close(d);
    d = rig_open(NULL);
    for (int i = 0; i < FEW; i++)
        assert_int_equal(rig_read(d, i, SMALL), 1);
    disk_close(d);
    return lost;
}

static void clear(void)
{
    DIR *dir = opendir(rig_folder);
    for (struct dirent *x; (x = readdir(dir)) != NULL;)
        if (x->d_name[0] != '.')
            unlink(rig_path(x->d_name));
    closedir(dir);
}

static void a_flipped_bit_costs_at_most_its_record(void **state)
{
    (void)state;
    size_t n;
    int64_t corrupt;
    uint8_t *bytes = make_few(&n);
    for (size_t at = 0; at < n; at++) {
        clear();
        uint8_t bit = (uint8_t)(1 << at % 8);
        bytes[at] ^= bit;
        rig_store(segment_0, bytes, n);
        bytes[at] ^= bit;
        int lost = lost_of_few(&corrupt);
        if (at < SEGMENT_0_HEAD) { /* magic and version: not our segment */
            assert_int_equal(lost, at < 12 ? FEW : 0);
            continue;
        }
        assert_true(lost <= 1);
        if (at < place_of(FEW - 1)) /* a damaged last head is taken for a torn one */
            assert_int_equal(corrupt, lost);
        size_t inside = at;
        for (int i = 0; i < FEW; i++)
            if (at >= place_of(i))
                inside = at - place_of(i);
        if (inside < RECORD_FIXED)
            assert_int_equal(lost, 1);
    }
    free(bytes);
}

static void a_file_cut_anywhere_keeps_the_records_before_the_cut(void **state)
{
    (void)state;
    size_t n;
    int64_t corrupt;
    uint8_t *bytes = make_few(&n);
    for (size_t cut = 0; cut <= n; cut += (cut + 70) % place_of(1) < 140 ? 1 : 17) {
        clear();
        rig_store(segment_0, bytes, cut);
        int whole = 0;
        while (whole < FEW && place_of(whole + 1) <= cut)
            whole++;
        assert_int_equal(lost_of_few(&corrupt), FEW - whole);
        assert_int_equal(corrupt, 0);
    }
    free(bytes);
}

static void what_a_killed_writer_left_is_cut_off_by_the_next(void **state)
{
    (void)state;
    static uint8_t torn[RIG_BODY];
    size_t n, after;
    free(make_few(&n));
    rig_body(1, torn, sizeof(torn));
    int fd = open(rig_path(segment_0), O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, torn, sizeof(torn)), sizeof(torn));
    close(fd);
    struct disk *d = rig_open(NULL);
    assert_int_equal(rig_write(d, FEW, SMALL, false), 0); /* shorter than what was left */
    disk_close(d);
    free(rig_load(segment_0, &after));
    assert_int_equal(after,
                     n + record_bytes(rig_info(FEW).n_tokens, (uint32_t)rig_size(FEW, SMALL)));
    d = rig_open(NULL);
    for (int i = 0; i <= FEW; i++)
        assert_int_equal(rig_read(d, i, SMALL), 1);
    assert_int_equal(rig_stats(d).corrupt, 0);
    disk_close(d);
}

static void zeros_in_a_file_cost_the_records_they_hit(void **state)
{
    (void)state;
    size_t n;
    int64_t corrupt;
    uint8_t *bytes = make_few(&n), *holed = malloc(n);
    for (size_t from = SEGMENT_0_HEAD; from < n; from += 97)
        for (size_t to = from + 1; to < 2 * n; to += 611) {
            clear();
            memcpy(holed, bytes, n);
            memset(holed + from, 0, (to < n ? to : n) - from);
            rig_store(segment_0, holed, n);
            int hit = 0;
            for (int i = 0; i < FEW; i++)
                hit += from < place_of(i + 1) && to > place_of(i);
            assert_true(lost_of_few(&corrupt) <= hit);
        }
    free(bytes);
    free(holed);
}

static void damage_under_an_open_store_is_noticed(void **state)
{
    (void)state;
    size_t n;
    struct record_info info = rig_info(2);
    uint8_t *bytes = make_few(&n);
    struct disk *d = rig_open(NULL);
    bytes[place_of(3) - 70] ^= 4;
    rig_store(segment_0, bytes, n); /* the same inode */
    assert_int_equal(rig_read(d, 2, SMALL), -ERR_CORRUPT);
    assert_int_equal(rig_read(d, 2, SMALL), 0);
    assert_false(disk_has(d, info.key));
    assert_int_equal(rig_stats(d).corrupt, 1);
    free(bytes);
    bytes = rig_load(segment_0, &n);
    assert_int_equal(bytes[place_of(2) + RECORD_STATE_AT], RECORD_BAD);
    assert_int_equal(rig_write(d, 2, SMALL, false), 0);
    assert_int_equal(rig_read(d, 2, SMALL), 1);
    disk_condemn(d, info.key);
    assert_int_equal(rig_read(d, 2, SMALL), 0);
    assert_int_equal(rig_stats(d).corrupt, 2);
    assert_int_equal(rig_write(d, 2, SMALL, false), 0);
    disk_close(d);
    free(bytes);
}

/* ---- failing calls ---- */

static int lines_of(const char *name)
{
    size_t n;
    int lines = 0;
    uint8_t *text = rig_load(name, &n);
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    free(text);
    return lines;
}

/* Ten writes and a sync, of which the k-th call fails. Returns whether one did. */
static bool fails_once(int how, long k, const struct disk_options *o)
{
    enum { N = 10 };
    clear();
    struct disk *d = rig_open(o);
    for (int i = 100; i < 110; i++)
        rig_write(d, i, RIG_BODY, false);
    sys_fail_after(SYS_WRITE | SYS_SYNC | SYS_TRUNCATE, k, how);
    int stored[N], last = 0;
    for (int i = 0; i < N; i++) {
        stored[i] = rig_write(d, i, RIG_BODY, false);
        assert_true(stored[i] == 0 || stored[i] == 2);
        assert_true(stored[i] >= last); /* once it has failed, nothing is written */
        last = stored[i];
    }
    disk_sync(d);
    bool failed = !rig_stats(d).writing;
    sys_fail_after(0, 0, 0);
    assert_true(failed || last == 0);
    for (int i = 0; i < N; i++)
        if (stored[i] == 0 && !o)
            assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    if (failed)
        assert_int_equal(rig_write(d, 50, RIG_BODY, false), 2);
    disk_close(d);
    d = rig_open(o);
    for (int i = 0; i < N; i++) {
        int rc = rig_read(d, i, RIG_BODY);
        assert_true(o || rc == (stored[i] == 0));
    }
    assert_int_equal(rig_stats(d).corrupt, 0);
    assert_int_equal(rig_write(d, 60, RIG_BODY, false), 0);
    assert_int_equal(rig_read(d, 60, RIG_BODY), 1);
    disk_close(d);
    return failed;
}

static void after_a_failed_write_nothing_is_written_and_all_is_read(void **state)
{
    (void)state;
    static const int hows[] = {ENOSPC, EIO, EROFS, EDQUOT};
    for (size_t h = 0; h < ARRAY_LEN(hows); h++) {
        long k = 1;
        while (fails_once(hows[h], k, NULL))
            k++;
        assert_true(k > 10);
    }
}

static void a_failed_write_while_evicting_harms_nothing(void **state)
{
    (void)state;
    struct disk_options o = {.limit = 1 << 20, .segment_bytes = 256 << 10};
    long k = 1;
    while (fails_once(ENOSPC, k, &o))
        k++;
    assert_true(k > 20);
}

static void a_failure_is_said_once(void **state)
{
    (void)state;
    struct disk *d = rig_open(NULL);
    fflush(stderr);
    int kept = dup(2), log = open(rig_path("log"), O_RDWR | O_CREAT, 0600);
    dup2(log, 2);
    log_set_level(LOG_WARN);
    sys_fail_after(SYS_WRITE, 1, ENOSPC);
    for (int i = 0; i < 20; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 2);
    disk_sync(d);
    sys_fail_after(0, 0, 0);
    disk_close(d);
    log_set_level(LOG_ERROR);
    dup2(kept, 2);
    close(kept);
    close(log);
    assert_int_equal(lines_of("log"), 1);
}

static void short_reads_and_writes_change_nothing(void **state)
{
    (void)state;
    sys_fail_after(SYS_READ | SYS_WRITE, 1, SYS_SHORT);
    struct disk *d = rig_open(&(struct disk_options){.limit = 4 << 20});
    for (int i = 0; i < 100; i++) {
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    }
    disk_close(d);
    d = rig_open(NULL);
    assert_int_equal(rig_read(d, 99, RIG_BODY), 1);
    assert_int_equal(rig_stats(d).corrupt, 0);
    disk_close(d);
    sys_fail_after(0, 0, 0);
}

static void reads_that_fail_destroy_nothing(void **state)
{
    (void)state;
    size_t n;
    free(make_few(&n));
    for (long k = 1; k < 30; k++) {
        sys_fail_after(SYS_READ, k, EIO);
        struct disk *d = rig_open(NULL);
        for (int i = 0; i < FEW; i++) {
            int rc = rig_read(d, i, SMALL);
            assert_true(rc == 1 || rc == 0 || rc == -ERR_IO);
        }
        rig_write(d, 100 + (int)k, SMALL, false);
        sys_fail_after(0, 0, 0);
        disk_close(d);
        d = rig_open(NULL);
        for (int i = 0; i < FEW; i++)
            assert_int_equal(rig_read(d, i, SMALL), 1);
        assert_int_equal(rig_stats(d).corrupt, 0);
        disk_close(d);
    }
}

static void where_blocks_cannot_be_given_back_whole_segments_go(void **state)
{
    (void)state;
    enum { LIMIT = 8 << 20 };
    sys_fail_after(SYS_PUNCH, 1, EOPNOTSUPP);
    struct disk *d = rig_open(&(struct disk_options){.limit = LIMIT});
    int kept = 0;
    for (int i = 0; i < 400; i++) {
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
        assert_true(rig_blocks() <= LIMIT);
    }
    for (int i = 0; i < 400; i++)
        kept += rig_read(d, i, RIG_BODY) == 1;
    sys_fail_after(0, 0, 0);
    assert_true(kept > 80);
    disk_close(d);
}

/* ---- killed writers ---- */

/* Write records [from, from + n), sync after every third, and tell through the pipe up to which they are durable. */
static void write_and_tell(int pipe_fd, const struct disk_options *o, int from, int n, long k)
{
    sys_fail_after(SYS_WRITE | SYS_SYNC | SYS_TRUNCATE | SYS_PUNCH, k, SYS_DIE);
    struct disk *d = rig_open(o);
    for (int i = from; i < from + n; i++) {
        struct record_info info = rig_info(i);
        disk_touch(d, info.key);
        rig_write(d, i, RIG_BODY, i % 4 == 0);
        if (i % 11 == 10)
            disk_remove(d, rig_info(i - 7).key);
        if (i % 3 != 2)
            continue;
        disk_sync(d);
        int next = i + 1;
        if (write(pipe_fd, &next, sizeof(next)) != sizeof(next))
            _exit(2);
    }
    disk_close(d);
    _exit(0);
}

/* Let a child write, kill it after wait_us (0: it dies by itself at step k), and check the folder. Returns whether it
 * lived to its end. */
static bool kill_and_check(const struct disk_options *o, int from, int n, long k, int wait_us)
{
    int ends[2], durable = from, next, status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        write_and_tell(ends[1], o, from, n, k);
    }
    close(ends[1]);
    if (wait_us) {
        struct timespec t = {.tv_nsec = wait_us * 1000L};
        nanosleep(&t, NULL);
        kill(child, SIGKILL);
    }
    while (read(ends[0], &next, sizeof(next)) == sizeof(next))
        durable = next;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    bool lived = WIFEXITED(status);
    assert_true(!lived || WEXITSTATUS(status) == 0);
    if (o && o->limit)
        assert_true(rig_blocks() <= o->limit);
    struct disk *d = rig_open(o);
    for (int i = from; i < from + n; i++) {
        int rc = rig_read(d, i, RIG_BODY);
        bool removed = i % 11 == 3; /* or may be about to be */
        assert_true(rc == 0 || rc == 1);
        if (i < durable && !removed && !(o && o->limit))
            assert_int_equal(rc, 1);
    }
    assert_int_equal(rig_stats(d).corrupt, 0);
    assert_int_equal(rig_write(d, from + 1000000, RIG_BODY, false), 0);
    assert_int_equal(rig_read(d, from + 1000000, RIG_BODY), 1);
    disk_close(d);
    return lived;
}

static void a_writer_killed_at_any_step_leaves_what_it_had_synced(void **state)
{
    (void)state;
    long k = 1;
    for (;; k++) {
        clear();
        if (kill_and_check(&(struct disk_options){.segment_bytes = 256 << 10}, 0, 24, k, 0))
            break;
    }
    assert_true(k > 30);
    for (k = 1;; k++) {
        clear();
        if (kill_and_check(&(struct disk_options){.limit = 1 << 20}, 0, 36, k, 0))
            break;
    }
    assert_true(k > 60);
}

static void writers_killed_at_any_time_leave_what_they_had_synced(void **state)
{
    (void)state;
#ifdef SANITIZED
    enum { KILLS = 30 };
#else
    enum { KILLS = 200 };
#endif
    uint64_t s = 1;
    struct disk_options with[] = {{.segment_bytes = 1 << 20}, {.limit = 2 << 20}};
    for (int i = 0; i < KILLS; i++) {
        if (i % 50 == 0)
            clear();
        kill_and_check(&with[i / 50 % 2], 1000 * i, 200, 0, 1 + (int)(rig_random(&s) % 20000));
    }
}

int main(void)
{
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, rig_setup_fast, rig_teardown)
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(a_flipped_bit_costs_at_most_its_record),
        IN_A_FOLDER(a_file_cut_anywhere_keeps_the_records_before_the_cut),
        IN_A_FOLDER(what_a_killed_writer_left_is_cut_off_by_the_next),
        IN_A_FOLDER(zeros_in_a_file_cost_the_records_they_hit),
        IN_A_FOLDER(damage_under_an_open_store_is_noticed),
        IN_A_FOLDER(after_a_failed_write_nothing_is_written_and_all_is_read),
        IN_A_FOLDER(a_failed_write_while_evicting_harms_nothing),
        IN_A_FOLDER(a_failure_is_said_once),
        IN_A_FOLDER(short_reads_and_writes_change_nothing),
        IN_A_FOLDER(reads_that_fail_destroy_nothing),
        IN_A_FOLDER(where_blocks_cannot_be_given_back_whole_segments_go),
        IN_A_FOLDER(a_writer_killed_at_any_step_leaves_what_it_had_synced),
        IN_A_FOLDER(writers_killed_at_any_time_leave_what_they_had_synced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

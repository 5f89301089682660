/* The folder of KV pages: what is written is read, by anybody, and within the limit. */
#include "tests/unit/disk_rig.h"

#include <time.h>

#include <time.h>

static void what_is_written_is_read_at_once_and_after_reopening(void **state)
{
    (void)state;
    struct disk *d = rig_open(NULL);
    for (int i = 0; i < 50; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    assert_int_equal(rig_write(d, 7, RIG_BODY, false), 1);
    assert_int_equal(rig_read(d, 50, RIG_BODY), 0);
    assert_int_equal(rig_stats(d).records, 50);
    assert_int_equal(rig_stats(d).already_there, 1);
    disk_sync(d);
    disk_close(d);
    d = rig_open(NULL);
    struct record_info info = rig_info(50);
    assert_false(disk_has(d, info.key));
    for (int i = 0; i < 50; i++) {
        info = rig_info(i);
        assert_true(disk_has(d, info.key));
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    }
    assert_int_equal(rig_stats(d).corrupt, 0);
    disk_close(d);
    disk_close(NULL);
}

static void other_token_ids_under_the_same_key_are_a_miss(void **state)
{
    (void)state;
    struct disk *d = rig_open(NULL);
    struct record_info info = rig_info(1), got;
    static uint8_t body[RIG_BODY];
    struct err e = {0};
    size_t n;
    assert_int_equal(rig_write(d, 1, RIG_BODY, false), 0);
    info.tokens[63]++;
    assert_int_equal(disk_read(d, info.key, info.tokens, 64, &got, body, sizeof(body), &n, &e),
                     0);
    info.tokens[63]--;
    assert_int_equal(disk_read(d, info.key, info.tokens, 63, &got, body, sizeof(body), &n, &e),
                     0);
    assert_int_equal(disk_read(d, info.key, NULL, 0, &got, body, sizeof(body), &n, &e), 1);
    assert_int_equal(rig_read(d, 1, RIG_BODY), 1);
    disk_close(d);
}

static void the_limit_holds_at_every_write(void **state)
{
    (void)state;
    enum { LIMIT = 8 << 20 };
    struct disk *d = rig_open(&(struct disk_options){.limit = LIMIT});
    int kept = 0;
    static uint8_t ring[1 << 20];
    for (int i = 0; i < 500; i++) {
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
        assert_true(rig_blocks() <= LIMIT);
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
        if (i == 20) /* a file of somebody else counts, too */
            rig_store("events.ring", ring, sizeof(ring));
        for (int k = 0; k < 20; k++) /* and the history */
            disk_touch(d, rig_info(1000 * i + k).key);
    }
    for (int i = 0; i < 500; i++)
        kept += rig_read(d, i, RIG_BODY) == 1;
    assert_true(kept > 80); /* of some 6.7 MiB, by records of about 52 KiB */
    assert_int_equal(rig_stats(d).records, kept);
    assert_int_equal(rig_stats(d).evicted, 500 - kept);
    assert_int_equal(rig_stats(d).corrupt, 0);
    disk_close(d);
    assert_true(rig_blocks() <= LIMIT);
    disk_close(
        rig_open(&(struct disk_options){.limit = LIMIT / 2})); /* a lower limit holds at once */
    assert_true(rig_blocks() <= LIMIT / 2);
}

static void colliding_keys_never_give_a_wrong_page(void **state)
{
    (void)state;
    enum { N = 2000 };
    struct disk *d = rig_open(&(struct disk_options){.cut_key_bits = 8});
    int stored = 0, there = 0, found = 0;
    for (int i = 0; i < N; i++) {
        int rc = rig_write(d, i, 512, false);
        stored += rc == 0;
        there += rc == 1;
    }
    assert_int_equal(stored, 256);
    assert_int_equal(there, N - 256);
    for (int i = 0; i < N; i++) { /* rig_read() fails the test for a page of another i */
        int rc = rig_read(d, i, 512);
        assert_true(rc == 0 || rc == 1);
        found += rc;
    }
    assert_int_equal(found, 256);
    assert_int_equal(rig_stats(d).corrupt, 0);
    disk_close(d);
}

/* Without its first pages no other page of a prompt is ever found. */
static void of_records_used_at_one_time_those_written_first_stay(void **state)
{
    (void)state;
    enum { LIMIT = 4 << 20, N = 230, FIRST = 20 };
    struct disk *d = rig_open(&(struct disk_options){.limit = LIMIT});
    struct disk_stats s;
    time_t begun;
    int first = 0;
    do { /* other keys when a second of the clock of uses ended meanwhile */
        first += N;
        begun = time(NULL);
        for (int i = first; i < first + N; i++)
            disk_touch(d, rig_info(i).key);
    } while (time(NULL) != begun);
    for (int i = first; i < first + N; i++)
        (void)rig_write(d, i, RIG_BODY, false);
    disk_get_stats(d, &s);
    assert_true(s.evicted >= 100);
    for (int i = first; i < first + FIRST; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    disk_close(d);
}

static void pinned_records_outlive_any_eviction(void **state)
{
    (void)state;
    enum { LIMIT = 4 << 20, PINNED = 10 };
    struct disk *d = rig_open(&(struct disk_options){.limit = LIMIT});
    struct disk *other = rig_open(&(struct disk_options){.limit = LIMIT});
    for (int i = 0; i < 2 * PINNED; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    disk_refresh(other);
    for (int i = 0; i < PINNED; i++) /* d does not know of it */
        disk_pin(other, rig_info(i).key, true);
    disk_pin(other, rig_info(9999).key, true); /* no such record */
    disk_close(other);
    for (int i = 100; i < 400; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    for (int i = 0; i < PINNED; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    disk_close(d);
    d = rig_open(
        &(struct disk_options){.limit = LIMIT / 8}); /* too little for the pinned ones */
    for (int i = 0; i < PINNED; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    for (int i = PINNED; i < 2 * PINNED; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 0);
    for (int i = 0; i < PINNED; i++)
        disk_pin(d, rig_info(i).key, false);
    (void)rig_write(d, 400, RIG_BODY, false);
    int left = 0;
    for (int i = 0; i < PINNED; i++)
        left += rig_read(d, i, RIG_BODY) == 1;
    assert_true(left < PINNED);
    disk_close(d);
}

static void
what_a_run_spilled_for_itself_stays_while_it_lives_and_goes_first_after(void **state)
{
    (void)state;
    enum { LIMIT = 4 << 20, SPILLED = 30 };
    struct disk_options o = {.limit = LIMIT};
    struct disk *d = rig_open(&o), *run = rig_open(&o);
    for (int i = 0; i < SPILLED; i++)
        assert_int_equal(rig_write(run, i, RIG_BODY, true), 0);
    for (int i = 100; i < 200; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    for (int i = 0; i < SPILLED; i++)
        assert_int_equal(rig_read(run, i, RIG_BODY), 1);
    disk_close(run);
    disk_close(d);
    d = rig_open(&o);
    int kept = 0;
    for (int i = 100; i < 200; i++)
        kept += disk_has(d, rig_info(i).key);
    for (int i = 200; i < 200 + SPILLED / 2; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    for (int i = 100; i < 200; i++)
        kept -= disk_has(d, rig_info(i).key);
    assert_int_equal(kept, 0); /* room came from what the run had left */
    disk_close(d);
}

static void when_nothing_may_go_a_write_is_refused_and_the_store_goes_on(void **state)
{
    (void)state;
    struct disk *d = rig_open(&(struct disk_options){.limit = 2 << 20});
    int stored = 0;
    for (int i = 0; i < 100; i++)
        stored += rig_write(d, i, RIG_BODY, true) == 0;
    assert_true(stored > 15 && stored < 40);
    assert_int_equal(rig_stats(d).full, 100 - stored);
    assert_true(rig_stats(d).writing);
    for (int i = 0; i < stored; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    for (int i = 0; i < 8; i++)
        disk_remove(d, rig_info(i).key);
    for (int i = 200; i < 204; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    assert_int_equal(rig_write(d, 300, 1 << 20, false), 2); /* and one that is too much ever */
    disk_close(d);
}

static void what_one_run_spilled_and_another_keeps_is_kept(void **state)
{
    (void)state;
    struct disk *run = rig_open(NULL), *d = rig_open(NULL);
    assert_int_equal(rig_write(run, 1, RIG_BODY, true), 0);
    assert_int_equal(rig_write(run, 2, RIG_BODY, true), 0);
    assert_int_equal(rig_write(d, 1, RIG_BODY, false), 1);
    assert_int_equal(rig_write(d, 1, RIG_BODY, true), 1);
    assert_int_equal(rig_write(run, 3, RIG_BODY, true), 0);
    assert_int_equal(rig_write(run, 4, RIG_BODY, false), 0);
    disk_refresh(d);
    disk_keep(d, rig_info(3).key);
    disk_remove(run, rig_info(1).key);
    disk_remove(run, rig_info(2).key);
    disk_drop_ephemeral(run, rig_info(3).key);
    disk_drop_ephemeral(run, rig_info(4).key);
    disk_refresh(d);
    for (int i = 3; i < 5; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    assert_int_equal(rig_read(d, 1, RIG_BODY), 1);
    assert_int_equal(rig_read(run, 1, RIG_BODY), 1);
    assert_int_equal(rig_read(d, 2, RIG_BODY), 0);
    disk_close(run);
    disk_close(d);
}

static void a_record_that_another_removes_is_a_miss_and_not_corrupt(void **state)
{
    (void)state;
    struct disk_options o = {.segment_bytes = 256 << 10};
    struct disk *a = rig_open(&o), *b = rig_open(&o);
    for (int i = 0; i < 20; i++)
        assert_int_equal(rig_write(a, i, RIG_BODY, false), 0);
    disk_refresh(b);
    for (int i = 0; i < 18; i++)
        disk_remove(b, rig_info(i).key);
    for (int i = 0; i < 9; i++) /* not told yet */
        assert_int_equal(rig_read(a, i, RIG_BODY), 0);
    disk_refresh(a);
    for (int i = 9; i < 18; i++)
        assert_false(disk_has(a, rig_info(i).key));
    for (int i = 18; i < 20; i++)
        assert_int_equal(rig_read(a, i, RIG_BODY), 1);
    assert_int_equal(rig_stats(a).corrupt, 0);
    assert_int_equal(rig_stats(a).records, 2);
    for (int i = 0; i < 18; i++)
        assert_int_equal(rig_write(a, i, RIG_BODY, false), 0);
    disk_refresh(b);
    for (int i = 0; i < 20; i++)
        assert_int_equal(rig_read(b, i, RIG_BODY), 1);
    disk_close(a);
    disk_close(b);
}

static void a_folder_that_is_deleted_costs_only_its_pages(void **state)
{
    (void)state;
    char command[256];
    struct disk *d = rig_open(NULL);
    for (int i = 0; i < 5; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, i % 2), 0);
    snprintf(command, sizeof(command), "rm -rf '%s'", rig_folder);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 5; i++)
        assert_true(rig_read(d, i, RIG_BODY) >= 0);
    assert_int_equal(rig_write(d, 10, RIG_BODY, true), 0);
    assert_int_equal(rig_read(d, 10, RIG_BODY), 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 0);
    snprintf(command, sizeof(command), "rm -f '%s'/*.seg '%s'/lock", rig_folder, rig_folder);
    assert_int_equal(system(command), 0);
    struct disk *other = rig_open(NULL); /* with a lock of its own */
    assert_int_equal(rig_write(other, 20, RIG_BODY, false), 0);
    assert_int_equal(rig_write(d, 21, RIG_BODY, false), 0);
    assert_int_equal(rig_read(d, 20, RIG_BODY), 1);
    assert_int_equal(rig_read(d, 10, RIG_BODY), 0);
    disk_refresh(other);
    assert_int_equal(rig_read(other, 21, RIG_BODY), 1);
    assert_int_equal(rig_stats(d).corrupt + rig_stats(other).corrupt, 0);
    disk_close(d);
    disk_close(other);
}

static int open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void many_segments_need_few_descriptors(void **state)
{
    (void)state;
    enum { N = 300 };
    struct disk_options o = {.segment_bytes = 4096};
    struct disk *d = rig_open(&o);
    for (int i = 0; i < N; i++)
        assert_int_equal(rig_write(d, i, 4000, false), 0);
    disk_sync(d);
    disk_close(d);
    int before = open_files();
    d = rig_open(&o);
    for (int i = 0; i < N; i++)
        assert_int_equal(rig_read(d, i, 4000), 1);
    assert_true(rig_stats(d).segments >= N / 2);
    assert_true(open_files() - before < 80);
    disk_close(d);
    assert_int_equal(open_files(), before);
}

static void a_hostile_folder_costs_only_misses(void **state)
{
    (void)state;
    static uint8_t garbage[100000];
    size_t n;
    struct disk *d = rig_open(NULL);
    assert_int_equal(rig_write(d, 1, RIG_BODY, false), 0);
    disk_close(d);
    rig_body(3, garbage, sizeof(garbage));
    rig_store("00000001.seg", garbage, sizeof(garbage));
    assert_int_equal(mkdir(rig_path("00000002.seg"), 0700), 0);
    assert_int_equal(symlink("/etc/passwd", rig_path("00000003.seg")), 0);
    assert_int_equal(mkfifo(rig_path("00000004.seg"), 0600), 0);
    segment_head_put(garbage);
    rig_store("00000005.seg", garbage, sizeof(garbage));
    uint8_t *copy = rig_load("00000000.seg", &n);
    rig_store("00000006.seg", copy, n); /* every record twice */
    free(copy);
    garbage[8]++;
    rig_store("00000007.seg", garbage, sizeof(garbage)); /* of a later version */
    rig_store("uses", garbage, 5000);
    rig_store("1.seg", garbage, 5000);
    rig_store("0123456789abcdef.run", garbage, 1);
    for (int round = 0; round < 2; round++) {
        d = rig_open(&(struct disk_options){.limit = 4 << 20});
        assert_int_equal(rig_read(d, 100 * round + 1, RIG_BODY), round == 0);
        for (int i = 100 * round; i < 100 * round + 90; i++) {
            assert_int_equal(rig_write(d, i, RIG_BODY, false), round == 0 && i == 1);
            assert_int_equal(rig_read(d, i, RIG_BODY), 1);
            disk_touch(d, rig_info(1).key);
        }
        disk_close(d);
    }
    uint8_t *later = rig_load("00000007.seg", &n);
    assert_int_equal(n, sizeof(garbage)); /* nobody else's is touched */
    assert_memory_equal(later, garbage, n);
    free(later);
    assert_int_equal(access(rig_path("0123456789abcdef.run"), F_OK), -1);
    unlink(rig_path("lock"));
    assert_int_equal(symlink("/etc/passwd", rig_path("lock")), 0);
    d = rig_open(NULL);
    assert_false(rig_stats(d).writing);
    assert_int_equal(rig_read(d, 189, RIG_BODY), 1);
    assert_int_equal(rig_write(d, 500, RIG_BODY, false), 2);
    disk_close(d);
}

static void a_read_only_store_reads_and_changes_nothing(void **state)
{
    (void)state;
    size_t n, m;
    struct err e = {0};
    struct disk *d = rig_open(NULL);
    for (int i = 0; i < 5; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    disk_close(d);
    uint8_t *before = rig_load("00000000.seg", &n);
    before[SEGMENT_HEAD_BYTES + 1000] ^= 1;
    rig_store("00000000.seg", before, n);
    d = rig_open(&(struct disk_options){.read_only = true});
    assert_int_equal(rig_read(d, 0, RIG_BODY), -ERR_CORRUPT);
    for (int i = 1; i < 5; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    assert_int_equal(rig_write(d, 7, RIG_BODY, false), 2);
    disk_remove(d, rig_info(1).key);
    assert_int_equal(rig_read(d, 1, RIG_BODY), 0);
    disk_touch(d, rig_info(2).key);
    disk_pin(d, rig_info(2).key, true);
    disk_sync(d);
    disk_close(d);
    uint8_t *after = rig_load("00000000.seg", &m);
    assert_int_equal(n, m);
    assert_memory_equal(before, after, n);
    free(before);
    free(after);
    assert_int_equal(disk_open(&d, &(struct disk_options){.folder = "/proc/nowhere"}, &e),
                     -ERR_IO);
    assert_int_equal(e.reach, REACH_JOB);
    assert_non_null(strstr(e.msg, "/proc/nowhere"));
}

static void the_history_of_uses_outlives_runs_and_merges(void **state)
{
    (void)state;
    struct disk *a = rig_open(NULL), *b = rig_open(NULL);
    disk_touch(a, rig_info(1).key);
    disk_touch(b, rig_info(2).key);
    assert_false(disk_was_used(a, rig_info(1).key)); /* by this process only */
    disk_close(a);
    disk_close(b);
    struct disk *c = rig_open(NULL);
    assert_true(disk_was_used(c, rig_info(1).key));
    assert_true(disk_was_used(c, rig_info(2).key));
    assert_false(disk_was_used(c, rig_info(3).key));
    disk_close(c);
    size_t n;
    uint8_t *bytes = rig_load("uses", &n);
    bytes[n - 3] ^= 1;
    rig_store("uses", bytes, n);
    free(bytes);
    c = rig_open(NULL);
    assert_false(disk_was_used(c, rig_info(1).key));
    disk_touch(c, rig_info(3).key);
    disk_close(c);
    c = rig_open(NULL);
    assert_true(disk_was_used(c, rig_info(3).key));
    disk_close(c);
}

int main(void)
{
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(what_is_written_is_read_at_once_and_after_reopening),
        IN_A_FOLDER(other_token_ids_under_the_same_key_are_a_miss),
        IN_A_FOLDER(the_limit_holds_at_every_write),
        IN_A_FOLDER(colliding_keys_never_give_a_wrong_page),
        IN_A_FOLDER(of_records_used_at_one_time_those_written_first_stay),
        IN_A_FOLDER(pinned_records_outlive_any_eviction),
        IN_A_FOLDER(what_a_run_spilled_for_itself_stays_while_it_lives_and_goes_first_after),
        IN_A_FOLDER(when_nothing_may_go_a_write_is_refused_and_the_store_goes_on),
        IN_A_FOLDER(what_one_run_spilled_and_another_keeps_is_kept),
        IN_A_FOLDER(a_record_that_another_removes_is_a_miss_and_not_corrupt),
        IN_A_FOLDER(a_folder_that_is_deleted_costs_only_its_pages),
        IN_A_FOLDER(many_segments_need_few_descriptors),
        IN_A_FOLDER(a_hostile_folder_costs_only_misses),
        IN_A_FOLDER(a_read_only_store_reads_and_changes_nothing),
        IN_A_FOLDER(the_history_of_uses_outlives_runs_and_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a prompt finds in the store that did it once: in memory, on disk, the next night, after it was parked; and
 * that nothing which fails on the way changes what it finds. Pages tell what they are of (store_rig.h), and each
 * rig_compute() looks at all of them. */
#include "tests/unit/disk_rig.h"
#include "tests/unit/store_rig.h"

#include "stages/base/sys.h"

#include <errno.h>
#include <sys/file.h>

static const int lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 300};
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]), LONGEST = 300 };

/* Prompt k, unlike all others from its first token. */
static const int32_t *prompt_of(int k)
{
    static int32_t tokens[64][LONGEST];
    for (int i = 0; i < LONGEST; i++)
        tokens[k][i] = 1000 * (k + 1) + i;
    return tokens[k];
}

static void open_keeping(struct store_rig *g, enum keep keep, int n_pages)
{
    *g = (struct store_rig){.options.keep = keep, .options.codec = CODEC_SPLIT};
    store_rig_open(g, n_pages, rig_folder);
}

/* The records in the folder, as the rig's store knows them. */
static int64_t records(struct store_rig *g)
{
    rig_settle(g);
    return rig_stats(g->disk).records;
}

/* Give all idle pages away. */
static void turn_pool_over(struct store_rig *g)
{
    struct err e = {0};
    rig_settle(g);
    struct block_table *all = block_table_new(g->pool);
    int room = store_room(g->store);
    assert_int_equal(block_table_reserve(all, room * PAGE_TOKENS, &e), 0);
    block_table_free(all);
}

/* ---- found again ---- */

static void without_a_disk_all_full_pages_are_found_but_for_the_last_token(void **state)
{
    (void)state;
    struct store_rig g = {0};
    store_rig_open(&g, 64, NULL);
    assert_false(store_can_park(g.store));
    for (int k = 0; k < N_LENGTHS; k++) {
        int n = lengths[k], full = n / 64 * 64;
        assert_int_equal(rig_found(&g, prompt_of(k), n), 0);
        /* The copy of a page ends before the last token, which is computed for its logits. */
        assert_int_equal(rig_found(&g, prompt_of(k), n), n == full ? n - 1 : full);
    }
    store_rig_close(&g);
}

static void expect_whole(struct store_rig *g, int k)
{
    struct store_prompt *p = rig_fill(g, prompt_of(k), lengths[k]);
    assert_int_equal(p->found, lengths[k]);
    assert_true(p->has_logits);
    store_drop(p);
}

static void a_prompt_that_is_kept_is_found_whole_with_its_logits(void **state)
{
    (void)state;
    struct store_rig g;
    open_keeping(&g, KEEP_ALL, 16);
    for (int k = 0; k < N_LENGTHS; k++) {
        assert_int_equal(rig_found(&g, prompt_of(k), lengths[k]), 0);
        rig_settle(&g);
        expect_whole(&g, k);
    }
    turn_pool_over(&g);
    for (int k = 0; k < N_LENGTHS; k++)
        expect_whole(&g, k);
    store_rig_close(&g);
    open_keeping(&g, KEEP_ALL, 16); /* the next night */
    for (int k = N_LENGTHS; k-- > 0;)
        expect_whole(&g, k);
    assert_int_equal(g.counters.pages_corrupt, 0);
    assert_int_equal(g.counters.lookup_tokens,
                     g.counters.hit_tokens[KV_RAM] + g.counters.hit_tokens[KV_DISK]);
    store_rig_close(&g);
}

static void a_longer_prompt_finds_the_pages_of_a_shorter_one_on_disk(void **state)
{
    (void)state;
    struct store_rig g;
    open_keeping(&g, KEEP_ALL, 16);
    assert_int_equal(rig_found(&g, prompt_of(0), 200), 0);
    store_rig_close(&g);
    open_keeping(&g, KEEP_ALL, 16);
    assert_int_equal(rig_found(&g, prompt_of(0), 300), 192);
    assert_int_equal(rig_found(&g, prompt_of(0), 128), 127); /* its last page is copied */
    store_rig_close(&g);
}

static void
one_off_text_is_stored_when_it_comes_a_second_night_and_whole_on_the_third(void **state)
{
    (void)state;
    static const int found[3][2] = {{0, 64}, {64, 64}, {LONGEST, LONGEST}};
    static int32_t tokens[2][LONGEST];
    for (int i = 0; i < LONGEST; i++)
        for (int k = 0; k < 2; k++)
            tokens[k][i] = i < 64 ? i : 1000 * k + i;
    for (int night = 0; night < 3; night++) {
        struct store_rig g = {.own = true, .n_shared = 64};
        store_rig_open(&g, 16, rig_folder);
        for (int k = 0; k < 2; k++)
            assert_int_equal(rig_found(&g, tokens[k], LONGEST), found[night][k]);
        /* The page that all begin with; then also three pages and the end of both. */
        assert_int_equal(records(&g), night == 0 ? 1 : 9);
        store_rig_close(&g);
    }
}

static void with_keep_none_nothing_is_stored(void **state)
{
    (void)state;
    for (int night = 0; night < 3; night++) {
        struct store_rig g;
        open_keeping(&g, KEEP_NONE, 16);
        assert_int_equal(rig_found(&g, prompt_of(0), LONGEST), 0);
        assert_int_equal(rig_found(&g, prompt_of(0), LONGEST), 256);
        assert_int_equal(records(&g), 0);
        store_rig_close(&g);
    }
}

static void without_reuse_nothing_is_found_and_nothing_stored(void **state)
{
    (void)state;
    struct err e = {0};
    struct store_rig g;
    open_keeping(&g, KEEP_ALL, 16);
    store_close(g.store);
    g.options.reuse = false;
    assert_int_equal(store_open(&g.store, &g.options, &e), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rig_found(&g, prompt_of(0), LONGEST), 0);
    assert_int_equal(records(&g), 0);
    assert_false(store_can_park(g.store));
    store_rig_close(&g);
}

static void a_prompt_is_admitted_whole_or_not_at_all(void **state)
{
    (void)state;
    struct store_rig g = {0};
    store_rig_open(&g, 3, NULL);
    struct store_prompt *a = rig_fill(&g, prompt_of(0), 128);
    struct store_prompt *b = rig_hold(&g, prompt_of(0), 128);
    /* Both pages are there and in use; but the last token must be computed, so one more page is needed, */
    assert_int_equal(store_admit(g.store, b, 128, true), 1);
    assert_int_equal(store_ready(g.store, b), 1);
    store_rig_audit(&g, 4);
    struct store_prompt *c = rig_hold(&g, prompt_of(0), 128);
    assert_int_equal(store_admit(g.store, c, 128, true), 0); /* and there is none now. */
    assert_int_equal(store_short(g.store), 1);
    store_drop(b);
    assert_int_equal(store_short(g.store), 0);
    rig_admit(&g, c, true);
    rig_compute(&g, c);
    store_drop(a);
    store_drop(c);
    store_rig_close(&g);
}

/* ---- parked ---- */

static struct store_prompt *park(struct store_rig *g, int k, int n)
{
    float logits[RIG_VOCAB];
    struct store_prompt *p = rig_fill(g, prompt_of(k), n);
    rig_logits(p->tokens, n, logits);
    p->found = n;
    store_park(g->store, p, logits);
    assert_null(p->table);
    return p;
}

/* Back, as decode wants it. Returns the positions that were there. */
static int unpark(struct store_rig *g, struct store_prompt *p)
{
    rig_admit(g, p, false);
    int found = p->found;
    rig_compute(g, p);
    return found;
}

static void
a_parked_prompt_comes_back_from_memory_and_from_disk_and_leaves_nothing(void **state)
{
    (void)state;
    struct store_rig g;
    open_keeping(&g, KEEP_NONE, 7);
    for (int k = 0; k < N_LENGTHS; k++)
        for (int turn = 0; turn < 2; turn++) {
            int n = lengths[k];
            struct store_prompt *p = park(&g, k, n);
            assert_int_equal(records(&g), (n + 63) / 64);
            if (turn)
                turn_pool_over(&g);
            long long loaded = g.counters.pages_loaded;
            assert_int_equal(unpark(&g, p), n);
            assert_int_equal(g.counters.pages_loaded - loaded, turn ? (n + 63) / 64 : 0);
            store_drop(p);
            assert_int_equal(records(&g), 0);
            turn_pool_over(&g);
        }
    store_rig_close(&g);
}

static void more_prompts_than_pages_are_parked_and_all_come_back(void **state)
{
    (void)state;
    enum { N = 20 };
    struct store_rig g;
    struct store_prompt *p[N];
    open_keeping(&g, KEEP_NONE, 6);
    for (int k = 0; k < N; k++)
        p[k] = park(&g, k, LONGEST - k);
    for (int k = 0; k < N; k++) {
        assert_int_equal(unpark(&g, p[k]), LONGEST - k);
        store_drop(p[k]);
    }
    assert_int_equal(records(&g), 0);
    assert_true(g.counters.pages_loaded >= 90);
    store_rig_close(&g);
}

static void a_parked_page_stays_while_another_prompt_wants_it(void **state)
{
    (void)state;
    struct store_rig g;
    open_keeping(&g, KEEP_NONE, 16);
    struct store_prompt *a = park(&g, 0, 200), *b = park(&g, 0, 200), *c = park(&g, 0, 130);
    assert_int_equal(records(&g), 5); /* three pages, two tails */
    store_drop(a);
    assert_int_equal(records(&g), 5);
    store_drop(b);
    assert_int_equal(records(&g), 3);
    turn_pool_over(&g);
    assert_int_equal(unpark(&g, c), 130);
    store_drop(c);
    assert_int_equal(records(&g), 0);
    store_rig_close(&g);
}

/* Two compute the same at the same time. */
static void keep_and_park(struct store_rig *g, int k)
{
    float logits[RIG_VOCAB];
    struct store_prompt *a = rig_hold(g, prompt_of(k), 200),
                        *b = rig_hold(g, prompt_of(k), 200);
    rig_admit(g, a, true);
    rig_admit(g, b, true);
    rig_compute(g, a); /* its pages are kept, */
    rig_compute(g, b); /* and these are not indexed */
    rig_logits(b->tokens, 200, logits);
    b->found = a->found = 200;
    store_park(g->store, b, logits);
    store_park(g->store, a, logits);
    store_drop(a);
    store_drop(b);
}

static void what_is_kept_is_not_removed_with_what_was_parked(void **state)
{
    (void)state;
    enum { N = 30 }; /* whose spill comes first is a matter of luck */
    struct store_rig g;
    open_keeping(&g, KEEP_ALL, 16);
    for (int k = 0; k < N; k++)
        keep_and_park(&g, k);
    assert_int_equal(records(&g), 4 * N);
    store_rig_close(&g);
    open_keeping(&g, KEEP_ALL, 16);
    for (int k = 0; k < N; k++)
        assert_int_equal(rig_found(&g, prompt_of(k), 200), 200);
    store_rig_close(&g);
}

static void what_was_parked_is_kept_when_it_proves_worth_it(void **state)
{
    (void)state;
    enum { DROPPED, FOUND, PARKED, TIMES }; /* after what it arrives on disk */
    for (int k = 0; k < TIMES; k++) {
        struct store_rig g = {.own = true};
        store_rig_open(&g, 16, rig_folder);
        int lock = open(rig_path("lock"), O_RDONLY); /* who has it lets no record through */
        assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
        struct store_prompt *a = park(&g, k, 200);
        if (k == PARKED) {
            close(lock);
            rig_settle(&g);
        }
        assert_int_equal(rig_found(&g, prompt_of(k), 150),
                         149); /* a repeat; its end is copied */
        if (k == FOUND) {
            close(lock);
            for (int ms = 0; ms < 60000 && rig_stats(g.disk).records < 2 * k + 4; ms++)
                usleep(1000);
        }
        store_drop(a);
        if (k == DROPPED)
            close(lock);
        assert_int_equal(records(&g), 2 * (k + 1));
        store_rig_close(&g);
        store_rig_open(&g, 16, rig_folder);
        assert_int_equal(rig_found(&g, prompt_of(k), 140), 128);
        store_rig_close(&g);
    }
}

static void a_prompt_that_was_parked_and_dropped_at_once_leaves_nothing(void **state)
{
    (void)state;
    struct store_rig g;
    open_keeping(&g, KEEP_NONE, 16);
    for (int i = 0; i < 50; i++)
        store_drop(park(&g, i % 8, LONGEST));
    assert_int_equal(records(&g), 0);
    store_rig_close(&g);
}

static void delete_segments(void)
{
    DIR *dir = opendir(rig_folder);
    for (struct dirent *x; (x = readdir(dir)) != NULL;)
        if (strstr(x->d_name, ".seg"))
            unlink(rig_path(x->d_name));
    closedir(dir);
}

static void what_the_disk_lost_of_a_parked_prompt_is_computed_again(void **state)
{
    (void)state;
    for (size_t byte = 0; byte < 2700; byte += 97) {
        struct store_rig g;
        size_t n;
        open_keeping(&g, KEEP_NONE, 12);
        struct store_prompt *p = park(&g, 0, LONGEST);
        turn_pool_over(&g);
        uint8_t *bytes = rig_load("00000000.seg", &n);
        if (byte < n) {
            int fd = open(rig_path("00000000.seg"), O_WRONLY);
            uint8_t flipped = bytes[byte] ^ 0x10;
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)byte), 1);
            close(fd);
        }
        free(bytes);
        (void)unpark(&g, p); /* looks at every position */
        float logits[RIG_VOCAB];
        rig_logits(p->tokens, LONGEST, logits);
        p->found = LONGEST;
        store_park(g.store, p, logits); /* once more, with what was computed again */
        turn_pool_over(&g);
        assert_int_equal(unpark(&g, p), LONGEST);
        store_drop(p);
        store_rig_close(&g);
        delete_segments();
    }
    struct store_rig g;
    open_keeping(&g, KEEP_NONE, 12);
    struct store_prompt *p = park(&g, 0, LONGEST);
    turn_pool_over(&g);
    delete_segments();
    assert_true(unpark(&g, p) <= LONGEST);
    store_drop(p);
    store_rig_close(&g);
}

/* Parked again before what was lost is computed. */
static void a_prompt_that_is_parked_half_found_is_still_right(void **state)
{
    (void)state;
    struct store_rig g;
    open_keeping(&g, KEEP_NONE, 12);
    struct store_prompt *p = park(&g, 0, LONGEST);
    rig_settle(&g);
    disk_remove(g.disk, prefix_key(&p->keys, 2));
    turn_pool_over(&g);
    rig_admit(&g, p, false);
    assert_int_equal(p->found, 128);
    float logits[RIG_VOCAB];
    rig_logits(p->tokens, LONGEST, logits);
    store_park(g.store, p, logits);
    turn_pool_over(&g);
    assert_int_equal(unpark(&g, p), 128);
    store_drop(p);
    assert_int_equal(records(&g), 0);
    store_rig_close(&g);
}

/* ---- what is to come ---- */

static void pages_of_held_prompts_outlive_those_of_none(void **state)
{
    (void)state;
    for (int planned = 0; planned < 2; planned++) {
        struct store_rig g = {0};
        struct store_prompt *p = NULL;
        store_rig_open(&g, 8, NULL);
        (void)rig_found(&g, prompt_of(0), 256); /* oldest, so without a plan they go first */
        if (planned)
            p = rig_hold(&g, prompt_of(0), 257);
        for (int k = 1; k < 10; k++)
            (void)rig_found(&g, prompt_of(k), 256);
        assert_int_equal(rig_found(&g, prompt_of(0), 257), planned ? 256 : 0);
        store_drop(p);
        store_rig_close(&g);
    }
}

static void the_prompt_that_comes_last_gives_its_pages_first(void **state)
{
    (void)state;
    struct store_rig g = {0};
    store_rig_open(&g, 9, NULL);
    for (int k = 0; k < 2; k++)
        (void)rig_found(&g, prompt_of(k), 256);
    struct store_prompt *far, *near = rig_hold(&g, prompt_of(0), 257);
    far = rig_hold(&g, prompt_of(1), 257);
    (void)rig_found(&g, prompt_of(2), 256); /* four pages of nobody, then */
    assert_int_equal(rig_found(&g, prompt_of(0), 257), 256);
    assert_true(rig_found(&g, prompt_of(1), 257) < 256);
    store_drop(near);
    store_drop(far);
    store_rig_close(&g);
}

static void loads_do_not_evict_the_other_pages_of_their_prompt(void **state)
{
    (void)state;
    struct store_rig g;
    open_keeping(&g, KEEP_ALL, 4);
    (void)rig_found(&g, prompt_of(0), 256);
    rig_settle(&g);
    struct store_prompt *near = rig_hold(&g, prompt_of(1), 65);
    struct store_prompt *far = rig_hold(&g, prompt_of(0), 256);
    for (int i = 1; i < 4; i++) /* these are in memory only */
        disk_remove(g.disk, prefix_key(&far->keys, i));
    store_drop(rig_hold(&g, prompt_of(0), 256)); /* looks at where pages are */
    (void)rig_found(&g, prompt_of(1), 64);       /* in place of the page that is on disk */
    rig_settle(&g);
    /* Its own pages are used later than the one of `near`, and yet they stay: all of it is found. */
    rig_admit(&g, far, true);
    assert_int_equal(far->found, 256);
    assert_int_equal(g.counters.hit_tokens[KV_DISK], 64);
    store_drop(far);
    store_drop(near);
    store_rig_close(&g);
}

/* ---- a disk that fails ---- */

static void work_on(struct store_rig *g)
{
    struct store_prompt *p[4];
    for (int k = 0; k < 4; k++) {
        p[k] = rig_fill(g, prompt_of(k), LONGEST - k);
        float logits[RIG_VOCAB];
        rig_logits(p[k]->tokens, LONGEST - k, logits);
        p[k]->found = LONGEST - k;
        if (store_can_park(g->store)) {
            store_park(g->store, p[k], logits);
        } else {
            store_drop(p[k]);
            p[k] = NULL;
        }
    }
    for (int k = 0; k < 4; k++) {
        if (p[k])
            (void)unpark(g, p[k]);
        store_drop(p[k]);
    }
}

static void a_failing_disk_costs_only_time(void **state)
{
    (void)state;
    static const int how[] = {ENOSPC, EIO, EROFS, SYS_SHORT};
    static const unsigned ops[] = {SYS_WRITE, SYS_SYNC, SYS_READ, SYS_READ | SYS_WRITE};
    for (size_t h = 0; h < 4; h++)
        for (size_t o = 0; o < 4; o++)
            for (int k = 1; k < 40; k += 1 + k / 4) {
                struct store_rig g;
                open_keeping(&g, h & 1 ? KEEP_ALL : KEEP_NONE, 8);
                sys_fail_after(ops[o], k, how[h]);
                work_on(&g);
                work_on(&g);
                rig_settle(&g);
                if (ops[o] == SYS_WRITE && k == 1 && how[h] != SYS_SHORT)
                    assert_false(store_can_park(g.store));
                sys_fail_after(0, 0, 0);
                store_rig_close(&g);
                open_keeping(&g, KEEP_ALL, 8);
                work_on(&g);
                store_rig_close(&g);
                delete_segments();
            }
}

static void a_store_closes_with_spills_and_loads_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct store_rig g;
        open_keeping(&g, KEEP_ALL, 16);
        struct store_prompt *p = rig_hold(&g, prompt_of(i), LONGEST), *q;
        int rc = store_admit(g.store, p, LONGEST, true); /* from the round before, or nothing */
        assert_int_equal(rc, 1);
        if (i % 2)
            store_drop(p); /* waits for its loads alone */
        q = rig_fill(&g, prompt_of(i % 3), LONGEST);
        store_drop(q);
        if (i % 2 == 0)
            store_drop(p);
        store_close(g.store);
        disk_close(g.disk);
        page_pool_free(g.pool);
    }
}

#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, rig_setup_fast, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_disk_all_full_pages_are_found_but_for_the_last_token),
        ON_DISK(a_prompt_that_is_kept_is_found_whole_with_its_logits),
        ON_DISK(a_longer_prompt_finds_the_pages_of_a_shorter_one_on_disk),
        ON_DISK(one_off_text_is_stored_when_it_comes_a_second_night_and_whole_on_the_third),
        ON_DISK(with_keep_none_nothing_is_stored),
        ON_DISK(without_reuse_nothing_is_found_and_nothing_stored),
        cmocka_unit_test(a_prompt_is_admitted_whole_or_not_at_all),
        ON_DISK(a_parked_prompt_comes_back_from_memory_and_from_disk_and_leaves_nothing),
        ON_DISK(more_prompts_than_pages_are_parked_and_all_come_back),
        ON_DISK(a_parked_page_stays_while_another_prompt_wants_it),
        ON_DISK(what_is_kept_is_not_removed_with_what_was_parked),
        ON_DISK(what_was_parked_is_kept_when_it_proves_worth_it),
        ON_DISK(a_prompt_that_was_parked_and_dropped_at_once_leaves_nothing),
        ON_DISK(what_the_disk_lost_of_a_parked_prompt_is_computed_again),
        ON_DISK(a_prompt_that_is_parked_half_found_is_still_right),
        cmocka_unit_test(pages_of_held_prompts_outlive_those_of_none),
        cmocka_unit_test(the_prompt_that_comes_last_gives_its_pages_first),
        ON_DISK(loads_do_not_evict_the_other_pages_of_their_prompt),
        ON_DISK(a_failing_disk_costs_only_time),
        ON_DISK(a_store_closes_with_spills_and_loads_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

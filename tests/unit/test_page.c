/* Every transition of the state diagram in stages/kv/page.h, and what the audit finds. */
#include "stages/kv/block_table.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct page_pool *pool_of(int n)
{
    struct err e = {0};
    struct page_pool *p;
    assert_int_equal(page_pool_new(&p, n, 2, 100, &e), 0);
    return p;
}

static void sound(struct page_pool *p, int64_t refs)
{
    struct err e = {0};
    if (page_pool_audit(p, refs, &e) != 0)
        fail_msg("%s", e.msg);
}

static struct page_stats stats_of(const struct page_pool *p)
{
    struct page_stats s;
    page_pool_stats(p, &s);
    return s;
}

static void a_new_pool_is_all_free(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(3);
    struct page_stats s = stats_of(p);
    assert_int_equal(s.total, 3);
    assert_int_equal(s.used, 0);
    assert_int_equal(s.idle, 0);
    sound(p, 0);
    page_pool_free(p);
    page_pool_free(NULL);
}

static void an_open_page_goes_back_to_free(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(2);
    page_id a = page_alloc(p);
    assert_int_equal(page_refs(p, a), 1);
    assert_false(page_is_sealed(p, a));
    sound(p, 1);
    page_unref(p, a);
    sound(p, 0);
    assert_int_equal(stats_of(p).used, 0);
    assert_int_equal(stats_of(p).peak_used, 1);
    assert_int_equal(page_alloc(p), a); /* the page freed last is the one in the cache */
    page_unref(p, a);
    page_pool_free(p);
}

static void a_sealed_page_outside_the_index_goes_back_to_free(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(1);
    page_id a = page_alloc(p);
    page_seal(p, a, false);
    page_ref(p, a);
    assert_int_equal(page_refs(p, a), 2);
    sound(p, 2);
    page_unref(p, a);
    page_unref(p, a);
    sound(p, 0);
    assert_int_equal(stats_of(p).idle, 0);
    assert_int_equal(page_alloc(p), a);
    page_unref(p, a);
    page_pool_free(p);
}

static void an_indexed_page_becomes_idle_and_comes_back(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(2);
    page_id a = page_alloc(p);
    memset(page_slice(p, a, 1), 7, 100);
    page_seal(p, a, true);
    page_unref(p, a);
    assert_int_equal(stats_of(p).idle, 1);
    assert_int_equal(stats_of(p).used, 0);
    sound(p, 0);
    page_ref(p, a);
    assert_int_equal(stats_of(p).idle, 0);
    assert_int_equal(stats_of(p).used, 1);
    assert_int_equal(((uint8_t *)page_slice(p, a, 1))[99], 7);
    sound(p, 1);
    page_unref(p, a);
    page_pool_free(p);
}

struct forgotten {
    page_id ids[8];
    int n;
};

static void note(void *ctx, page_id id)
{
    struct forgotten *f = ctx;
    f->ids[f->n++] = id;
}

static void the_oldest_idle_page_is_evicted_first_and_forgotten(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(3);
    struct forgotten f = {.n = 0};
    page_pool_hook(p, &(struct page_hooks){.evict = note, .ctx = &f});
    page_id id[3];
    for (int i = 0; i < 3; i++) {
        id[i] = page_alloc(p);
        page_seal(p, id[i], true);
    }
    assert_int_equal(page_alloc(p), PAGE_NONE); /* every page is referenced */
    page_unref(p, id[1]);
    page_unref(p, id[0]);
    page_unref(p, id[2]);
    page_ref(p, id[1]); /* used again: no longer the oldest */
    page_unref(p, id[1]);
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(page_alloc(p), PAGE_NONE);
    assert_int_equal(f.n, 3);
    assert_int_equal(f.ids[0], id[0]);
    assert_int_equal(f.ids[1], id[2]);
    assert_int_equal(f.ids[2], id[1]);
    assert_int_equal(stats_of(p).evictions, 3);
    assert_int_equal(page_alloc(p), PAGE_NONE);
    sound(p, 3);
    page_pool_free(p);
}

static void slices_are_apart_and_aligned(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(4);
    page_id id[4];
    for (int i = 0; i < 4; i++) {
        id[i] = page_alloc(p);
        for (int l = 0; l < 2; l++) {
            assert_int_equal((uintptr_t)page_slice(p, id[i], l) % 64, 0);
            memset(page_slice(p, id[i], l), 10 * i + l, 100);
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int l = 0; l < 2; l++) {
            const uint8_t *s = page_slice(p, id[i], l);
            for (int b = 0; b < 100; b++)
                assert_int_equal(s[b], 10 * i + l);
        }
        page_unref(p, id[i]);
    }
    page_pool_free(p);
}

static void a_large_pool_costs_nothing_until_it_is_used(void **state)
{
    (void)state;
    struct err e = {0};
    struct page_pool *p;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(page_pool_new(&p, 10000, 30, 49152, &e), 0); /* 14.7 GB of address space */
    page_unref(p, page_alloc(p));
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 64 * 1024);
    page_pool_free(p);
}

/* Bytes of memory that this process holds; 0 where nobody says. */
static size_t resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long all, there = 0;
    if (f && fscanf(f, "%lu %lu", &all, &there) != 2)
        there = 0;
    if (f)
        fclose(f);
    return there * (size_t)sysconf(_SC_PAGESIZE);
}

static void memory_of_free_pages_goes_back_to_the_kernel(void **state)
{
    (void)state;
    enum { N = 100, SLICE = 1 << 20 }; /* 200 MB */
    struct err e = {0};
    struct page_pool *p;
#if !defined(NDEBUG) || defined(SANITIZED)
    print_message("debug builds fill free pages, and sanitizers keep memory of their own\n");
    skip();
#endif
    if (resident() == 0) {
        print_message("no /proc/self/statm\n");
        skip();
    }
    assert_int_equal(page_pool_new(&p, N, 2, SLICE, &e), 0);
    size_t before = resident();
    page_id id[N];
    for (int i = 0; i < N; i++) {
        id[i] = page_alloc(p);
        memset(page_data(p, id[i]), 1, page_pool_page_bytes(p));
    }
    size_t full = resident();
    assert_true(full - before > (size_t)N * SLICE * 19 / 10);
    for (int i = 0; i < N; i++)
        page_unref(p, id[i]);
    assert_true(resident() < before + (size_t)N * SLICE / 10);
    page_pool_free(p);
}

static void a_pool_past_the_address_space_is_refused(void **state)
{
    (void)state;
    struct err e = {0};
    struct page_pool *p;
    assert_int_equal(page_pool_new(&p, INT32_MAX, 512, SIZE_MAX / 1024, &e), -ERR_NOMEM);
    assert_int_equal(e.reach, REACH_JOB);
}

/* Debug builds stop; release builds count, and the audit reports it. */
static void an_underflow_is_detected(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(1);
    page_id a = page_alloc(p);
    page_seal(p, a, true);
    page_unref(p, a);
#ifdef NDEBUG
    page_unref(p, a);
    assert_int_equal(stats_of(p).underflows, 1);
    struct err e = {0};
    assert_int_equal(page_pool_audit(p, 0, &e), -ERR_BUG);
    assert_non_null(strstr(e.msg, "underflow"));
#else
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        page_unref(p, a);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#endif
    page_pool_free(p);
}

static void the_audit_finds_a_reference_too_many(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(1);
    page_id a = page_alloc(p);
    struct err e = {0};
    assert_int_equal(page_pool_audit(p, 0, &e), -ERR_BUG);
    assert_string_equal(e.msg, "KV pool: references: 1, expected 0");
    page_unref(p, a);
    page_pool_free(p);
}

/* ---- small pages ---- */

enum { FULL_SLICE = 64 << 10, SMALL_SLICE = 40 << 10 };

static struct page_pool *pool_with_small(int units)
{
    struct err e = {0};
    struct page_pool *p;
    assert_int_equal(page_pool_new(&p, units, 2, FULL_SLICE, &e), 0);
    assert_int_equal(page_full_units(p), 1);
    page_pool_use_small(p, SMALL_SLICE);
    assert_int_equal(page_full_units(p), 2);
    return p;
}

static void a_page_that_shrinks_makes_room(void **state)
{
    (void)state;
    struct page_pool *p = pool_with_small(4);
    page_id a = page_alloc(p), b = page_alloc(p);
    assert_int_equal(stats_of(p).used, 4);
    assert_int_equal(page_alloc_small(p), PAGE_NONE);
    memset(page_data(p, a), 7, page_bytes(p, a));
    assert_int_equal(page_bytes(p, a), 2 * FULL_SLICE);
    page_shrink(p, a);
    assert_true(page_is_small(p, a) && !page_is_small(p, b));
    assert_int_equal(page_bytes(p, a), 2 * SMALL_SLICE);
    assert_ptr_equal(page_slice(p, a, 1), (uint8_t *)page_data(p, a) + SMALL_SLICE);
    assert_int_equal(((uint8_t *)page_slice(p, a, 1))[SMALL_SLICE - 1], 7);
    assert_int_equal(stats_of(p).used, 3);
    sound(p, 2);
    assert_int_equal(page_alloc(p), PAGE_NONE); /* that takes two */
    page_id c = page_alloc_small(p);
    assert_int_not_equal(c, PAGE_NONE);
    page_shrink(p, c); /* as one that is loaded: it took one all the time */
    assert_int_equal(stats_of(p).used, 4);
    assert_int_equal(stats_of(p).peak_used, 4);
    page_unref(p, a);
    page_unref(p, c);
    page_id d = page_alloc(p); /* in the place of a small one, in full again */
    assert_false(page_is_small(p, d));
    assert_int_equal(page_bytes(p, d), 2 * FULL_SLICE);
    page_unref(p, b);
    page_unref(p, d);
    sound(p, 0);
    page_pool_free(p);
}

static void an_idle_page_that_is_not_small_counts_in_full(void **state)
{
    (void)state;
    struct page_pool *p = pool_with_small(4);
    page_id a = page_alloc(p);
    page_seal(p, a, true);
    page_unref(p, a);
    assert_int_equal(stats_of(p).idle, 2);
    assert_int_equal(stats_of(p).used, 0);
    sound(p, 0);
    page_ref(p, a);
    assert_int_equal(stats_of(p).idle, 0);
    assert_int_equal(stats_of(p).used, 2);
    sound(p, 1);
    page_unref(p, a);
    page_pool_free(p);
}

static void room_for_a_full_page_may_cost_two_idle_ones(void **state)
{
    (void)state;
    struct page_pool *p = pool_with_small(3);
    struct forgotten f = {.n = 0};
    page_pool_hook(p, &(struct page_hooks){.evict = note, .ctx = &f});
    page_id id[3];
    for (int i = 0; i < 3; i++) {
        id[i] = page_alloc_small(p);
        page_shrink(p, id[i]);
        page_seal(p, id[i], true);
        page_unref(p, id[i]);
    }
    assert_int_equal(stats_of(p).idle, 3);
    page_replan(p, id[1]);
    assert_int_equal(stats_of(p).idle, 3);
    page_id full = page_alloc(p);
    assert_int_not_equal(full, PAGE_NONE);
    assert_int_equal(f.n, 2);
    assert_int_equal(stats_of(p).idle, 1);
    assert_int_equal(stats_of(p).used, 2);
    sound(p, 1);
    assert_int_equal(page_alloc(p), PAGE_NONE); /* one idle page is not enough, and is gone */
    assert_int_equal(stats_of(p).idle, 0);
    page_unref(p, full);
    sound(p, 0);
    page_pool_free(p);
}

/* Bytes of this range that are in memory. */
static size_t in_memory(const void *from, size_t n)
{
    size_t kernel = (size_t)sysconf(_SC_PAGESIZE), some = 0;
    unsigned char in[1024];
    assert_true(n / kernel <= sizeof(in) && (uintptr_t)from % kernel == 0);
    assert_int_equal(mincore((void *)(uintptr_t)from, n, in), 0);
    for (size_t i = 0; i < n / kernel; i++)
        some += in[i] & 1 ? kernel : 0;
    return some;
}

static void what_a_small_page_does_not_need_goes_back_to_the_kernel(void **state)
{
    (void)state;
    enum { N = 8 };
    struct page_pool *p = pool_with_small(2 * N);
    page_id id[N];
    for (int i = 0; i < N; i++) {
        id[i] = page_alloc(p);
        memset(page_data(p, id[i]), 1, 2 * FULL_SLICE);
    }
    assert_int_equal(in_memory(page_data(p, id[0]), (size_t)N * 2 * FULL_SLICE),
                     N * 2 * FULL_SLICE);
    for (int i = 0; i < N; i++)
        page_shrink(p, id[i]);
    assert_int_equal(in_memory(page_data(p, id[0]), (size_t)N * 2 * FULL_SLICE),
                     N * 2 * SMALL_SLICE);
    for (int i = 0; i < N; i++)
        page_unref(p, id[i]);
    page_pool_free(p);
}

static void a_block_table_counts_its_small_pages(void **state)
{
    (void)state;
    struct err e = {0};
    struct page_pool *p = pool_with_small(6);
    struct block_table *t = block_table_new(p);
    void *slices[4];
    assert_int_equal(block_table_reserve_small(t, 2 * 64, &e), 0);
    assert_int_equal(block_table_reserve(t, 3 * 64, &e), 0);
    assert_int_equal(stats_of(p).used, 4);
    assert_int_equal(block_table_slices(t, 1, slices), 0);
    page_shrink(p, t->pages[0]);
    assert_int_equal(block_table_slices(t, 1, slices), 1);
    assert_ptr_equal(slices[0], (uint8_t *)page_data(p, t->pages[0]) + SMALL_SLICE);
    assert_ptr_equal(slices[1], (uint8_t *)page_data(p, t->pages[1]) + FULL_SLICE);
    assert_int_equal(block_table_reserve(t, 5 * 64, &e), -ERR_NOMEM); /* one more, not two */
    assert_int_equal(t->n_pages, 4);
    block_table_free(t);
    sound(p, 0);
    page_pool_free(p);
}

static void a_block_table_reserves_whole_pages_and_gives_all_back(void **state)
{
    (void)state;
    struct page_pool *p = pool_of(20);
    struct err e = {0};
    struct block_table *t = block_table_new(p);
    assert_int_equal(block_table_reserve(t, 0, &e), 0);
    assert_int_equal(t->n_pages, 0);
    assert_int_equal(block_table_reserve(t, 64, &e), 0);
    assert_int_equal(t->n_pages, 1);
    assert_int_equal(block_table_reserve(t, 65, &e), 0);
    assert_int_equal(t->n_pages, 2);
    assert_int_equal(block_table_reserve(t, 64 * 20, &e), 0);
    assert_int_equal(t->n_pages, 20);
    void *slices[20];
    block_table_slices(t, 1, slices);
    for (int i = 0; i < 20; i++)
        assert_ptr_equal(slices[i], page_slice(p, t->pages[i], 1));
    assert_int_equal(block_table_reserve(t, 64 * 20 + 1, &e), -ERR_NOMEM);
    assert_int_equal(e.reach, REACH_DOC);
    assert_int_equal(t->n_pages, 20); /* what was added stays */
    block_table_free(t);
    block_table_free(NULL);
    sound(p, 0);
    page_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_pool_is_all_free),
        cmocka_unit_test(an_open_page_goes_back_to_free),
        cmocka_unit_test(a_sealed_page_outside_the_index_goes_back_to_free),
        cmocka_unit_test(an_indexed_page_becomes_idle_and_comes_back),
        cmocka_unit_test(the_oldest_idle_page_is_evicted_first_and_forgotten),
        cmocka_unit_test(slices_are_apart_and_aligned),
        cmocka_unit_test(a_large_pool_costs_nothing_until_it_is_used),
        cmocka_unit_test(memory_of_free_pages_goes_back_to_the_kernel),
        cmocka_unit_test(a_pool_past_the_address_space_is_refused),
        cmocka_unit_test(an_underflow_is_detected),
        cmocka_unit_test(the_audit_finds_a_reference_too_many),
        cmocka_unit_test(a_page_that_shrinks_makes_room),
        cmocka_unit_test(an_idle_page_that_is_not_small_counts_in_full),
        cmocka_unit_test(room_for_a_full_page_may_cost_two_idle_ones),
        cmocka_unit_test(what_a_small_page_does_not_need_goes_back_to_the_kernel),
        cmocka_unit_test(a_block_table_counts_its_small_pages),
        cmocka_unit_test(a_block_table_reserves_whole_pages_and_gives_all_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which page is given up when the next uses are known. */
#include "stages/kv/next_use.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>

static int pop(struct next_use *u)
{
    int page = next_use_pick(u);
    if (page >= 0)
        next_use_remove(u, page);
    return page;
}

static void test_pages_never_used_again_go_first_and_the_oldest_of_them_before(void **state)
{
    (void)state;
    struct next_use *u = next_use_new(8);
    next_use_set(u, 5, 1000000, true);
    next_use_set(u, 3, NEXT_USE_NEVER, false);
    next_use_set(u, 1, NEXT_USE_NEVER, true);
    next_use_set(u, 7, NEXT_USE_NEVER, false);
    assert_int_equal(pop(u), 3);
    assert_int_equal(pop(u), 1);
    assert_int_equal(pop(u), 7);
    assert_int_equal(pop(u), 5);
    assert_int_equal(pop(u), -1);
    next_use_free(u);
}

static void test_then_the_page_whose_use_is_farthest_away(void **state)
{
    (void)state;
    struct next_use *u = next_use_new(8);
    next_use_set(u, 0, 12, false);
    next_use_set(u, 1, 40, false);
    next_use_set(u, 2, 7, true);
    next_use_set(u, 3, 39, true);
    assert_int_equal(pop(u), 1);
    assert_int_equal(pop(u), 3);
    assert_int_equal(pop(u), 0);
    assert_int_equal(pop(u), 2);
    next_use_free(u);
}

static void test_of_one_request_clean_pages_go_before_dirty_ones(void **state)
{
    (void)state;
    struct next_use *u = next_use_new(8);
    next_use_set(u, 0, 12, false);
    next_use_set(u, 1, 12, true);
    next_use_set(u, 2, 12, false);
    next_use_set(u, 3, 12, true);
    assert_int_equal(pop(u), 1);
    assert_int_equal(pop(u), 3);
    assert_int_equal(pop(u), 0);
    assert_int_equal(pop(u), 2);
    next_use_free(u);
}

static void test_a_sequence_put_from_its_end_loses_its_end_first(void **state)
{
    (void)state;
    struct next_use *u = next_use_new(16);
    for (int page = 15; page >= 0; page--)
        next_use_set(u, page, 3, false);
    for (int page = 15; page >= 0; page--)
        assert_int_equal(pop(u), page);
    next_use_free(u);
}

static void test_a_page_set_again_keeps_its_age_and_a_page_put_back_does_not(void **state)
{
    (void)state;
    struct next_use *u = next_use_new(4);
    next_use_set(u, 0, 9, false);
    next_use_set(u, 1, NEXT_USE_NEVER, false);
    next_use_set(u, 0, NEXT_USE_NEVER, false);
    assert_int_equal(next_use_pick(u), 0);
    next_use_remove(u, 0);
    assert_false(next_use_has(u, 0));
    next_use_set(u, 0, NEXT_USE_NEVER, false);
    assert_int_equal(next_use_pick(u), 1);
    next_use_remove(u, 3);
    assert_int_equal(next_use_count(u), 2);
    next_use_free(u);
}

/* ---- against a list that is searched from end to end ---- */

enum { PAGES = 200, STEPS = 60000 };

struct known {
    bool in;
    uint32_t request;
    bool clean;
    int since;
};

static bool first_of(const struct known *a, const struct known *b)
{
    if (a->request != b->request)
        return a->request > b->request;
    if (a->request != NEXT_USE_NEVER && a->clean != b->clean)
        return a->clean;
    return a->since < b->since;
}

static int search(const struct known k[PAGES])
{
    int best = -1;
    for (int i = 0; i < PAGES; i++)
        if (k[i].in && (best < 0 || first_of(&k[i], &k[best])))
            best = i;
    return best;
}

static void test_any_order_of_calls_picks_what_a_search_of_all_pages_picks(void **state)
{
    (void)state;
    struct next_use *u = next_use_new(PAGES);
    struct known k[PAGES] = {0};
    int count = 0;
    uint32_t seed = 4711;
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 1664525 + 1013904223;
        int page = (int)((seed >> 8) % PAGES), what = (int)(seed >> 28);
        if (what < 9) { /* few requests, so that many pages are alike */
            uint32_t request = what < 2 ? NEXT_USE_NEVER : (seed >> 16) % 12;
            bool clean = seed >> 27 & 1;
            if (!k[page].in) {
                k[page].in = true;
                k[page].since = step;
                count++;
            }
            k[page].request = request;
            k[page].clean = clean;
            next_use_set(u, page, request, clean);
        } else {
            if (what < 12)
                page = next_use_pick(u) >= 0 ? next_use_pick(u) : page;
            count -= k[page].in;
            k[page].in = false;
            next_use_remove(u, page);
        }
        assert_int_equal(next_use_pick(u), search(k));
        assert_int_equal(next_use_count(u), count);
        assert_int_equal(next_use_has(u, page), k[page].in);
    }
    next_use_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_never_used_again_go_first_and_the_oldest_of_them_before),
        cmocka_unit_test(test_then_the_page_whose_use_is_farthest_away),
        cmocka_unit_test(test_of_one_request_clean_pages_go_before_dirty_ones),
        cmocka_unit_test(test_a_sequence_put_from_its_end_loses_its_end_first),
        cmocka_unit_test(test_a_page_set_again_keeps_its_age_and_a_page_put_back_does_not),
        cmocka_unit_test(test_any_order_of_calls_picks_what_a_search_of_all_pages_picks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a page kept between runs is worth. */
#include "stages/kv/lru_k.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

enum { HOUR = 3600, DAY = 24 * HOUR, NOW = 1790000000 };

struct history {
    uint32_t times[LRU_K];
    int n;
};

static void use(struct history *h, uint32_t now)
{
    h->n = lru_k_use(h->times, h->n, now);
}

/* n uses, the last one `age` ago, `every` seconds apart. */
static struct history used(int n, uint32_t every, uint32_t age)
{
    struct history h = {0};
    for (int i = n - 1; i >= 0; i--)
        use(&h, NOW - age - (uint32_t)i * every);
    return h;
}

static double worth(struct history h)
{
    return lru_k_worth(h.times, h.n, NOW, 1);
}

static void test_the_newest_three_uses_are_kept_newest_first(void **state)
{
    (void)state;
    struct history h = {0};
    for (uint32_t night = 0; night < 5; night++)
        use(&h, NOW + night * DAY);
    assert_int_equal(h.n, 3);
    assert_int_equal(h.times[0], NOW + 4 * DAY);
    assert_int_equal(h.times[1], NOW + 3 * DAY);
    assert_int_equal(h.times[2], NOW + 2 * DAY);
}

static void test_uses_within_a_run_are_one_use(void **state)
{
    (void)state;
    struct history h = {0};
    const uint32_t six = NOW - NOW % (6 * HOUR);
    for (uint32_t i = 0; i < 36; i++)
        use(&h, six + i * 600);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.times[0], six + 35 * 600);
    use(&h, six + DAY);
    assert_int_equal(h.n, 2);
}

static void test_a_page_that_was_never_used_is_worth_nothing(void **state)
{
    (void)state;
    assert_true(lru_k_worth(NULL, 0, NOW, 7) == 0);
    assert_true(worth(used(1, 0, 300 * DAY)) > 0);
}

static void test_among_equal_histories_the_one_used_last_is_worth_most(void **state)
{
    (void)state;
    for (int n = 1; n <= LRU_K; n++)
        for (uint32_t age = 0; age < 40; age++)
            assert_true(worth(used(n, DAY, age * DAY)) > worth(used(n, DAY, age * DAY + 1)));
}

static void test_more_uses_and_shorter_gaps_are_worth_more(void **state)
{
    (void)state;
    for (uint32_t age = 0; age < 10; age++) {
        assert_true(worth(used(2, DAY, age * DAY)) > worth(used(1, DAY, age * DAY)));
        assert_true(worth(used(3, DAY, age * DAY)) > worth(used(2, DAY, age * DAY)));
        assert_true(worth(used(3, DAY, age * DAY)) > worth(used(3, 7 * DAY, age * DAY)));
    }
}

static void test_new_one_off_text_does_not_push_out_what_most_nights_need(void **state)
{
    (void)state;
    struct history fresh = used(1, 0, 0);
    assert_true(worth(used(2, DAY, DAY)) > worth(fresh));
    assert_true(worth(used(3, DAY, DAY)) > worth(fresh));
    assert_true(worth(used(3, 2 * DAY, 2 * DAY)) > worth(fresh));
}

static void test_what_stopped_coming_back_gives_way_to_new_text(void **state)
{
    (void)state;
    assert_true(worth(used(3, DAY, 4 * DAY)) > worth(used(1, 0, 0)));
    assert_true(worth(used(3, DAY, 5 * DAY)) < worth(used(1, 0, 0)));
}

static void test_recent_gaps_count_more_than_old_ones(void **state)
{
    (void)state;
    struct history faster = {{NOW, NOW - 1 * DAY, NOW - 6 * DAY}, 3};
    struct history slower = {{NOW, NOW - 5 * DAY, NOW - 6 * DAY}, 3};
    assert_true(worth(faster) > worth(slower));
}

/* Uses of a page and of one that follows it in some prompts, drawn at random over a year. */
static void test_a_page_is_worth_at_least_what_its_successor_is(void **state)
{
    (void)state;
    uint32_t seed = 99;
    for (int round = 0; round < 3000; round++) {
        struct history before = {0}, after = {0};
        uint32_t now = NOW - 365 * DAY, longest = round % 3 == 0   ? HOUR
                                                  : round % 3 == 1 ? 3 * DAY
                                                                   : 70 * DAY;
        for (int i = 0; i < 12; i++) {
            seed = seed * 1664525 + 1013904223;
            now += (seed >> 4) % longest;
            use(&before, now);
            if (seed >> 28 & 1)
                use(&after, now);
            for (uint32_t later = 0; later < 90 * DAY; later += 9 * DAY)
                assert_true(lru_k_worth(before.times, before.n, now + later, 1) >=
                            lru_k_worth(after.times, after.n, now + later, 1));
        }
    }
}

static void test_worth_is_in_proportion_to_the_cost(void **state)
{
    (void)state;
    struct history h = used(3, DAY, HOUR);
    double plain = lru_k_worth(h.times, h.n, NOW, 1);
    double dear = lru_k_worth(h.times, h.n, NOW, 8);
    assert_true(dear == 8 * plain);
}

static void test_a_clock_set_back_makes_no_page_immortal(void **state)
{
    (void)state;
    struct history h = {0};
    use(&h, NOW + 900 * DAY);
    use(&h, NOW + 901 * DAY);
    assert_true(lru_k_worth(h.times, h.n, NOW, 1) <= 1);
    use(&h, NOW);
    assert_int_equal(h.times[0], NOW);
    for (int i = 1; i < h.n; i++)
        assert_true(h.times[i] <= NOW);
    double then = lru_k_worth(h.times, h.n, NOW, 1);
    assert_true(lru_k_worth(h.times, h.n, NOW + 5 * DAY, 1) < then);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_three_uses_are_kept_newest_first),
        cmocka_unit_test(test_uses_within_a_run_are_one_use),
        cmocka_unit_test(test_a_page_that_was_never_used_is_worth_nothing),
        cmocka_unit_test(test_among_equal_histories_the_one_used_last_is_worth_most),
        cmocka_unit_test(test_more_uses_and_shorter_gaps_are_worth_more),
        cmocka_unit_test(test_new_one_off_text_does_not_push_out_what_most_nights_need),
        cmocka_unit_test(test_what_stopped_coming_back_gives_way_to_new_text),
        cmocka_unit_test(test_recent_gaps_count_more_than_old_ones),
        cmocka_unit_test(test_a_page_is_worth_at_least_what_its_successor_is),
        cmocka_unit_test(test_worth_is_in_proportion_to_the_cost),
        cmocka_unit_test(test_a_clock_set_back_makes_no_page_immortal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The history of uses: what is entered is found, merged and printed, and the cap holds. */
#include "stages/kv/uses.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DAY = 86400, START = 1700000000 };

static struct buf print(struct uses *u)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 24);
    assert_int_equal(uses_print(u, &b, &e), 0);
    return b;
}

static void uses_are_kept_newest_first(void **state)
{
    (void)state;
    struct uses u;
    uses_init(&u, 100);
    assert_null(uses_find(&u, 5));
    for (uint32_t day = 0; day < 5; day++)
        uses_touch(&u, 5, START + day * DAY);
    const struct use *s = uses_find(&u, 5);
    assert_non_null(s);
    for (uint32_t k = 0; k < USES_KEPT; k++)
        assert_int_equal(s->times[k], START + (4 - k) * DAY);
    assert_int_equal(s->earlier, 0);
    assert_null(uses_find(&u, 6));
    uses_release(&u);
}

static void the_histories_of_two_processes_become_one(void **state)
{
    (void)state;
    struct uses a, b, both;
    uses_init(&a, 100);
    uses_init(&b, 100);
    uses_init(&both, 100);
    uses_touch(&a, 1, START);
    uses_touch(&a, 1, START + 2 * DAY);
    uses_touch(&b, 1, START + DAY);
    uses_touch(&b, 2, START + DAY);
    struct buf ta = print(&a), tb = print(&b);
    assert_false(a.changed);
    assert_true(uses_merge(&both, (uint8_t *)ta.data, ta.len, true));
    assert_true(uses_merge(&both, (uint8_t *)tb.data, tb.len, false));
    assert_true(
        uses_merge(&both, (uint8_t *)tb.data, tb.len, false)); /* once more: no change */
    const struct use *s = uses_find(&both, 1);
    assert_int_equal(s->times[0], START + 2 * DAY);
    assert_int_equal(s->times[1], START + DAY);
    assert_int_equal(s->times[2], START);
    assert_int_equal(s->earlier, 1);
    assert_int_equal(uses_find(&both, 2)->earlier, 0);
    buf_release(&ta);
    buf_release(&tb);
    uses_release(&a);
    uses_release(&b);
    uses_release(&both);
}

static void any_change_of_the_bytes_is_refused(void **state)
{
    (void)state;
    struct uses u, v;
    uses_init(&u, 100);
    uses_init(&v, 100);
    for (uint64_t k = 1; k < 5; k++)
        uses_touch(&u, k, START);
    struct buf b = print(&u);
    for (size_t bit = 0; bit < 8 * b.len; bit++) {
        b.data[bit / 8] = (char)(b.data[bit / 8] ^ 1 << bit % 8);
        assert_false(uses_merge(&v, (uint8_t *)b.data, b.len, true));
        b.data[bit / 8] = (char)(b.data[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t n = 0; n < b.len; n++)
        assert_false(uses_merge(&v, (uint8_t *)b.data, n, true));
    assert_int_equal(v.n, 0);
    assert_true(uses_merge(&v, (uint8_t *)b.data, b.len, true));
    assert_int_equal(v.n, 4);
    buf_release(&b);
    uses_release(&u);
    uses_release(&v);
}

static void keys_used_long_ago_make_room_for_new_ones(void **state)
{
    (void)state;
    enum { CAP = 1000 };
    struct uses u;
    uses_init(&u, CAP);
    for (uint32_t k = 1; k <= 20 * CAP; k++) {
        uses_touch(&u, k * 0x9e3779b97f4a7c15u, START + k);
        assert_true(u.n <= CAP);
        assert_non_null(uses_find(&u, k * 0x9e3779b97f4a7c15u));
    }
    for (uint32_t k = 20 * CAP - CAP / 3; k <= 20 * CAP; k++)
        assert_non_null(uses_find(&u, k * 0x9e3779b97f4a7c15u));
    for (uint32_t k = 0; k < CAP; k++) /* all at the same time: no order to go by, but room */
        uses_touch(&u, k + 1, START + 30 * CAP);
    assert_true(u.n <= CAP);
    uses_release(&u);
    uses_init(&u, 0);
    uses_touch(&u, 1, START);
    assert_null(uses_find(&u, 1));
    uses_release(&u);
}

static void what_came_back_is_worth_more(void **state)
{
    (void)state;
    struct uses u;
    uses_init(&u, 100);
    uses_touch(&u, 1, START);
    uses_touch(&u, 2, START);
    uses_touch(&u, 2, START + DAY);
    assert_true(uses_worth(&u, 2, START + 2 * DAY, 1) > uses_worth(&u, 1, START + 2 * DAY, 1));
    assert_true(uses_worth(&u, 3, START, 1) <= 0);
    uses_release(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_are_kept_newest_first),
        cmocka_unit_test(the_histories_of_two_processes_become_one),
        cmocka_unit_test(any_change_of_the_bytes_is_refused),
        cmocka_unit_test(keys_used_long_ago_make_room_for_new_ones),
        cmocka_unit_test(what_came_back_is_worth_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which request is computed next: depth first over the prefix tree, and nobody waits forever. */
#include "stages/kv/page.h"
#include "stages/prefill/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { PAGES = 4, N = PAGES * PAGE_TOKENS };

/* Tokens by the page: each page is a number. */
struct prompt {
    int32_t tokens[N];
};

static struct prompt of(int a, int b, int c, int d)
{
    const int page[PAGES] = {a, b, c, d};
    struct prompt p;
    for (int i = 0; i < N; i++)
        p.tokens[i] = page[i / PAGE_TOKENS];
    return p;
}

static struct order_item item(const struct prompt *p, int n_shared)
{
    return (struct order_item){.tokens = p->tokens, .n_tokens = N, .n_shared = n_shared};
}

static void common_pages_are_whole_and_end_with_the_shorter(void **state)
{
    (void)state;
    struct prompt a = of(1, 2, 3, 4), b = of(1, 2, 3, 5);
    assert_int_equal(order_common_pages(a.tokens, N, b.tokens, N), 3);
    assert_int_equal(order_common_pages(a.tokens, 191, b.tokens, N), 2);
    assert_int_equal(order_common_pages(a.tokens, N, b.tokens, 63), 0);
    assert_int_equal(order_common_pages(a.tokens, 0, b.tokens, 0), 0);
    b.tokens[191] = 9;
    assert_int_equal(order_common_pages(a.tokens, N, b.tokens, N), 2);
    assert_int_equal(order_common_pages(a.tokens, N, a.tokens, N), 4);
}

static void the_one_that_shares_most_with_the_last_comes_next(void **state)
{
    (void)state;
    struct prompt last = of(1, 2, 3, 4), far = of(9, 9, 9, 9), some = of(1, 2, 0, 0),
                  most = of(1, 2, 3, 0);
    struct order_item items[] = {item(&far, 0), item(&some, 0), item(&most, 0), item(&most, 0)};
    assert_int_equal(order_next(items, 4, last.tokens, N), 2); /* the first of equals */
    assert_int_equal(order_next(items, 2, last.tokens, N), 1);
    assert_int_equal(order_next(items, 1, last.tokens, N), 0);
    assert_int_equal(order_next(items, 4, NULL, 0), 0);
    assert_int_equal(order_next(items, 4, far.tokens, N), 0);
}

static void what_all_requests_share_does_not_count(void **state)
{
    (void)state;
    struct prompt last = of(1, 2, 3, 4), far = of(1, 2, 9, 9), near = of(1, 2, 3, 9);
    struct order_item items[] = {item(&far, 128), item(&far, 128), item(&near, 128)};
    assert_int_equal(order_next(items, 2, last.tokens, N), 0);
    assert_int_equal(order_next(items, 3, last.tokens, N), 2);
    items[2].n_shared = 191; /* not a whole page more */
    assert_int_equal(order_next(items, 3, last.tokens, N), 2);
    items[2].n_shared = 192;
    assert_int_equal(order_next(items, 3, last.tokens, N), 0);
}

static void one_that_was_passed_over_too_often_comes_next(void **state)
{
    (void)state;
    struct prompt last = of(1, 2, 3, 4), far = of(9, 9, 9, 9);
    struct order_item items[] = {item(&far, 0), item(&last, 0)};
    items[0].passed_over = ORDER_PATIENCE - 1;
    assert_int_equal(order_next(items, 2, last.tokens, N), 1);
    items[0].passed_over = ORDER_PATIENCE;
    assert_int_equal(order_next(items, 2, last.tokens, N), 0);
}

/* Take requests of a shuffled tree one by one; count how often work moves from one first page to another. */
static void a_tree_is_walked_branch_by_branch(void **state)
{
    (void)state;
    enum { BRANCHES = 5, LEAVES = 6, ALL = BRANCHES * LEAVES };
    static struct prompt p[ALL];
    struct order_item items[ALL];
    for (int i = 0; i < ALL; i++) {
        int branch = i % BRANCHES,
            leaf = i / BRANCHES; /* as they come: each of another branch */
        p[i] = of(branch, 10 + leaf % 2, 100 + leaf, 0);
        items[i] = item(&p[i], 0);
    }
    const int32_t *last = NULL;
    int moves[2] = {0};
    for (int n = ALL; n > 0; n--) {
        int i = order_next(items, n, last, last ? N : 0);
        const int32_t *t = items[i].tokens;
        moves[0] += last && t[0] != last[0];
        moves[1] += last && (t[0] != last[0] || t[64] != last[64]);
        last = t;
        for (int k = 0; k < i; k++)
            items[k].passed_over++;
        memmove(&items[i], &items[i + 1], (size_t)(n - 1 - i) * sizeof(items[0]));
    }
    assert_int_equal(moves[0], BRANCHES - 1);
    assert_int_equal(moves[1], 2 * BRANCHES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(common_pages_are_whole_and_end_with_the_shorter),
        cmocka_unit_test(the_one_that_shares_most_with_the_last_comes_next),
        cmocka_unit_test(what_all_requests_share_does_not_count),
        cmocka_unit_test(one_that_was_passed_over_too_often_comes_next),
        cmocka_unit_test(a_tree_is_walked_branch_by_branch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which rows of a call of attention are worked on together. */
#include "kernels/cpu/attn_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { MOST_PAGES = 40, PAGE = KERN_PAGE_TOKENS };

/* Calls whose pages are only addresses: nothing is read. */
struct batch {
    struct kern_attn_rows calls[ATTN_CALLS];
    const void *pages[ATTN_CALLS][MOST_PAGES];
    int n;
    char memory[ATTN_CALLS * MOST_PAGES];
};

/* `rows` rows at the end of `n_pages` pages, of which the first `shared` are those of an earlier call. */
static void add_call(struct batch *b, int n_pages, int rows, int with, int shared)
{
    int c = b->n++;
    for (int i = 0; i < n_pages; i++)
        b->pages[c][i] = i < shared ? b->pages[with][i] : &b->memory[c * MOST_PAGES + i];
    b->calls[c] = (struct kern_attn_rows){
        .slices = b->pages[c], .pos = n_pages * PAGE - rows, .rows = rows};
}

static bool in_order(const struct attn_plan *p, const int *want, int n)
{
    return memcmp(p->order, want, (size_t)n * sizeof(int)) == 0;
}

static void test_shared_pages_are_counted_from_the_first_that_both_see(void **state)
{
    (void)state;
    static struct batch b;
    b.n = 0;
    add_call(&b, 20, 1, 0, 0);
    add_call(&b, 30, 1, 0, 13);
    assert_int_equal(attn_shared_pages(&b.calls[0], &b.calls[0]), 20);
    assert_int_equal(attn_shared_pages(&b.calls[0], &b.calls[1]), 13);
    b.calls[0].window = 10 * PAGE; /* sees pages 10 to 19 */
    assert_int_equal(attn_shared_pages(&b.calls[0], &b.calls[1]), 3);
    for (int i = 0; i < 10; i++)
        b.pages[0][i] = NULL;
    assert_int_equal(attn_shared_pages(&b.calls[1], &b.calls[0]), 3);
    b.calls[1].window = 10 * PAGE; /* sees pages 20 to 29 */
    assert_int_equal(attn_shared_pages(&b.calls[0], &b.calls[1]), 0);
}

static void test_calls_that_share_most_are_neighbours(void **state)
{
    (void)state;
    static struct batch b;
    struct attn_plan p;
    b.n = 0;
    add_call(&b, 20, 1, 0, 0); /* one instruction, */
    add_call(&b, 20, 1, 0, 8); /* two documents with it, */
    add_call(&b, 20, 1, 0, 15);
    add_call(&b, 20, 1, 1, 15); /* and questions about them by turns */
    add_call(&b, 20, 1, 0, 0);  /* and something else */
    add_call(&b, 20, 1, 0, 15);
    add_call(&b, 20, 1, 1, 15);
    attn_plan_make(&p, b.calls, b.n, 3, 1, 1);
    assert_true(in_order(&p, (const int[]){0, 2, 5, 1, 3, 6, 4}, 7));
    assert_int_equal(p.n_bundles, 2);
    assert_int_equal(p.bundles[0].rows, 6);
}

static void test_a_page_in_common_is_not_worth_a_common_tile(void **state)
{
    (void)state;
    static struct batch b;
    struct attn_plan p;
    b.n = 0;
    for (int i = 0; i < 8; i++)
        add_call(&b, 30, 1, 0, i ? 1 : 0);
    attn_plan_make(&p, b.calls, b.n, 9, 3, 2);
    assert_int_equal(p.n_bundles, 8);
    assert_int_equal(p.n_tiles, 24);
}

static void test_tiles_are_cut_so_that_threads_finish_together(void **state)
{
    (void)state;
    static struct batch b;
    struct attn_plan p;
    b.n = 0;
    for (int i = 0; i < 8; i++)
        add_call(&b, 30, 1, 0, i ? 29 : 0);
    attn_plan_make(&p, b.calls, b.n, 9, 3, 1);
    assert_int_equal(p.n_tiles, 3); /* 24 rows for each kv head */
    attn_plan_make(&p, b.calls, b.n, 9, 3, 2);
    assert_int_equal(p.n_tiles, 6);
    attn_plan_make(&p, b.calls, b.n, 4, 1, 2);
    assert_int_equal(p.n_tiles, 2);
    attn_plan_make(&p, b.calls, 1, 4, 1, 2); /* one row: its heads */
    assert_int_equal(p.n_tiles, 2);
    attn_plan_make(&p, b.calls, 1, 9, 3,
                   2); /* reading twice costs more than a thread that waits */
    assert_int_equal(p.n_tiles, 3);
    attn_plan_make(&p, b.calls, 1, 1, 1, 8);
    assert_int_equal(p.n_tiles, 1);
}

/* Batches of any kind: each row and head once, and no tile too large. */
static void test_every_row_and_head_is_in_one_tile(void **state)
{
    (void)state;
    static struct batch b;
    srand(7);
    for (int round = 0; round < 300; round++) {
        int n_kv_head = 1 + rand() % 3, group = rand() % 10 ? 1 + rand() % 9 : 130;
        int threads = 1 + rand() % 20, n_head = n_kv_head * group;
        b.n = 0;
        for (int n = 1 + rand() % ATTN_CALLS; b.n < n;)
            add_call(&b, 4 + rand() % 36, rand() % 4 ? 1 + rand() % 3 : 1 + rand() % 200,
                     b.n ? rand() % b.n : 0, b.n ? rand() % 4 : 0);
        struct attn_plan p;
        attn_plan_make(&p, b.calls, b.n, n_head, n_kv_head, threads);
        static uint8_t seen[ATTN_CALLS][200][400];
        memset(seen, 0, sizeof(seen));
        for (int i = 0; i < p.n_tiles; i++) {
            struct attn_tile t;
            attn_plan_tile(&p, i, &t);
            assert_true(t.n_rows > 0 && t.n_rows * t.n_heads <= ATTN_TILE_ROWS);
            assert_int_equal(t.head / group, t.kv_head);
            assert_int_equal((t.head + t.n_heads - 1) / group, t.kv_head);
            for (int r = 0; r < t.n_rows; r++)
                for (int h = 0; h < t.n_heads; h++)
                    seen[t.rows[r].call - b.calls][t.rows[r].row][t.head + h]++;
        }
        for (int c = 0; c < b.n; c++)
            for (int r = 0; r < b.calls[c].rows; r++)
                for (int h = 0; h < n_head; h++)
                    assert_int_equal(seen[c][r][h], 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_pages_are_counted_from_the_first_that_both_see),
        cmocka_unit_test(test_calls_that_share_most_are_neighbours),
        cmocka_unit_test(test_a_page_in_common_is_not_worth_a_common_tile),
        cmocka_unit_test(test_tiles_are_cut_so_that_threads_finish_together),
        cmocka_unit_test(test_every_row_and_head_is_in_one_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

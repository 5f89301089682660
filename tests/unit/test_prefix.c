/* Which pages a token prefix finds, and that it never finds others. */
#include "tests/unit/store_rig.h"

static void open_kv(struct store_rig *kv, int n_pages)
{
    *kv = (struct store_rig){.options.context = {1, 2, 3}};
    store_rig_open(kv, n_pages, NULL);
}

static void count_up(int32_t *tokens, int n, int32_t from)
{
    for (int i = 0; i < n; i++)
        tokens[i] = from + i;
}

static void equal_prefixes_share_pages(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 16);
    int32_t a[300], b[300];
    count_up(a, 300, 0);
    count_up(b, 300, 0);
    b[195] = -1;
    struct store_prompt *ta = rig_fill(&kv, a, 300);
    assert_int_equal(ta->found, 0);
    struct store_prompt *tb = rig_fill(&kv, b, 300);
    assert_int_equal(tb->found, 192); /* three more tokens agree: too few to copy a page for */
    assert_memory_equal(ta->table->pages, tb->table->pages, 3 * sizeof(page_id));
    assert_int_not_equal(ta->table->pages[3], tb->table->pages[3]);
    assert_int_equal(page_refs(kv.pool, ta->table->pages[0]), 2);
    assert_false(page_is_sealed(
        kv.pool, ta->table->pages[4])); /* the part page belongs to its sequence */
    store_drop(ta);
    store_drop(tb);
    store_rig_close(&kv);
}

static void where_prompts_part_inside_a_page_the_beginning_is_copied(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 16);
    int32_t a[300], b[300];
    count_up(a, 300, 0);
    count_up(b, 300, 0);
    b[231] = -1;
    struct store_prompt *ta = rig_fill(&kv, a, 300);
    struct store_prompt *tb = rig_fill(&kv, b, 300);
    assert_int_equal(tb->found, 231);
    assert_int_not_equal(ta->table->pages[3], tb->table->pages[3]);
    const int32_t *donor = page_slice(kv.pool, ta->table->pages[3], 0);
    int32_t value = 0;
    for (int i = 0; i < 256; i++) { /* as it was: only the copy was written */
        value = rig_value(value, a[i]);
        assert_true(i < 192 || donor[i - 192] == value);
    }
    store_drop(ta);
    store_drop(tb);
    /* b's page 3 is indexed under its own key and is found whole. */
    assert_int_equal(rig_found(&kv, b, 300), 256);
    store_rig_close(&kv);
}

static void a_full_pool_computes_instead_of_copying(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 2);
    int32_t a[64], b[64];
    count_up(a, 64, 0);
    count_up(b, 64, 0);
    b[40] = -1;
    page_id other;
    (void)rig_found(&kv, a, 64);
    other = page_alloc(kv.pool);
    assert_int_not_equal(other, PAGE_NONE);
    /* One page is left, the donor: it makes room for the page that would have been its copy. */
    assert_int_equal(rig_found(&kv, b, 64), 0);
    page_unref(kv.pool, other);
    store_rig_close(&kv);
}

static void the_last_token_is_always_computed(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 16);
    int32_t a[129];
    count_up(a, 129, 0);
    (void)rig_found(&kv, a, 128);
    assert_int_equal(rig_found(&kv, a, 128), 127);
    assert_int_equal(rig_found(&kv, a, 129), 128);
    assert_int_equal(rig_found(&kv, a, 64), 63);
    assert_int_equal(rig_found(&kv, a, 1), 0);
    store_rig_close(&kv);
}

static void the_same_tokens_after_another_start_are_another_page(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 16);
    int32_t a[193], b[193];
    count_up(a, 193, 0);
    memcpy(b, a, sizeof(b));
    b[3] = 77;
    (void)rig_found(&kv, a, 193);
    assert_int_equal(rig_found(&kv, b, 193), 0);
    store_rig_close(&kv);
}

static void another_context_gives_other_keys(void **state)
{
    (void)state;
    const uint8_t context[2][HASH_BYTES] = {{1, 2, 3}, {1, 2, 4}};
    struct prefix_keys k[2];
    struct err e = {0};
    int32_t a[100];
    count_up(a, 100, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(prefix_keys_make(&k[i], context[i], a, 100, &e), 0);
    for (int page = 0; page < 2; page++)
        assert_memory_not_equal(prefix_key(&k[0], page), prefix_key(&k[1], page), HASH_BYTES);
    for (int i = 0; i < 2; i++)
        prefix_keys_release(&k[i]);
}

static void a_tail_is_not_a_page_and_not_the_tail_of_a_longer_prompt(void **state)
{
    (void)state;
    const uint8_t context[HASH_BYTES] = {0};
    struct prefix_keys k[3];
    struct err e = {0};
    int32_t a[100] = {0};
    for (int i = 0; i < 3; i++) /* zeroes: no key may depend on the tokens alone */
        assert_int_equal(prefix_keys_make(&k[i], context, a, 63 + i, &e), 0);
    assert_memory_not_equal(prefix_key(&k[0], 0), prefix_key(&k[1], 0), HASH_BYTES);
    assert_memory_equal(prefix_key(&k[1], 0), prefix_key(&k[2], 0), HASH_BYTES);
    assert_memory_not_equal(prefix_key(&k[1], 1), prefix_key(&k[2], 1), HASH_BYTES);
    for (int i = 0; i < 3; i++)
        prefix_keys_release(&k[i]);
}

static void a_page_computed_twice_stays_private(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 16);
    int32_t a[200];
    count_up(a, 200, 0);
    struct store_prompt *t[2];
    for (int i = 0; i < 2; i++) { /* both begin before either is done */
        t[i] = rig_hold(&kv, a, 200);
        rig_admit(&kv, t[i], true);
        assert_int_equal(t[i]->found, 0);
    }
    rig_compute(&kv, t[0]);
    rig_compute(&kv, t[1]);
    struct page_stats s;
    store_drop(t[1]);
    page_pool_stats(kv.pool, &s);
    assert_int_equal(s.idle, 0); /* its copies went back at once */
    struct store_prompt *again = rig_fill(&kv, a, 200);
    assert_int_equal(again->found, 192);
    assert_memory_equal(again->table->pages, t[0]->table->pages, 3 * sizeof(page_id));
    store_drop(again);
    store_drop(t[0]);
    store_rig_close(&kv);
}

static void pages_become_visible_as_they_are_computed(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 16);
    int32_t a[400];
    count_up(a, 400, 0);
    struct store_prompt *t = rig_hold(&kv, a, 400);
    rig_admit(&kv, t, true);
    int32_t value = 0;
    for (int n = 1; n <= 400; n++) {
        value = rig_value(value, a[n - 1]);
        *rig_position(&kv, t, n - 1) = value;
        store_computed(kv.store, t, n);
        assert_int_equal(page_is_sealed(kv.pool, t->table->pages[0]), n >= 64);
    }
    assert_int_equal(rig_found(&kv, a, 399), 384);
    store_drop(t);
    store_rig_close(&kv);
}

static void an_evicted_page_is_not_found_and_its_successors_come_back_with_it(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 4);
    struct err e = {0};
    int32_t a[193];
    count_up(a, 193, 0);
    (void)rig_found(&kv, a, 193); /* three idle pages, the last of the chain is the oldest */
    struct block_table *use = block_table_new(kv.pool);
    assert_int_equal(block_table_reserve(use, 2 * PAGE_TOKENS, &e),
                     0); /* one free, one evicted */
    /* Both others are there; the second one cannot be copied, for which a third page would be needed. */
    assert_int_equal(rig_found(&kv, a, 128), 64);
    block_table_free(use);
    /* The pool now turns over completely; nothing of a is left to find. */
    use = block_table_new(kv.pool);
    assert_int_equal(block_table_reserve(use, 4 * PAGE_TOKENS, &e), 0);
    block_table_free(use);
    assert_int_equal(rig_found(&kv, a, 193), 0);
    assert_int_equal(rig_found(&kv, a, 193), 192);
    store_rig_close(&kv);
}

/* Random sequences over a small alphabet of prefixes, in a pool that is always too small. */
static void random_use_never_finds_a_wrong_page(void **state)
{
    (void)state;
    struct store_rig kv;
    open_kv(&kv, 24);
    struct store_prompt *held[3] = {0};
    static int32_t tokens[3][512];
    uint32_t seed = 12345;
    int hits = 0;
    for (int round = 0; round < 3000; round++) {
        seed = seed * 1664525 + 1013904223;
        int slot = (int)(seed >> 28) % 3;
        store_drop(held[slot]);
        int n = 1 + (int)(seed >> 8) % 400;
        for (int i = 0; i < n; i++)
            tokens[slot][i] = i / 64 * 1000 + (int)(seed >> 20 & (i < 128 ? 1 : 3)) + i % 64;
        held[slot] = rig_fill(&kv, tokens[slot], n); /* checks the bytes of every page */
        hits += held[slot]->found > 0;
    }
    assert_true(hits > 1000);
    for (int i = 0; i < 3; i++)
        store_drop(held[i]);
    store_rig_close(&kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_prefixes_share_pages),
        cmocka_unit_test(where_prompts_part_inside_a_page_the_beginning_is_copied),
        cmocka_unit_test(a_full_pool_computes_instead_of_copying),
        cmocka_unit_test(the_last_token_is_always_computed),
        cmocka_unit_test(the_same_tokens_after_another_start_are_another_page),
        cmocka_unit_test(another_context_gives_other_keys),
        cmocka_unit_test(a_tail_is_not_a_page_and_not_the_tail_of_a_longer_prompt),
        cmocka_unit_test(a_page_computed_twice_stays_private),
        cmocka_unit_test(pages_become_visible_as_they_are_computed),
        cmocka_unit_test(an_evicted_page_is_not_found_and_its_successors_come_back_with_it),
        cmocka_unit_test(random_use_never_finds_a_wrong_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

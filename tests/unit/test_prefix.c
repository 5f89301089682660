/* Which pages a token prefix finds, and that it never finds others. */
#include "stages/kv/prefix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct kv {
    struct page_pool *pool;
    struct prefix_index *index;
};

static const uint8_t context[HASH_BYTES] = {1, 2, 3};

static struct kv kv_of(int n_pages)
{
    struct err e = {0};
    struct kv kv;
    assert_int_equal(page_pool_new(&kv.pool, n_pages, 1, 64, &e), 0);
    kv.index = prefix_index_new(kv.pool, context);
    return kv;
}

static void kv_end(struct kv *kv, int64_t refs)
{
    struct err e = {0};
    if (page_pool_audit(kv->pool, refs, &e) != 0)
        fail_msg("%s", e.msg);
    prefix_index_free(kv->index);
    page_pool_free(kv->pool);
}

static void count_up(int32_t *tokens, int n, int32_t from)
{
    for (int i = 0; i < n; i++)
        tokens[i] = from + i;
}

/* What a prefill does: match, compute the rest (here: write the token into the page), insert. */
static struct block_table *filled(struct kv *kv, const int32_t *tokens, int n, int *found)
{
    struct err e = {0};
    struct block_table *t = block_table_new(kv->pool);
    *found = prefix_match(kv->index, tokens, n, t);
    assert_int_equal(t->n_pages, (*found + PAGE_TOKENS - 1) / PAGE_TOKENS);
    assert_int_equal(block_table_reserve(t, n, &e), 0);
    for (int i = 0; i < n; i++) {
        uint8_t *slice = page_slice(kv->pool, t->pages[i / PAGE_TOKENS], 0);
        if (i >= *found)
            slice[i % PAGE_TOKENS] = (uint8_t)tokens[i];
        assert_int_equal(slice[i % PAGE_TOKENS], (uint8_t)tokens[i]);
    }
    prefix_insert(kv->index, tokens, n, t);
    return t;
}

static void equal_prefixes_share_pages(void **state)
{
    (void)state;
    struct kv kv = kv_of(16);
    int32_t a[300], b[300];
    count_up(a, 300, 0);
    count_up(b, 300, 0);
    b[195] = -1;
    int found;
    struct block_table *ta = filled(&kv, a, 300, &found);
    assert_int_equal(found, 0);
    struct block_table *tb = filled(&kv, b, 300, &found);
    assert_int_equal(found, 192); /* three more tokens agree: too few to copy a page for */
    assert_memory_equal(ta->pages, tb->pages, 3 * sizeof(page_id));
    assert_int_not_equal(ta->pages[3], tb->pages[3]);
    assert_int_equal(page_refs(kv.pool, ta->pages[0]), 2);
    assert_false(
        page_is_sealed(kv.pool, ta->pages[4])); /* the part page belongs to its sequence */
    block_table_free(ta);
    block_table_free(tb);
    kv_end(&kv, 0);
}

static void where_prompts_part_inside_a_page_the_beginning_is_copied(void **state)
{
    (void)state;
    struct kv kv = kv_of(16);
    int32_t a[300], b[300];
    count_up(a, 300, 0);
    count_up(b, 300, 0);
    b[231] = -1;
    int found;
    struct block_table *ta = filled(&kv, a, 300, &found);
    struct block_table *tb = filled(&kv, b, 300, &found);
    assert_int_equal(found, 231);
    assert_int_not_equal(ta->pages[3], tb->pages[3]);
    const uint8_t *donor = page_slice(kv.pool, ta->pages[3], 0);
    for (int i = 0; i < PAGE_TOKENS; i++) /* as it was: only the copy was written */
        assert_int_equal(donor[i], (uint8_t)a[192 + i]);
    block_table_free(ta);
    block_table_free(tb);
    /* b's page 3 is indexed under its own key and is found whole. */
    block_table_free(filled(&kv, b, 300, &found));
    assert_int_equal(found, 256);
    kv_end(&kv, 0);
}

static void a_full_pool_computes_instead_of_copying(void **state)
{
    (void)state;
    struct kv kv = kv_of(2);
    struct err e = {0};
    int32_t a[64], b[64];
    count_up(a, 64, 0);
    count_up(b, 64, 0);
    b[40] = -1;
    int found;
    struct block_table *ta = filled(&kv, a, 64, &found), *other = block_table_new(kv.pool);
    assert_int_equal(block_table_reserve(other, 1, &e), 0);
    struct block_table *tb = block_table_new(kv.pool);
    assert_int_equal(prefix_match(kv.index, b, 64, tb), 0);
    assert_int_equal(tb->n_pages, 0);
    block_table_free(ta);
    block_table_free(tb);
    block_table_free(other);
    kv_end(&kv, 0);
}

static void the_last_token_is_always_computed(void **state)
{
    (void)state;
    struct kv kv = kv_of(16);
    int32_t a[129];
    count_up(a, 129, 0);
    int found;
    block_table_free(filled(&kv, a, 128, &found));
    block_table_free(filled(&kv, a, 128, &found));
    assert_int_equal(found, 127);
    block_table_free(filled(&kv, a, 129, &found));
    assert_int_equal(found, 128);
    block_table_free(filled(&kv, a, 64, &found));
    assert_int_equal(found, 63);
    block_table_free(filled(&kv, a, 1, &found));
    assert_int_equal(found, 0);
    kv_end(&kv, 0);
}

static void the_same_tokens_after_another_start_are_another_page(void **state)
{
    (void)state;
    struct kv kv = kv_of(16);
    int32_t a[193], b[193];
    count_up(a, 193, 0);
    memcpy(b, a, sizeof(b));
    b[3] = 77;
    int found;
    block_table_free(filled(&kv, a, 193, &found));
    block_table_free(filled(&kv, b, 193, &found));
    assert_int_equal(found, 0);
    kv_end(&kv, 0);
}

static void another_context_finds_nothing(void **state)
{
    (void)state;
    struct kv kv = kv_of(4);
    const uint8_t other[HASH_BYTES] = {1, 2, 4};
    int32_t a[100];
    count_up(a, 100, 0);
    int found;
    block_table_free(filled(&kv, a, 100, &found));
    prefix_index_free(kv.index);
    kv.index = prefix_index_new(kv.pool, other);
    block_table_free(filled(&kv, a, 100, &found));
    assert_int_equal(found, 0);
    kv_end(&kv, 0);
}

static void a_page_computed_twice_stays_private(void **state)
{
    (void)state;
    struct kv kv = kv_of(16);
    struct err e = {0};
    int32_t a[200];
    count_up(a, 200, 0);
    struct block_table *t[2];
    for (int i = 0; i < 2; i++) { /* both begin before either is inserted */
        t[i] = block_table_new(kv.pool);
        assert_int_equal(prefix_match(kv.index, a, 200, t[i]), 0);
        assert_int_equal(block_table_reserve(t[i], 200, &e), 0);
    }
    prefix_insert(kv.index, a, 200, t[0]);
    prefix_insert(kv.index, a, 200, t[1]);
    struct page_stats s;
    block_table_free(t[1]);
    page_pool_stats(kv.pool, &s);
    assert_int_equal(s.idle, 0); /* its copies went back at once */
    struct block_table *again = block_table_new(kv.pool);
    assert_int_equal(prefix_match(kv.index, a, 200, again), 192);
    assert_memory_equal(again->pages, t[0]->pages, 3 * sizeof(page_id));
    block_table_free(again);
    block_table_free(t[0]);
    kv_end(&kv, 0);
}

static void insertion_goes_on_where_it_stopped(void **state)
{
    (void)state;
    struct kv kv = kv_of(16);
    struct err e = {0};
    int32_t a[400];
    count_up(a, 400, 0);
    struct block_table *t = block_table_new(kv.pool);
    for (int n = 1; n <= 400; n++) { /* as decode does: token after token */
        assert_int_equal(block_table_reserve(t, n, &e), 0);
        prefix_insert(kv.index, a, n, t);
        assert_int_equal(page_is_sealed(kv.pool, t->pages[0]), n >= 64);
    }
    int found;
    struct block_table *other = block_table_new(kv.pool);
    found = prefix_match(kv.index, a, 400, other);
    assert_int_equal(found, 384);
    block_table_free(other);
    block_table_free(t);
    kv_end(&kv, 0);
}

static void an_evicted_page_is_not_found_and_its_successors_come_back_with_it(void **state)
{
    (void)state;
    struct kv kv = kv_of(4);
    struct err e = {0};
    int32_t a[193];
    count_up(a, 193, 0);
    int found;
    struct block_table *t = filled(&kv, a, 193, &found);
    block_table_free(t); /* three idle pages, the last of the chain is the oldest */
    struct block_table *use = block_table_new(kv.pool);
    assert_int_equal(block_table_reserve(use, 2 * PAGE_TOKENS, &e),
                     0); /* one free, one evicted */
    t = block_table_new(kv.pool);
    assert_int_equal(prefix_match(kv.index, a, 193, t), 128);
    block_table_free(t);
    block_table_free(use);
    /* The pool now turns over completely; nothing of a is left to find. */
    use = block_table_new(kv.pool);
    assert_int_equal(block_table_reserve(use, 4 * PAGE_TOKENS, &e), 0);
    t = block_table_new(kv.pool);
    assert_int_equal(prefix_match(kv.index, a, 193, t), 0);
    block_table_free(t);
    block_table_free(use);
    block_table_free(filled(&kv, a, 193, &found));
    block_table_free(filled(&kv, a, 193, &found));
    assert_int_equal(found, 192);
    kv_end(&kv, 0);
}

/* Random sequences over a small alphabet of prefixes, in a pool that is always too small. */
static void random_use_never_finds_a_wrong_page(void **state)
{
    (void)state;
    struct kv kv = kv_of(24);
    struct block_table *held[3] = {0};
    uint32_t seed = 12345;
    int hits = 0;
    for (int round = 0; round < 3000; round++) {
        seed = seed * 1664525 + 1013904223;
        int32_t tokens[512];
        int n = 1 + (int)(seed >> 8) % 400;
        for (int i = 0; i < n; i++)
            tokens[i] = i / 64 * 1000 + (int)(seed >> 20 & (i < 128 ? 1 : 3)) + i % 64;
        int slot = (int)(seed >> 28) % 3, found;
        block_table_free(held[slot]);
        held[slot] = filled(&kv, tokens, n, &found); /* checks the bytes of every page */
        hits += found > 0;
    }
    assert_true(hits > 1000);
    for (int i = 0; i < 3; i++)
        block_table_free(held[i]);
    kv_end(&kv, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_prefixes_share_pages),
        cmocka_unit_test(where_prompts_part_inside_a_page_the_beginning_is_copied),
        cmocka_unit_test(a_full_pool_computes_instead_of_copying),
        cmocka_unit_test(the_last_token_is_always_computed),
        cmocka_unit_test(the_same_tokens_after_another_start_are_another_page),
        cmocka_unit_test(another_context_finds_nothing),
        cmocka_unit_test(a_page_computed_twice_stays_private),
        cmocka_unit_test(insertion_goes_on_where_it_stopped),
        cmocka_unit_test(an_evicted_page_is_not_found_and_its_successors_come_back_with_it),
        cmocka_unit_test(random_use_never_finds_a_wrong_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

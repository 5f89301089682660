/* The model that is none: what it answers, and that it guards its pages. */
#include "stages/kv/store.h"
#include "stages/model/null_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EOS = 257, TURN = 258, MAX = 512 };

struct run {
    struct model *m;
    struct page_pool *pool;
    struct store *store;
    struct kv_counters counters;
    struct stability stability;
};

static struct run *run_of(void)
{
    struct err e = {0};
    struct run *r = calloc(1, sizeof(*r));
    struct model_config c = {.kind = MODEL_NULL};
    struct kernels k;
    struct model_sizes s;
    uint8_t context[HASH_BYTES];
    kernels_init(&k, 0);
    assert_int_equal(model_open(&r->m, &c, &e), 0);
    assert_null(model_gguf(r->m));
    assert_int_equal(model_load(r->m, &k, MAX, 8, &e), 0);
    model_plan(r->m, MAX, 8, &s);
    assert_int_equal(page_pool_new(&r->pool, 64, s.n_layer, s.slice_bytes, &e), 0);
    struct page_use use = {.codec = "exact", .attention = "full"};
    assert_int_equal(model_context_digest(r->m, &use, context, &e), 0);
    struct store_options o = {.pool = r->pool,
                              .shape = {.n_layer = s.n_layer, .slice_bytes = s.slice_bytes},
                              .reuse = true,
                              .n_vocab = 259,
                              .counters = &r->counters,
                              .stability = &r->stability};
    memcpy(o.context, context, HASH_BYTES);
    assert_int_equal(store_open(&r->store, &o, &e), 0);
    return r;
}

static void run_end(struct run *r)
{
    struct err e = {0};
    assert_int_equal(page_pool_audit(r->pool, 0, &e), 0);
    store_close(r->store);
    page_pool_free(r->pool);
    model_free(r->m);
    free(r);
}

static int put(int32_t *tokens, const char *text, bool turn)
{
    int n = 0;
    for (; text[n]; n++)
        tokens[n] = (uint8_t)text[n];
    if (turn)
        tokens[n++] = TURN;
    return n;
}

/* Greedy answer of at most 64 bytes; false when the sequence failed. */
static bool answer(struct run *r, const char *prompt, bool turn, char out[65])
{
    struct err e = {0};
    int32_t tokens[MAX];
    float logits[259];
    int n = put(tokens, prompt, turn), len = 0;
    struct store_prompt *p;
    assert_int_equal(store_hold(r->store, &p, tokens, n, 0, PREFIX_DOCUMENT, &e), 0);
    assert_int_equal(store_admit(r->store, p, n + 64, true), 1);
    assert_int_equal(store_ready(r->store, p), 1);
    int pos = p->found;
    struct forward_rows s = {
        .tokens = tokens, .table = p->table, .want_logits = true, .logits = logits};
    while (len < 64) {
        s.pos = pos;
        s.n = n - pos;
        assert_int_equal(model_forward(r->m, &s, 1, &e), 0);
        if (s.failed)
            break;
        if (pos < p->keys.n_tokens)
            store_computed(r->store, p, n);
        int next = leading_first(logits, 259);
        if (next == EOS)
            break;
        out[len++] = (char)next;
        pos = n;
        tokens[n++] = next;
    }
    out[len] = '\0';
    store_drop(p);
    return !s.failed;
}

static void an_answer_is_sixteen_digits_that_depend_on_the_prompt(void **state)
{
    (void)state;
    struct run *r = run_of();
    char a[65], b[65], c[65];
    for (int turn = 0; turn < 2; turn++) {
        assert_true(answer(r, "Tell me about paper.", turn, a));
        assert_true(answer(r, "Tell me about paper.", turn, b));
        assert_true(answer(r, "Tell me about pepper.", turn, c));
        assert_int_equal(strlen(a), 16);
        assert_int_equal(strspn(a, "0123456789abcdef"), 16);
        assert_string_equal(a, b);
        assert_string_not_equal(a, c);
    }
    run_end(r);
}

static void a_shared_prefix_changes_no_answer(void **state)
{
    (void)state;
    struct run *r = run_of();
    char prompt[300], first[65], again[65];
    memset(prompt, 'x', sizeof(prompt));
    prompt[299] = '\0';
    assert_true(answer(r, prompt, true, first));
    assert_true(answer(r, prompt, true, again));
    assert_string_equal(first, again);
    struct page_stats s;
    page_pool_stats(r->pool, &s);
    assert_int_equal(s.allocs, 2 * 6 - 4); /* the second run found four full pages */
    run_end(r);
}

static void marks_in_the_prompt_fail_loop_and_run_on(void **state)
{
    (void)state;
    struct run *r = run_of();
    char a[65];
    assert_false(answer(r, "one @fail@ two", true, a));
    assert_true(answer(r, "one @loop@ two", true, a));
    assert_int_equal(strlen(a), 64);
    assert_memory_equal(a, a + 29, 29);
    assert_true(answer(r, "one @long@ two", false, a));
    assert_int_equal(strlen(a), 64);
    assert_memory_not_equal(a, a + 29, 29);
    run_end(r);
}

static void a_page_with_other_tokens_fails_the_sequence(void **state)
{
    (void)state;
    struct run *r = run_of();
    struct err e = {0};
    int32_t tokens[100];
    for (int i = 0; i < 100; i++)
        tokens[i] = i;
    struct block_table *t = block_table_new(r->pool);
    assert_int_equal(block_table_reserve(t, 100, &e), 0);
    struct forward_rows s = {.tokens = tokens, .pos = 0, .n = 70, .table = t};
    assert_int_equal(model_forward(r->m, &s, 1, &e), 0);
    assert_false(s.failed);
    tokens[3] = 200;
    s.pos = 70;
    s.n = 30;
    assert_int_equal(model_forward(r->m, &s, 1, &e), 0);
    assert_true(s.failed);
    block_table_free(t);
    run_end(r);
}

static void a_pass_past_its_limits_is_refused(void **state)
{
    (void)state;
    struct run *r = run_of();
    struct err e = {0};
    int32_t tokens[1100] = {0};
    struct block_table *t = block_table_new(r->pool);
    assert_int_equal(block_table_reserve(t, 1100, &e), 0);
    struct forward_rows s = {.tokens = tokens, .pos = 0, .n = MAX + 1, .table = t};
    assert_int_equal(model_forward(r->m, &s, 1, &e), -ERR_LIMIT);
    assert_int_equal(e.reach, REACH_JOB);
    err_clear(&e);
    s.n = 1;
    tokens[0] = 259;
    assert_int_equal(model_forward(r->m, &s, 1, &e), -ERR_LIMIT);
    assert_int_equal(e.reach, REACH_DOC);
    block_table_free(t);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_sixteen_digits_that_depend_on_the_prompt),
        cmocka_unit_test(a_shared_prefix_changes_no_answer),
        cmocka_unit_test(marks_in_the_prompt_fail_loop_and_run_on),
        cmocka_unit_test(a_page_with_other_tokens_fails_the_sequence),
        cmocka_unit_test(a_pass_past_its_limits_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sampling: exact distributions on a few tokens, cuts, ties, and independence of everything but the seed. */
#include "stages/decode/sampler.h"

#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct decode_config plain(void)
{
    return (struct decode_config){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

static struct sampler open_sampler(const struct decode_config *c, int n_vocab)
{
    struct sampler s;
    struct err e = {0};
    assert_int_equal(sampler_init(&s, c, n_vocab, &e), 0);
    return s;
}

static int32_t one(const struct decode_config *c, const float *logits, int n, uint64_t seed,
                   int position)
{
    struct sampler s = open_sampler(c, n);
    float copy[64];
    int32_t answer[64] = {0};
    memcpy(copy, logits, (size_t)n * sizeof(*copy));
    int32_t id = sampler_next(&s, copy, answer, position, seed);
    sampler_release(&s);
    return id;
}

static void temperature_zero_takes_the_largest_and_the_lowest_id_of_equals(void **state)
{
    (void)state;
    struct decode_config c = plain();
    c.temperature = 0;
    float logits[5] = {1, 3, 3, -2, 3};
    assert_int_equal(one(&c, logits, 5, 1, 0), 1);
    float zeros[3] = {-0.0f, 0.0f, -1};
    assert_int_equal(one(&c, zeros, 3, 1, 0), 0);
    float nan_first[3] = {NAN, 1, 2};
    assert_int_equal(one(&c, nan_first, 3, 1, 0), 2);
}

/* The draw is the inverse of the distribution: which token is taken can be told from the random number. */
static void draws_follow_the_distribution_exactly(void **state)
{
    (void)state;
    struct decode_config c = plain();
    float logits[4] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)};
    int order[4] = {1, 3, 2, 0}, count[4] = {0};
    double p[4] = {0.4, 0.3, 0.2, 0.1};
    for (int i = 0; i < 20000; i++) {
        double u = sampler_uniform((uint64_t)i, 0), border = 0;
        int k = 0;
        while (k < 3 && border + p[k] <= u)
            border += p[k++];
        int32_t id = one(&c, logits, 4, (uint64_t)i, 0);
        count[id]++;
        if (fabs(u - border) > 1e-6 && fabs(u - border - p[k]) > 1e-6)
            assert_int_equal(id, order[k]);
    }
    /* And the random numbers are uniform: three sigmas of 20,000 draws at p = 0.5 are 212. */
    for (int k = 0; k < 4; k++)
        assert_true(fabs(count[order[k]] - 20000 * p[k]) < 250);
}

static void temperature_sharpens(void **state)
{
    (void)state;
    struct decode_config c = plain();
    c.temperature = 0.5; /* squares the odds: 0.8, 0.2 become 16/17, 1/17 */
    float logits[2] = {logf(0.2f), logf(0.8f)};
    int first = 0;
    for (int i = 0; i < 17000; i++)
        first += one(&c, logits, 2, (uint64_t)i, 3) == 1;
    assert_true(abs(first - 16000) < 100);
    c.temperature = 1e-30; /* does not overflow */
    assert_int_equal(one(&c, logits, 2, 5, 0), 1);
}

static bool drawn[8];
static void draw_many(const struct decode_config *c, const float *logits, int n)
{
    memset(drawn, 0, sizeof(drawn));
    for (int i = 0; i < 3000; i++)
        drawn[one(c, logits, n, (uint64_t)i * 77, 1)] = true;
}

static void top_k_keeps_k_and_the_lower_id_of_equals(void **state)
{
    (void)state;
    struct decode_config c = plain();
    c.top_k = 2;
    float logits[5] = {0, 1, 2, 1, 1};
    draw_many(&c, logits, 5);
    assert_true(drawn[2] && drawn[1]);
    assert_false(drawn[0] || drawn[3] || drawn[4]);
}

static void top_p_keeps_the_smallest_front_that_reaches_it(void **state)
{
    (void)state;
    struct decode_config c = plain();
    float logits[4] = {logf(0.5f), logf(0.25f), logf(0.15f), logf(0.1f)};
    c.top_p = 0.7;
    draw_many(&c, logits, 4);
    assert_true(drawn[0] && drawn[1]);
    assert_false(drawn[2] || drawn[3]);
    c.top_p = 0.8;
    draw_many(&c, logits, 4);
    assert_true(drawn[0] && drawn[1] && drawn[2]);
    assert_false(drawn[3]);
    c.top_p = 0; /* at least one is left */
    draw_many(&c, logits, 4);
    assert_true(drawn[0]);
    assert_false(drawn[1] || drawn[2] || drawn[3]);
}

static void min_p_drops_what_is_unlikely_beside_the_first(void **state)
{
    (void)state;
    struct decode_config c = plain();
    c.min_p = 0.4;
    float logits[4] = {logf(0.1f), logf(0.5f), logf(0.25f), logf(0.15f)};
    draw_many(&c, logits, 4);
    assert_true(drawn[1] && drawn[2]);
    assert_false(drawn[0] || drawn[3]);
}

/* top_p = 0.8 of {0.5, 0.3, 0.2} keeps two; after top_k = 2 the two weigh 0.625 and 0.375, and one is below
 * 0.8: two stay. After min_p first it would be another result: the order is what the header says. */
static void top_p_counts_what_top_k_left(void **state)
{
    (void)state;
    struct decode_config c = plain();
    float logits[3] = {logf(0.5f), logf(0.3f), logf(0.2f)};
    c.top_p = 0.6;
    draw_many(&c, logits, 3);
    assert_true(drawn[0] && drawn[1] && !drawn[2]);
    c.top_k = 2;
    draw_many(&c, logits, 3);
    assert_true(drawn[0] && !drawn[1] && !drawn[2]);
}

static void penalty_counts_a_token_once_and_pushes_negative_logits_down(void **state)
{
    (void)state;
    struct decode_config c = plain();
    c.temperature = 0;
    c.repetition_penalty = 2;
    struct sampler s = open_sampler(&c, 4);
    float logits[4] = {4, 3, -1, -3};
    int32_t answer[4] = {0, 0, 2, 0};
    assert_int_equal(sampler_next(&s, logits, answer, 4, 0), 1);
    assert_true(logits[0] == 2 && logits[1] == 3 && logits[2] == -2 && logits[3] == -3);
    float again[4] = {1, 1, 1, 1.5f}; /* nothing is remembered from the call before */
    assert_int_equal(sampler_next(&s, again, answer, 0, 0), 3);
    sampler_release(&s);
}

static void a_draw_depends_on_seed_and_position_only(void **state)
{
    (void)state;
    struct decode_config c = plain();
    c.top_k = 40;
    float logits[60];
    for (int i = 0; i < 60; i++)
        logits[i] = (float)(i * 7 % 13);
    struct sampler s = open_sampler(&c, 60);
    int32_t answer[64] = {0}, first[50];
    for (int i = 0; i < 50; i++) {
        float copy[60];
        memcpy(copy, logits, sizeof(copy));
        first[i] = sampler_next(&s, copy, answer, i, 12345);
    }
    int differ = 0;
    for (int i = 49; i >= 0; i--) { /* in another order, with other draws in between */
        float copy[60];
        memcpy(copy, logits, sizeof(copy));
        differ += sampler_next(&s, copy, answer, i, 54321) != first[i];
        memcpy(copy, logits, sizeof(copy));
        assert_int_equal(sampler_next(&s, copy, answer, i, 12345), first[i]);
    }
    assert_true(differ > 10);
    sampler_release(&s);
}

/* First outputs of SplitMix64 from state 0, as published with it. */
static void random_numbers_are_those_of_splitmix64(void **state)
{
    (void)state;
    assert_true(sampler_uniform(0, 0) == (double)(0xe220a8397b1dcdafu >> 11) * 0x1p-53);
    assert_true(sampler_uniform(0, 1) == (double)(0x6e789e6aa1b965f4u >> 11) * 0x1p-53);
}

static void a_large_vocabulary_is_sorted_right(void **state)
{
    (void)state;
    enum { N = 50000 };
    static float logits[N];
    struct decode_config c = plain();
    c.top_k = 5;
    struct sampler s = open_sampler(&c, N);
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525 + 1013904223;
        logits[i] = (float)(x >> 8) * 1e-6f - 8;
    }
    sampler_next(&s, logits, NULL, 0, 1);
    float top[5] = {0};
    for (int k = 0; k < 5; k++) {
        int best = 0;
        for (int i = 1; i < N; i++)
            if (logits[i] > logits[best])
                best = i;
        top[k] = logits[best];
        assert_true(s.list[k].logit == top[k]);
        assert_int_equal(s.list[k].id, best);
        logits[best] = -100;
    }
    sampler_release(&s);
}

/* The definition: one after the other, each time the first of the greatest. */
static void take_leading(const float *logits, int n, struct logit *top, int n_top)
{
    static bool taken[4000];
    memset(taken, 0, sizeof(taken));
    for (int k = 0; k < n_top; k++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!taken[i] && (best < 0 || logits[i] > logits[best]))
                best = i;
        taken[best] = true;
        top[k] = (struct logit){logits[best], best};
    }
}

/* Many logits are equal, and the answer has many of the greatest. */
static void the_leading_logits_give_the_token_that_all_give(void **state)
{
    (void)state;
    enum { N = 4000, ROUNDS = 600 };
    static float logits[N];
    static const float penalties[] = {1, 1.1f, 1.5f, 8};
    uint32_t x = 5;
    int moved = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct decode_config c = plain();
        struct logit top[LEADING_MOST];
        int32_t answer[200];
        int n = round % 7 * 30;
        c.temperature = round % 3 * 0.7;
        c.top_k = 1 + round % 50;
        c.top_p = round % 2 ? 1 : 0.9;
        c.repetition_penalty = penalties[round % 4];
        for (int i = 0; i < N; i++) {
            x = x * 1664525 + 1013904223;
            logits[i] = (float)(x >> 8) / (float)(1 << 24);
            logits[i] = round % 5 ? floorf(logits[i] * 300) / 20 - 4 : 10 * logits[i] - 2;
        }
        take_leading(logits, N, top, 120);
        for (int i = 0; i < n; i++) /* some twice */
            answer[i] = i % 3 ? top[i / 2].id : (int32_t)(i * 977 % N);
        struct sampler s = open_sampler(&c, N);
        int n_top = sampler_leading(&s, n);
        assert_int_equal(n_top, (c.temperature > 0 ? c.top_k : 1) + (round % 4 ? n : 0));
        take_leading(logits, N, top, n_top);
        int32_t first = top[0].id, some = sampler_next_of(&s, top, answer, n, (uint64_t)round);
        assert_int_equal(sampler_next(&s, logits, answer, n, (uint64_t)round), some);
        moved += some != first;
        sampler_release(&s);
    }
    assert_true(moved > ROUNDS / 4);
}

static void where_no_few_logits_decide_all_are_asked_for(void **state)
{
    (void)state;
    struct decode_config c = plain();
    struct sampler s = open_sampler(&c, 5000);
    assert_int_equal(sampler_leading(&s, 0), 0); /* drawn from all */
    sampler_release(&s);
    c.top_k = 40;
    c.repetition_penalty = 0.9;
    s = open_sampler(&c, 5000);
    assert_int_equal(sampler_leading(&s, 0), 0); /* raises tokens from anywhere */
    sampler_release(&s);
    c.repetition_penalty = 1.1;
    s = open_sampler(&c, 5000);
    assert_int_equal(sampler_leading(&s, LEADING_MOST - 40), LEADING_MOST);
    assert_int_equal(sampler_leading(&s, LEADING_MOST - 39), 0);
    sampler_release(&s);
    s = open_sampler(&c, 50);
    assert_int_equal(sampler_leading(&s, 10), 50);
    assert_int_equal(sampler_leading(&s, 11), 0);
    sampler_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_takes_the_largest_and_the_lowest_id_of_equals),
        cmocka_unit_test(draws_follow_the_distribution_exactly),
        cmocka_unit_test(temperature_sharpens),
        cmocka_unit_test(top_k_keeps_k_and_the_lower_id_of_equals),
        cmocka_unit_test(top_p_keeps_the_smallest_front_that_reaches_it),
        cmocka_unit_test(min_p_drops_what_is_unlikely_beside_the_first),
        cmocka_unit_test(top_p_counts_what_top_k_left),
        cmocka_unit_test(penalty_counts_a_token_once_and_pushes_negative_logits_down),
        cmocka_unit_test(a_draw_depends_on_seed_and_position_only),
        cmocka_unit_test(random_numbers_are_those_of_splitmix64),
        cmocka_unit_test(a_large_vocabulary_is_sorted_right),
        cmocka_unit_test(the_leading_logits_give_the_token_that_all_give),
        cmocka_unit_test(where_no_few_logits_decide_all_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

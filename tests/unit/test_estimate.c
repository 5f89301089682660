/* How long a document will take, and what the limits of time and failures mean. No clock is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipeline/estimate.h"
#include "pipeline/limit_values.h"

#include <stdio.h>
#include <string.h>

enum { SECOND = 1000000 };

static void nothing_measured_is_no_time(void **state)
{
    (void)state;
    struct estimate_speed v = {.chunk = 512};
    struct estimate_work w = {.prompt = 1 << 30, .steps = 1 << 30};
    assert_int_equal(estimate_us(&v, &w), 0);
}

static void one_prompt_is_its_tokens_and_its_answer(void **state)
{
    (void)state;
    struct estimate_shape s = {.chunks = 1,
                               .questions = 1,
                               .prompt = 4000,
                               .final_tokens = 200,
                               .partial_tokens = 50,
                               .batch = 8,
                               .context = 8192};
    struct estimate_work w = estimate_work(&s);
    assert_int_equal(w.prompt, 4000);
    assert_int_equal(w.steps, 200);
    /* 1000 tokens a second read, 20 steps a second, and so far nothing was read between two steps. */
    struct estimate_speed v = {.computed = 10000, .prefill_us = 10 * SECOND, .chunk = 500};
    assert_int_equal(estimate_us(&v, &w), 4 * SECOND);
    v.steps = 1000000;
    v.decode_us = (int64_t)v.steps * (SECOND / 20);
    int64_t us = estimate_us(&v, &w);
    assert_in_range(us, 14 * SECOND, 14 * SECOND + SECOND / 100);
}

static void reading_between_two_steps_is_at_most_a_chunk(void **state)
{
    (void)state;
    struct estimate_work w = {.steps = 100};
    /* 2 steps of 50 ms, after 40 s of reading: not 20 s a step, but half a second for 500 tokens. */
    struct estimate_speed v = {.computed = 40000,
                               .prefill_us = 40 * SECOND,
                               .steps = 2,
                               .decode_us = SECOND / 10,
                               .chunk = 500};
    assert_int_equal(estimate_us(&v, &w), 100 * (SECOND / 20 + SECOND / 2));
}

static void what_the_cache_gave_is_expected_again(void **state)
{
    (void)state;
    struct estimate_work w = {.prompt = 8000};
    struct estimate_speed v = {.computed = 1000, .reused = 3000, .prefill_us = SECOND};
    assert_int_equal(estimate_us(&v, &w), 2 * SECOND);
}

static void questions_and_chunks_share_the_batch(void **state)
{
    (void)state;
    struct estimate_shape s = {.chunks = 1,
                               .questions = 20,
                               .prompt = 100,
                               .final_tokens = 10,
                               .partial_tokens = 10,
                               .batch = 8,
                               .context = 1000};
    assert_int_equal(estimate_work(&s).steps, 3 * 10);
    assert_int_equal(estimate_work(&s).prompt, 2000);
    s = (struct estimate_shape){.chunks = 20,
                                .questions = 1,
                                .prompt = 100,
                                .final_tokens = 30,
                                .partial_tokens = 10,
                                .batch = 8,
                                .context = 1000};
    assert_int_equal(estimate_work(&s).steps, 3 * 10 + 30);
    assert_int_equal(estimate_work(&s).prompt, 2000 + 200);
    s.context = 100; /* two prompts of partial answers, and one of theirs */
    assert_int_equal(estimate_work(&s).steps, 3 * 10 + 10 + 30);
    assert_int_equal(estimate_work(&s).prompt, 2000 + 200 + 20);
}

static void no_shape_goes_on_forever(void **state)
{
    (void)state;
    for (int chunks = 1; chunks < 1 << 20; chunks = chunks * 3 + 1)
        for (int partial = 1; partial < 4096; partial *= 5)
            for (int context = 1; context < 8192; context *= 7) {
                struct estimate_shape s = {chunks, 3, 64, 100, partial, 4, context};
                assert_true(estimate_work(&s).steps >= 100);
            }
    struct estimate_speed v = {
        .computed = 1, .prefill_us = INT64_MAX, .steps = 1, .decode_us = INT64_MAX, .chunk = 1};
    struct estimate_work w = {INT64_MAX, INT64_MAX};
    assert_int_equal(estimate_us(&v, &w), INT64_MAX);
}

/* ---- limits.deadline ---- */

static void expect_deadline(const char *text, time_t now, time_t want)
{
    struct err e = {0};
    time_t at = 0;
    assert_int_equal(limit_deadline(text, now, &at, &e), 0);
    assert_int_equal(at, want);
}

static void a_time_of_day_is_the_next_one(void **state)
{
    (void)state;
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    tzset();
    time_t evening = 1764784800; /* 2025-12-03 19:00 CET */
    expect_deadline("06:00", evening, evening + 11 * 3600);
    expect_deadline("6:00", evening, evening + 11 * 3600);
    expect_deadline("19:01", evening, evening + 60);
    expect_deadline("19:00", evening, evening + 86400);
    expect_deadline("06:00", 1767207600,
                    1767207600 + 10 * 3600); /* the last evening of a year */
    /* The night in which clocks go forward has an hour less, that in which they go back one more. */
    expect_deadline("06:00", 1774724400, 1774724400 + 9 * 3600);  /* 2026-03-28 20:00 CET */
    expect_deadline("06:00", 1792864800, 1792864800 + 11 * 3600); /* 2026-10-24 20:00 CEST */
    unsetenv("TZ");
    tzset();
}

static void a_duration_and_a_moment(void **state)
{
    (void)state;
    expect_deadline("8h", 1000, 1000 + 8 * 3600);
    expect_deadline("90m", 1000, 1000 + 5400);
    expect_deadline("1500ms", 1000, 1002);
    expect_deadline("1780000000", 1000, 1780000000);
}

static void what_is_no_deadline_is_refused(void **state)
{
    (void)state;
    const char *const bad[] = {"",
                               "6",
                               "24:00",
                               "06:60",
                               "06:0",
                               "6:000",
                               ":30",
                               "0s",
                               "-5m",
                               "tomorrow",
                               "999999999",
                               "06:00:00",
                               "99999999999999999999",
                               "1e9",
                               "999999h"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err e = {0};
        time_t at;
        assert_int_equal(limit_deadline(bad[i], 1764784800, &at, &e), -ERR_CONFIG);
        assert_non_null(strstr(e.msg, "06:00"));
    }
}

/* ---- limits.max_failures ---- */

static bool passed(const char *text, int64_t failed, int64_t done)
{
    struct err e = {0};
    struct limit_failures l;
    assert_int_equal(limit_failures(text, &l, &e), 0);
    return limit_failures_passed(&l, failed, done);
}

static void failures_are_counted_or_shared(void **state)
{
    (void)state;
    assert_false(passed(NULL, 1000000, 1000000));
    assert_true(passed("0", 1, 1));
    assert_false(passed("20", 20, 20));
    assert_true(passed("20", 21, 5000));
    assert_false(passed("5%", 19, 19)); /* too few to say */
    assert_true(passed("5%", 2, 20));
    assert_false(passed("5%", 1, 20));
    assert_true(passed("0.5%", 2, 300));
    const char *const bad[] = {"",  "-1",  "5 %",  "100%", "1.5",
                               "%", "nan", "0x10", "1e3",  "1.2.3%"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err e = {0};
        struct limit_failures l;
        assert_int_equal(limit_failures(bad[i], &l, &e), -ERR_CONFIG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_measured_is_no_time),
        cmocka_unit_test(one_prompt_is_its_tokens_and_its_answer),
        cmocka_unit_test(reading_between_two_steps_is_at_most_a_chunk),
        cmocka_unit_test(what_the_cache_gave_is_expected_again),
        cmocka_unit_test(questions_and_chunks_share_the_batch),
        cmocka_unit_test(no_shape_goes_on_forever),
        cmocka_unit_test(a_time_of_day_is_the_next_one),
        cmocka_unit_test(a_duration_and_a_moment),
        cmocka_unit_test(what_is_no_deadline_is_refused),
        cmocka_unit_test(failures_are_counted_or_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

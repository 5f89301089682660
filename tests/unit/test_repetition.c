/* Loops are found soon; lists, tables and emphasis are not taken for loops. Tokens are words here. */
#include "stages/decode/repetition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Feeds tokens until a loop is found; returns how many were needed, 0 when none was. */
static int feed(const int32_t *tokens, int n, int *period, int *begin)
{
    struct repetition r = {0};
    for (int i = 1; i <= n; i++)
        if ((*period = repetition_push(&r, tokens, i, begin)) != 0)
            return i;
    return 0;
}

/* One token per word or line end, numbered by spelling. */
static int words(const char *text, int32_t *out)
{
    int n = 0;
    while (*text) {
        size_t len = *text == ' ' || *text == '\n' ? 1 : strcspn(text, " \n");
        int32_t id = 17;
        for (size_t i = 0; i < len; i++)
            id = (int32_t)((uint32_t)id * 31 + (unsigned char)text[i]);
        if (*text != ' ')
            out[n++] = id;
        text += len;
    }
    return n;
}

static int found_in(const char *text)
{
    static int32_t tokens[4096];
    int period, begin;
    return feed(tokens, words(text, tokens), &period, &begin);
}

static void a_repeated_sentence_is_stopped_within_three_periods(void **state)
{
    (void)state;
    for (int length = 12; length <= 200; length++) {
        int32_t tokens[1024];
        int lead = 20, n = lead;
        for (int i = 0; i < lead; i++)
            tokens[i] = 1000 + i;
        while (n < lead + 4 * length && n < 1024) {
            tokens[n] = (n - lead) % length;
            n++;
        }
        int period, begin;
        assert_int_equal(feed(tokens, n, &period, &begin), lead + 3 * length);
        assert_int_equal(period, length);
        assert_int_equal(begin, lead);
    }
}

static void short_periods_need_more_copies(void **state)
{
    (void)state;
    for (int p = 1; p <= 12; p++) {
        int32_t tokens[256];
        for (int i = 0; i < 256; i++)
            tokens[i] = i % p;
        int period, begin;
        assert_int_equal(feed(tokens, 256, &period, &begin), repetition_needed(p));
        assert_int_equal(period, p);
        assert_int_equal(begin, 0);
    }
}

static void needed_length_grows_with_the_period(void **state)
{
    (void)state;
    for (int p = 4; p < REPETITION_PERIODS; p++)
        assert_true(repetition_needed(p + 1) > repetition_needed(p));
}

static void emphasis_is_no_loop(void **state)
{
    (void)state;
    assert_int_equal(found_in("It was very , very , very , very , very , very good ."), 0);
    assert_int_equal(found_in("no no no no no no no no no no no no"), 0);
    assert_int_equal(found_in("ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha"),
                     0);
}

static void lists_and_tables_are_no_loops(void **state)
{
    (void)state;
    assert_int_equal(found_in("| a | b | c | d | e | f | g | h |\n"
                              "| - | - | - | - | - | - | - | - |\n"
                              "| 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 |\n"
                              "| 0 | 0 | 0 | 0 | 0 | 0 | 0 | 2 |\n"
                              "| 0 | 0 | 0 | 0 | 0 | 0 | 0 | 3 |\n"
                              "| 0 | 0 | 0 | 0 | 0 | 0 | 0 | 4 |\n"),
                     0);
    assert_int_equal(
        found_in("- item 1 is done\n- item 2 is done\n- item 3 is done\n- item 4 is done\n"
                 "- item 5 is done\n- item 6 is done\n- item 7 is done\n- item 8 is done\n"),
        0);
    assert_int_equal(found_in("| yes | no |\n| yes | no |\n| yes | no |\n| yes | no |\n"), 0);
    assert_int_equal(
        found_in("A . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . 12\n"
                 "B . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . 15\n"),
        0);
}

static void a_refrain_with_verses_between_is_no_loop(void **state)
{
    (void)state;
    int32_t tokens[2048];
    int n = 0;
    for (int verse = 0; verse < 20; verse++) {
        for (int i = 0; i < 25; i++)
            tokens[n++] = 5000 + verse * 25 + i;
        for (int i = 0; i < 25; i++)
            tokens[n++] = i;
    }
    int period, begin;
    assert_int_equal(feed(tokens, n, &period, &begin), 0);
}

static void a_loop_after_a_long_answer_is_found(void **state)
{
    (void)state;
    int32_t tokens[3000];
    for (int i = 0; i < 2000; i++)
        tokens[i] = 100 + i;
    for (int i = 2000; i < 3000; i++)
        tokens[i] = i % 30;
    int period, begin;
    assert_int_equal(feed(tokens, 3000, &period, &begin), 2090);
    assert_int_equal(period, 30);
    assert_int_equal(begin, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_sentence_is_stopped_within_three_periods),
        cmocka_unit_test(short_periods_need_more_copies),
        cmocka_unit_test(needed_length_grows_with_the_period),
        cmocka_unit_test(emphasis_is_no_loop),
        cmocka_unit_test(lists_and_tables_are_no_loops),
        cmocka_unit_test(a_refrain_with_verses_between_is_no_loop),
        cmocka_unit_test(a_loop_after_a_long_answer_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

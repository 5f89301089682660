/* Values of options: what is read, what is refused with which words, and that what is printed reads back. */
#include "stages/base/opt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const colours[] = {"red", "green", "blue", NULL};

struct config {
    bool yes;
    int count, tokens, colour;
    uint64_t bytes;
    double seconds, ratio;
    char *text, *env, *path;
    struct opt_list texts, paths;
};

#define AT(f) offsetof(struct config, f)
static const struct opt rows[] = {
    {"yes", OPT_BOOL, AT(yes), "no", 0, 0, NULL, 0, ""},
    {"count", OPT_INT, AT(count), "3", -5, 100, NULL, 0, ""},
    {"tokens", OPT_TOKENS, AT(tokens), "64", 1, 1 << 20, NULL, 0, ""},
    {"bytes", OPT_BYTES, AT(bytes), "2KiB", 1024, 0x1p50, NULL, 0, ""},
    {"seconds", OPT_SECONDS, AT(seconds), "30s", 0, 86400, NULL, 0, ""},
    {"ratio", OPT_FLOAT, AT(ratio), "0.5", 0, 100, NULL, 0, ""},
    {"colour", OPT_ENUM, AT(colour), "green", 0, 0, colours, 0, ""},
    {"text", OPT_STRING, AT(text), NULL, 0, 0, NULL, 0, ""},
    {"env", OPT_STRING, AT(env), NULL, 0, 0, NULL, OPT_ENV, ""},
    {"path", OPT_PATH, AT(path), NULL, 0, 0, NULL, 0, ""},
    {"texts", OPT_STRINGS, AT(texts), NULL, 0, 0, NULL, 0, ""},
    {"paths", OPT_PATHS, AT(paths), NULL, 0, 0, NULL, 0, ""},
};
enum { ROWS = ARRAY_LEN(rows) };

static struct config c;

static int clean(void **state)
{
    (void)state;
    opt_release(rows, ROWS, &c);
    memset(&c, 0, sizeof(c));
    return 0;
}

static void set(const char *name, const char *text)
{
    struct err e = {0};
    int rc = opt_set(opt_find(rows, ROWS, name), &c, text, "/base", &e);
    if (rc)
        print_error("%s: %s\n", name, e.msg);
    assert_int_equal(rc, 0);
}

static void refuse(const char *name, const char *text, const char *message)
{
    struct err e = {0};
    assert_int_equal(opt_set(opt_find(rows, ROWS, name), &c, text, "/base", &e), -ERR_CONFIG);
    assert_string_equal(e.msg, message);
    assert_int_equal(e.reach, REACH_JOB);
}

/* Prints the value and reads it into a second config; both must print the same. */
static void comes_back(const char *name, const char *printed)
{
    const struct opt *o = opt_find(rows, ROWS, name);
    struct config other = {0};
    struct buf a, b;
    struct err e = {0};
    buf_init(&a, 1000);
    buf_init(&b, 1000);
    assert_int_equal(opt_text(o, &c, 0, &a, &e), 0);
    assert_string_equal(a.data, printed);
    assert_int_equal(opt_set(o, &other, a.data, "/other", &e), 0);
    assert_int_equal(opt_text(o, &other, 0, &b, &e), 0);
    assert_string_equal(b.data, printed);
    opt_release(rows, ROWS, &other);
    buf_release(&a);
    buf_release(&b);
}

static void fills_defaults_and_leaves_the_rest_unset(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(opt_defaults(rows, ROWS, &c, &e), 0);
    assert_int_equal(c.count, 3);
    assert_int_equal(c.bytes, 2048);
    assert_true(c.seconds == 30);
    assert_int_equal(c.colour, 1);
    assert_null(c.text);
    assert_int_equal(c.texts.n, 0);
}

static void reads_sizes_with_binary_units(void **state)
{
    (void)state;
    set("bytes", "4096");
    assert_int_equal(c.bytes, 4096);
    set("bytes", "1.5GiB");
    assert_int_equal(c.bytes, 3 << 29);
    comes_back("bytes", "1536MiB");
    set("bytes", "2 TiB");
    comes_back("bytes", "2TiB");
    set("bytes", "1025");
    comes_back("bytes", "1025");
}

static void refuses_sizes_that_mean_two_things_and_says_what_to_write(void **state)
{
    (void)state;
    refuse("bytes", "2G", "\"2G\": write 2GiB");
    refuse("bytes", "2GB", "\"2GB\": write 2GiB");
    refuse("bytes", "64mib", "\"64mib\": write 64MiB");
    refuse("bytes", "4096B", "\"4096B\": write 4096");
    refuse("bytes", "1500.5", "\"1500.5\" is not a whole number of bytes");
    refuse("bytes", "1", "1 is too small: 1KiB to 1024TiB");
    refuse("bytes", "1e300", "1e300 is too large: 1KiB to 1024TiB");
    refuse("bytes", "",
           "\"\" is not a size: write bytes as a number, or with KiB, MiB, GiB, TiB, such as "
           "64MiB");
}

static void reads_times_and_prints_them_in_the_largest_whole_unit(void **state)
{
    (void)state;
    const char *const pairs[][2] = {{"500ms", "500ms"}, {"0.5s", "500ms"}, {"90s", "90s"},
                                    {"60s", "1m"},      {"8h", "8h"},      {"1.5h", "90m"},
                                    {"0s", "0s"},       {"1ms", "1ms"},    {"0.1s", "100ms"},
                                    {"333ms", "333ms"}};
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        set("seconds", pairs[i][0]);
        comes_back("seconds", pairs[i][1]);
    }
    set("seconds", "0.00025s");
    comes_back("seconds", "0.00025s");
    refuse("seconds", "20", "\"20\": write 20s");
    refuse("seconds", "20 minutes", "\"20 minutes\": write 20m");
    refuse("seconds", "2d", "\"2d\" is not a time: write it with ms, s, m or h, such as 30s");
    refuse("seconds", "25h", "25h is too large: 0s to 24h");
}

static void says_the_range_and_the_unit_of_numbers(void **state)
{
    (void)state;
    refuse("tokens", "0", "0 is too small: 1 to 1048576 tokens");
    refuse("tokens", "1048577", "1048577 is too large: 1 to 1048576 tokens");
    refuse("count", "1.5", "\"1.5\" is not a whole number: -5 to 100");
    refuse("count", "0x10", "\"0x10\" is not a whole number: -5 to 100");
    refuse("count", "", "\"\" is not a whole number: -5 to 100");
    refuse("count", "99999999999999999999999",
           "99999999999999999999999 is too large: -5 to 100");
    refuse("ratio", "nan", "\"nan\" is not a number: 0 to 100");
    refuse("ratio", "inf", "\"inf\" is not a number: 0 to 100");
    refuse("ratio", "1e999", "\"1e999\" is not a number: 0 to 100");
    refuse("ratio", "1,5", "\"1,5\" is not a number: 0 to 100");
    set("count", "-5");
    comes_back("count", "-5");
}

static void prints_the_shortest_number_that_reads_back(void **state)
{
    (void)state;
    const char *const texts[] = {"0.1", "0.7", "1e-05", "100", "0.3333333333333333",
                                 "1",   "0",   "99.99"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        set("ratio", texts[i]);
        comes_back("ratio", texts[i]);
    }
}

static void reads_words_and_names_the_nearest(void **state)
{
    (void)state;
    set("yes", "true");
    assert_true(c.yes);
    comes_back("yes", "yes");
    refuse("yes", "on", "\"on\" is not yes or no");
    set("colour", "blue");
    comes_back("colour", "blue");
    refuse("colour", "gren", "unknown value \"gren\": did you mean \"green\"?");
    refuse("colour", "purple", "unknown value \"purple\": red, green or blue");
}

static void takes_the_environment_only_where_the_row_says_so(void **state)
{
    (void)state;
    setenv("QUIRE_TEST_X", "value", 1);
    unsetenv("QUIRE_TEST_Y");
    set("text", "a ${QUIRE_TEST_X}");
    assert_string_equal(c.text, "a ${QUIRE_TEST_X}");
    set("env", "a ${QUIRE_TEST_X} b");
    assert_string_equal(c.env, "a value b");
    set("env", "cost: $5 $${QUIRE_TEST_X} $$");
    assert_string_equal(c.env, "cost: $5 ${QUIRE_TEST_X} $$");
    comes_back("env", "cost: $5 $${QUIRE_TEST_X} $$");
    set("env", "$$${");
    comes_back("env", "$$${");
    refuse("env", "${QUIRE_TEST_Y}", "${QUIRE_TEST_Y} is not set in the environment");
    refuse("env", "x${QUIRE",
           "\"${QUIRE\": ${ needs a name and a }; a plain ${ is written $${");
    setenv("QUIRE_TEST_X", "\xff", 1);
    refuse("env", "${QUIRE_TEST_X}", "\"${QUIRE_TEST_X}\" is not valid UTF-8");
}

static void resolves_paths_against_the_folder_of_the_job_file(void **state)
{
    (void)state;
    const char *const pairs[][2] = {{"a/b", "/base/a/b"},
                                    {"/abs", "/abs"},
                                    {"./a", "/base/a"},
                                    {".", "/base"},
                                    {"../x", "/x"},
                                    {"..", "/"},
                                    {".././../x/../y", "/x/../y"},
                                    {"..x", "/base/..x"},
                                    {".//a", "/base/a"},
                                    {"~/x", "/home/me/x"}};
    setenv("HOME", "/home/me", 1);
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        set("path", pairs[i][0]);
        assert_string_equal(c.path, pairs[i][1]);
        comes_back("path", pairs[i][1]);
    }
    refuse("path", "", "an empty path");
}

static void collects_items_of_lists(void **state)
{
    (void)state;
    set("texts", "one");
    set("texts", "");
    set("paths", "*.zip");
    assert_int_equal(c.texts.n, 2);
    assert_string_equal(c.texts.items[1], "");
    assert_string_equal(c.paths.items[0], "/base/*.zip");
    struct buf b;
    struct err e = {0};
    buf_init(&b, 100);
    assert_int_equal(opt_text(opt_find(rows, ROWS, "texts"), &c, 2, &b, &e), 1);
    assert_int_equal(opt_text(opt_find(rows, ROWS, "text"), &c, 0, &b, &e), 1);
    assert_int_equal(b.len, 0);
    buf_release(&b);
}

static void measures_edit_distance_with_swaps(void **state)
{
    (void)state;
    assert_int_equal(opt_distance("", ""), 0);
    assert_int_equal(opt_distance("context", "contxt"), 1);
    assert_int_equal(opt_distance("kitten", "sitting"), 3);
    assert_int_equal(opt_distance("form", "from"), 1);
    assert_int_equal(opt_distance("abc", ""), 3);
    char longer[80];
    memset(longer, 'a', sizeof(longer));
    longer[79] = '\0';
    assert_true(opt_distance(longer, "a") == SIZE_MAX);
}

static void guesses_only_what_is_near(void **state)
{
    (void)state;
    struct opt_guess g = {.wanted = "max_tokns"};
    opt_guess_add(&g, "min_tokens");
    opt_guess_add(&g, "max_tokens");
    opt_guess_add(&g, "temperature");
    assert_string_equal(g.best, "max_tokens");
    struct opt_guess none = {.wanted = "zebra"};
    opt_guess_add(&none, "context");
    assert_null(none.best);
    struct opt_guess prefix = {.wanted = "temp"};
    opt_guess_add(&prefix, "temperature");
    assert_string_equal(prefix.best, "temperature");
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, clean)
    const struct CMUnitTest tests[] = {
        T(fills_defaults_and_leaves_the_rest_unset),
        T(reads_sizes_with_binary_units),
        T(refuses_sizes_that_mean_two_things_and_says_what_to_write),
        T(reads_times_and_prints_them_in_the_largest_whole_unit),
        T(says_the_range_and_the_unit_of_numbers),
        T(prints_the_shortest_number_that_reads_back),
        T(reads_words_and_names_the_nearest),
        T(takes_the_environment_only_where_the_row_says_so),
        T(resolves_paths_against_the_folder_of_the_job_file),
        T(collects_items_of_lists),
        T(measures_edit_distance_with_swaps),
        T(guesses_only_what_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

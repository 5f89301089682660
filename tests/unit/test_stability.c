/* Which pages are kept for the next run. */
#include "stages/kv/stability.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void count(struct stability *s, enum prefix_class of, int repeats, int firsts)
{
    for (int i = 0; i < repeats; i++)
        stability_count(s, of, true);
    for (int i = 0; i < firsts; i++)
        stability_count(s, of, false);
}

static void test_a_page_belongs_to_the_class_of_its_last_position(void **state)
{
    (void)state;
    assert_int_equal(stability_class(64, 128, 1000), PREFIX_SHARED);
    assert_int_equal(stability_class(128, 128, 1000), PREFIX_SHARED);
    assert_int_equal(stability_class(192, 129, 1000), PREFIX_DOCUMENT);
    assert_int_equal(stability_class(960, 128, 1000), PREFIX_DOCUMENT);
    assert_int_equal(stability_class(1024, 128, 1000), PREFIX_OWN);
    assert_int_equal(stability_class(64, 0, 0), PREFIX_OWN);
}

static void test_shared_pages_are_kept_always(void **state)
{
    (void)state;
    struct stability s = {0};
    assert_true(stability_keeps(&s, PREFIX_SHARED, false));
    count(&s, PREFIX_SHARED, 0, 1000000);
    assert_true(stability_keeps(&s, PREFIX_SHARED, false));
}

static void test_a_page_that_repeats_is_kept_whatever_its_class_does(void **state)
{
    (void)state;
    struct stability s = {0};
    count(&s, PREFIX_OWN, 0, 5000);
    count(&s, PREFIX_DOCUMENT, 0, 5000);
    assert_true(stability_keeps(&s, PREFIX_OWN, true));
    assert_true(stability_keeps(&s, PREFIX_DOCUMENT, true));
}

static void test_documents_are_kept_at_first_and_not_when_none_comes_back(void **state)
{
    (void)state;
    struct stability s = {0};
    int kept = 0;
    for (int i = 0; i < 1000; i++) {
        kept += stability_keeps(&s, PREFIX_DOCUMENT, false);
        stability_count(&s, PREFIX_DOCUMENT, false);
    }
    assert_int_equal(kept, 101);
}

static void test_where_reuse_is_expected_documents_are_kept_much_longer(void **state)
{
    (void)state;
    struct stability s = {.expect_reuse = true};
    count(&s, PREFIX_DOCUMENT, 0, 19000); /* all first questions come before the second ones */
    assert_true(stability_keeps(&s, PREFIX_DOCUMENT, false));
    count(&s, PREFIX_DOCUMENT, 0, 2000);
    assert_false(stability_keeps(&s, PREFIX_DOCUMENT, false));
}

static void test_documents_that_come_back_in_a_tenth_of_the_look_ups_are_kept(void **state)
{
    (void)state;
    struct stability some = {0}, few = {0};
    count(&some, PREFIX_DOCUMENT, 1000, 9000);
    count(&few, PREFIX_DOCUMENT, 980, 9020);
    assert_true(stability_keeps(&some, PREFIX_DOCUMENT, false));
    assert_false(stability_keeps(&few, PREFIX_DOCUMENT, false));
}

static void test_a_second_night_over_the_same_text_is_kept_from_its_first_pages_on(void **state)
{
    (void)state;
    struct stability s = {0};
    for (int i = 0; i < 1000; i++) {
        bool changed = i % 5 == 0; /* every fifth document is new */
        stability_count(&s, PREFIX_DOCUMENT, !changed);
        assert_true(stability_keeps(&s, PREFIX_DOCUMENT, !changed));
    }
}

static void test_questions_and_partial_answers_are_not_kept(void **state)
{
    (void)state;
    struct stability s = {.expect_reuse = true};
    assert_false(stability_keeps(&s, PREFIX_OWN, false));
    count(&s, PREFIX_OWN, 3, 4); /* too few to say */
    assert_false(stability_keeps(&s, PREFIX_OWN, false));
    count(&s, PREFIX_OWN, 0, 1000);
    assert_false(stability_keeps(&s, PREFIX_OWN, false));
    count(&s, PREFIX_OWN, 400, 0); /* the same questions every night */
    assert_true(stability_keeps(&s, PREFIX_OWN, false));
}

static void test_classes_do_not_mix(void **state)
{
    (void)state;
    struct stability s = {0};
    count(&s, PREFIX_SHARED, 100000, 0);
    count(&s, PREFIX_OWN, 100000, 0);
    count(&s, PREFIX_DOCUMENT, 0, 2000);
    assert_false(stability_keeps(&s, PREFIX_DOCUMENT, false));
}

static void expect_line(const struct stability *s, const char *expected)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 256);
    assert_int_equal(stability_line(s, &b, &e), 0);
    assert_string_equal(b.data, expected);
    buf_release(&b);
}

static void test_the_line_names_the_share_of_every_class_that_was_looked_up(void **state)
{
    (void)state;
    struct stability s = {0};
    expect_line(&s, "prefix stability: nothing was looked up");
    count(&s, PREFIX_SHARED, 20, 0);
    count(&s, PREFIX_OWN, 0, 7);
    expect_line(&s, "prefix stability: shared 100 %, own 0 %");
    count(&s, PREFIX_DOCUMENT, 83, 17);
    expect_line(&s, "prefix stability: shared 100 %, document 83 %, own 0 %");
    assert_true(stability_share(&s, PREFIX_DOCUMENT) == 0.83);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_page_belongs_to_the_class_of_its_last_position),
        cmocka_unit_test(test_shared_pages_are_kept_always),
        cmocka_unit_test(test_a_page_that_repeats_is_kept_whatever_its_class_does),
        cmocka_unit_test(test_documents_are_kept_at_first_and_not_when_none_comes_back),
        cmocka_unit_test(test_where_reuse_is_expected_documents_are_kept_much_longer),
        cmocka_unit_test(test_documents_that_come_back_in_a_tenth_of_the_look_ups_are_kept),
        cmocka_unit_test(
            test_a_second_night_over_the_same_text_is_kept_from_its_first_pages_on),
        cmocka_unit_test(test_questions_and_partial_answers_are_not_kept),
        cmocka_unit_test(test_classes_do_not_mix),
        cmocka_unit_test(test_the_line_names_the_share_of_every_class_that_was_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

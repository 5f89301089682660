/* The greatest of many logits: the first, and lists of them, against sorting all. */
#include "stages/model/leading.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_first_follows_its_rules(void **state)
{
    (void)state;
    for (int n = 1; n < 40; n++) {
        float x[40] = {0};
        assert_int_equal(leading_first(x, n), 0); /* all equal */
        x[n - 1] = -0.0f;
        assert_int_equal(leading_first(x, n), 0); /* -0 equals 0 */
        x[n / 2] = 3.0f;
        x[n - 1] = 3.0f;
        assert_int_equal(leading_first(x, n), n / 2); /* the first of the greatest */
        x[0] = NAN;
        assert_int_equal(leading_first(x, n), n > 1 ? (n / 2 ? n / 2 : n - 1) : 0);
        for (int j = 0; j < n; j++)
            x[j] = NAN;
        assert_int_equal(leading_first(x, n), 0);
        x[n - 1] = -INFINITY;
        assert_int_equal(leading_first(x, n), n - 1); /* anything beats NaN */
    }
}

static int by_lead(const void *a, const void *b)
{
    const struct logit *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? 1 : -1) : x->id - y->id;
}

/* Values of which few differ, zeros of both signs among them, in any order of ids. */
static void lists_hold_the_front_of_what_sorting_gives(void **state)
{
    (void)state;
    enum { N = 300 };
    uint32_t seed = 3;
    for (int round = 0; round < 2000; round++) {
        struct logit all[N], at[N], again[N];
        int n = 1 + round % N, most = 1 + round / 3 % n;
        for (int i = 0; i < n; i++) {
            seed = seed * 1664525 + 1013904223;
            int value = (int)(seed >> 24) % (1 + round % 40) - 5;
            all[i] = (struct logit){value           ? (float)value
                                    : seed >> 8 & 1 ? -0.0f
                                                    : 0.0f,
                                    (i * 7919 + round) % 100003};
        }
        memcpy(again, all, sizeof(again));
        struct leading list = {.at = at, .most = most};
        for (int i = 0; i < n; i++) {
            assert_true(list.n == most || leading_least(&list) == -INFINITY);
            leading_add(&list, all[i].value, all[i].id);
        }
        qsort(all, (size_t)n, sizeof(*all), by_lead);
        assert_int_equal(list.n, most);
        assert_true(leading_least(&list) == all[most - 1].value);
        leading_sort(&list);
        assert_memory_equal(at, all, (size_t)most * sizeof(*all));
        leading_order(again, n);
        assert_memory_equal(again, all, (size_t)n * sizeof(*all));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_follows_its_rules),
        cmocka_unit_test(lists_hold_the_front_of_what_sorting_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tests/kernels/plain/cmocka.h - as much of cmocka as kcheck takes, for emulated CPUs whose cmocka is not installed. */
#ifndef QUIRE_TESTS_PLAIN_CMOCKA_H
#define QUIRE_TESTS_PLAIN_CMOCKA_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    int (*setup_func)(void **state), (*teardown_func)(void **state);
    void *initial_state;
};

/* Runs them in turn and prints as cmocka does. Returns how many failed. */
int plain_run(const char *group, const struct CMUnitTest *tests, size_t n);
/* End the running test. */
_Noreturn void plain_end(int outcome);
enum { PLAIN_FAILED = 1, PLAIN_SKIPPED };

#define _cmocka_run_group_tests(group, tests, n, setup, teardown) plain_run(group, tests, n)
#define print_message(...) printf(__VA_ARGS__)
#define skip() plain_end(PLAIN_SKIPPED)
#define fail_msg(...)                                                                          \
    (printf(__VA_ARGS__), printf("  (%s:%d)\n", __FILE__, __LINE__), plain_end(PLAIN_FAILED))
#define assert_true(x)                                                                         \
    do {                                                                                       \
        if (!(x))                                                                              \
            fail_msg("not true: %s", #x);                                                      \
    } while (0)
#define assert_int_equal(a, b)                                                                 \
    do {                                                                                       \
        if ((intmax_t)(a) != (intmax_t)(b))                                                    \
            fail_msg("%s is %jd, not %s %jd", #a, (intmax_t)(a), #b, (intmax_t)(b));           \
    } while (0)

#endif

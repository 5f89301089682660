/* Lists of CPUs as sysfs writes them, and others. */
#define _GNU_SOURCE /* CPU_COUNT */
#include "stages/kv/numa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void lists_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        int count, has, has_not;
    } cases[] = {
        {"0", 1, 0, 1},           {"0\n", 1, 0, 1}, {"0-3,8,10-11\n", 7, 8, 9},
        {"0-3,8,10-11", 7, 3, 4}, {"5-5", 1, 5, 6}, {"1,1,1-2", 2, 2, 0},
        {"1023", 1, 1023, 1022},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cpu_set_t set;
        assert_true(numa_parse_cpus(cases[i].list, &set));
        assert_int_equal(CPU_COUNT(&set), cases[i].count);
        assert_true(CPU_ISSET((size_t)cases[i].has, &set));
        assert_false(CPU_ISSET((size_t)cases[i].has_not, &set));
    }
}

static void what_is_no_list_is_refused(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "",
        "\n",
        ",",
        "0,",
        ",0",
        "0,,1",
        "-1",
        "3-1",
        "0-",
        "0-,1",
        "a",
        "0x1",
        "0 1",
        " 0",
        "0-1-2",
        "1024",
        "0-1024",
        "+1",
        "0-+2",
        "99999999999999999999",
        "0-18446744073709551616",
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        cpu_set_t set;
        if (numa_parse_cpus(lists[i], &set))
            fail_msg("\"%s\" was taken", lists[i]);
    }
}

static void staying_near_leaves_a_cpu_to_run_on(void **state)
{
    (void)state;
    cpu_set_t set;
    void *memory = malloc(1 << 16);
    numa_stay_near(memory);
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    assert_true(CPU_COUNT(&set) > 0);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(staying_near_leaves_a_cpu_to_run_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

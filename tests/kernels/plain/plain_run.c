#include "cmocka.h"

#include <setjmp.h>

static jmp_buf end;

void plain_end(int outcome)
{
    longjmp(end, outcome);
}

int plain_run(const char *group, const struct CMUnitTest *tests, size_t n)
{
    static const char *const words[] = {"[       OK ]", "[  FAILED  ]", "[  SKIPPED ]"};
    volatile int counts[3] = {0};
    for (volatile size_t i = 0; i < n; i++) {
        void *state = tests[i].initial_state;
        int outcome = setjmp(end);
        if (outcome == 0) {
            if (tests[i].setup_func)
                (void)tests[i].setup_func(&state);
            tests[i].test_func(&state);
        }
        counts[outcome]++;
        printf("%s %s\n", words[outcome], tests[i].name);
        fflush(stdout);
    }
    printf("[==========] %s: %zu test(s) run.\n[  PASSED  ] %d test(s).\n", group, n,
           counts[0]);
    if (counts[PLAIN_SKIPPED])
        printf("[  SKIPPED ] %d test(s)\n", counts[PLAIN_SKIPPED]);
    if (counts[PLAIN_FAILED])
        printf("[  FAILED  ] %s: %d test(s)\n", group, counts[PLAIN_FAILED]);
    return counts[PLAIN_FAILED];
}

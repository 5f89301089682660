/* tests/unit/thread_time.h - how long something takes, whatever else the machine does: processor time of the calling
 * thread alone. */
#ifndef QUIRE_TESTS_UNIT_THREAD_TIME_H
#define QUIRE_TESTS_UNIT_THREAD_TIME_H

#include <time.h>

static inline double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif

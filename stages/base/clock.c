#include "stages/base/clock.h"

#include <stdatomic.h>
#include <time.h>

static atomic_llong start_us;

int64_t clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

double clock_since_start(void)
{
    long long now = clock_us(), unset = 0;
    atomic_compare_exchange_strong(&start_us, &unset, now);
    return (double)(now - atomic_load(&start_us)) * 1e-6;
}

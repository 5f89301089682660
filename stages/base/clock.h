/* stages/base/clock.h - monotonic time, in seconds or microseconds. Thread: safe. */
#ifndef QUIRE_BASE_CLOCK_H
#define QUIRE_BASE_CLOCK_H

#include <stdint.h>

/* Microseconds on the monotonic clock; only differences mean anything. */
int64_t clock_us(void);

/* Seconds since the program first asked for the time. */
double clock_since_start(void);

#endif

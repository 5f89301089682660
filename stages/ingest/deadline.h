/* stages/ingest/deadline.h - one document may take so long and no longer. */
#ifndef QUIRE_INGEST_DEADLINE_H
#define QUIRE_INGEST_DEADLINE_H

#include "stages/base/clock.h"
#include "stages/base/err.h"

struct deadline {
    int64_t end_us;
    double seconds; /* for the message */
};

static inline void deadline_start(struct deadline *d, double seconds)
{
    d->seconds = seconds;
    d->end_us = clock_us() + (int64_t)(seconds * 1e6);
}

/* -ERR_LIMIT once the time is over. d may be NULL: no limit. */
static inline int deadline_check(const struct deadline *d, struct err *e)
{
    if (!d || clock_us() <= d->end_us)
        return 0;
    return err_set(e, REACH_DOC, ERR_LIMIT, "not read after %g s (ingest.timeout)", d->seconds);
}

#endif

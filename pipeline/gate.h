/* pipeline/gate.h - limits that end a run: limits.deadline and limits.max_failures.
 *
 * What:   says when no document may be begun any more, and why. The flow asks it (struct flow_gate), the run watches
 *         gate_time().
 *
 *             begun ...                    aim            end
 *         ------+---------------------------+---- drain ---+
 *               only what will be done here |  what is not |  nothing
 *
 *         aim = end - limits.deadline_margin.
 * Thread: gate_open() before the flow; the callbacks come from its threads; the rest from the main thread.
 */
#ifndef QUIRE_PIPELINE_GATE_H
#define QUIRE_PIPELINE_GATE_H

#include "pipeline/flow.h"
#include "pipeline/job.h"
#include "pipeline/limit_values.h"
#include "stages/stats.h"

struct gate {
    struct flow_gate flow;
    const struct job *job;
    struct run_stats *stats;
    atomic_bool *cancel;
    int context;
    struct limit_failures failures;
    int64_t aim_us, end_us; /* of clock_us(); 0: no deadline */
    atomic_bool no_time, too_many;
};

/* now: for tests, else time(NULL). -ERR_CONFIG. */
int gate_init(struct gate *g, const struct job *job, time_t now, struct err *e) MUST_CHECK;
/* Before flow_start(). context: tokens, resolved. */
void gate_open(struct gate *g, struct run_stats *stats, atomic_bool *cancel, int context);

/* The deadline's margin has begun. */
bool gate_time_is_up(const struct gate *g);
/* Milliseconds until then, at most `most`. */
int gate_wait_ms(const struct gate *g, int most);
/* clock_us() until which what was begun may be finished, when drained now for at most drain_us. */
int64_t gate_drain_until(const struct gate *g, int64_t drain_us);

#endif

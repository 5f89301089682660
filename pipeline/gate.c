#include "pipeline/gate.h"

#include "pipeline/estimate.h"
#include "stages/base/clock.h"
#include "stages/base/log.h"

#include <inttypes.h>

static int64_t estimate(const struct gate *g, const struct rec *r)
{
    const struct job *j = g->job;
    struct run_stats *s = g->stats;
    struct estimate_shape shape = {
        .chunks = r->req.n_level > 1 ? r->req.n_level : 1,
        .questions = j->task.questions.n > 0 ? (int)j->task.questions.n : 1,
        .prompt = r->req.n_tokens,
        .final_tokens = j->decode.max_tokens,
        .partial_tokens = r->req.max_tokens,
        .batch = j->decode.batch,
        .context = g->context,
    };
    struct estimate_speed speed = {
        .computed = atomic_load(&s->prefill_tokens),
        .reused = atomic_load(&s->reused_tokens),
        .prefill_us = atomic_load(&s->prefill_us),
        .steps = atomic_load(&s->decode_steps),
        .decode_us = atomic_load(&s->decode_us),
        .chunk = j->prefill.batch,
    };
    struct estimate_work work = estimate_work(&shape);
    return estimate_us(&speed, &work);
}

/* struct flow_gate.may_begin */
static bool may_begin(void *ctx, const struct rec *r)
{
    struct gate *g = ctx;
    if (!g->end_us)
        return true;
    int64_t left = g->aim_us - clock_us(), takes = estimate(g, r);
    if (left > 0 && takes <= left)
        return true;
    log_warn("run",
             "limits.deadline: %.0f s are left; document %" PRId64
             " would take about %.0f s, and is not begun",
             left > 0 ? (double)left / 1e6 : 0, r->doc->ordinal, (double)takes / 1e6);
    atomic_store(&g->no_time, true);
    atomic_store(g->cancel, true);
    return false;
}

/* struct flow_gate.may_go_on */
static bool may_go_on(void *ctx)
{
    struct gate *g = ctx;
    int64_t failed = atomic_load(&g->stats->docs_failed);
    if (!limit_failures_passed(&g->failures, failed, atomic_load(&g->stats->docs_done)))
        return true;
    log_warn("run",
             "limits.max_failures: %" PRId64 " documents have failed; finishing what was begun",
             failed);
    atomic_store(&g->too_many, true);
    atomic_store(g->cancel, true);
    return false;
}

int gate_init(struct gate *g, const struct job *job, time_t now, struct err *e)
{
    const struct limits_config *l = &job->limits;
    *g = (struct gate){.job = job, .flow = {g, may_begin, may_go_on}};
    int rc = limit_failures(l->max_failures, &g->failures, e);
    time_t at;
    if (rc || !l->deadline || (rc = limit_deadline(l->deadline, now, &at, e)) != 0)
        return rc;
    g->end_us = clock_us() + (int64_t)(at - now) * 1000000;
    g->aim_us = g->end_us - (int64_t)(l->deadline_margin * 1e6);
    return 0;
}

void gate_open(struct gate *g, struct run_stats *stats, atomic_bool *cancel, int context)
{
    g->stats = stats;
    g->cancel = cancel;
    g->context = context;
}

bool gate_time_is_up(const struct gate *g)
{
    return g->end_us && clock_us() >= g->aim_us;
}

int gate_wait_ms(const struct gate *g, int most)
{
    if (!g->end_us)
        return most;
    int64_t ms = (g->aim_us - clock_us()) / 1000 + 1;
    return ms < 0 ? 0 : ms < most ? (int)ms : most;
}

int64_t gate_drain_until(const struct gate *g, int64_t drain_us)
{
    int64_t until = clock_us() + drain_us;
    return g->end_us && g->end_us < until ? g->end_us : until;
}

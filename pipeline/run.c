#include "pipeline/run.h"

#include "pipeline/cmd.h"
#include "pipeline/flow.h"
#include "pipeline/gate.h"
#include "pipeline/kv_report.h"
#include "pipeline/lock.h"
#include "pipeline/progress.h"
#include "pipeline/report.h"
#include "pipeline/resume.h"
#include "pipeline/setup.h"
#include "pipeline/signals.h"
#include "pipeline/version.h"
#include "stages/base/clock.h"
#include "stages/base/log.h"
#include "stages/ingest/jail.h"
#include "stages/ingest/keeper.h"
#include "stages/write/output.h"
#include "stages/write/summaries.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SAME_SIGNAL_US = 1000000, /* schedulers send several at once */
    GIVE_UP_MS = 10000,       /* after a stop: how long a stage may take to notice */
    RESOLVED_MAX = 16 << 20,
};

/* A job that is being run. */
struct run {
    const struct job *job;
    struct run_result *result;
    struct setup setup;
    struct keeper *keeper; /* NULL: documents are read in this process */
    struct output *output;
    struct ledger *ledger;

    struct tally tally;
    struct run_stats stats;
    struct buf resolved; /* the job as `quire show` prints it */
    struct stage_env env;
    struct flow *flow;
    struct gate gate;
    struct progress progress;
    atomic_bool cancel;
    int lock_fd, signal_fd;
    int64_t signal_us, drain_until_us, stopped_us; /* 0: not yet */
    int64_t give_up_us;
    time_t started;
    int64_t started_us;
    bool complete; /* every document of the source has its record */
    bool stuck;    /* a stage does not stop: what its thread may change is not read */
};

/* ---- signals and waiting ---- */

static void stop(struct run *run)
{
    if (run->stopped_us)
        return;
    run->stopped_us = clock_us();
    flow_stop(run->flow);
}

/* What is done so far is on the disk, whatever comes next. */
static void save(struct run *run, int sig)
{
    struct err e = {0};
    ledger_note(run->ledger, "signal", "%d", sig);
    if (ledger_sync(run->ledger, &e) != 0)
        log_warn("run", "%s", e.msg);
}

static void on_signal(struct run *run, int sig)
{
    int64_t now = clock_us();
    if (!run->signal_us) {
        run->result->signal = sig;
        run->signal_us = now;
        int64_t until = gate_drain_until(&run->gate, (int64_t)(run->job->limits.drain * 1e6));
        if (!run->drain_until_us || until < run->drain_until_us)
            run->drain_until_us = until;
        log_warn("run",
                 "signal %d: finishing what was begun, at most %.0f s; once more stops at once",
                 sig, run->job->limits.drain);
        atomic_store(&run->cancel, true); /* before the drain: the source looks at it first */
        flow_drain(run->flow);
        save(run, sig);
    } else if (now - run->signal_us > SAME_SIGNAL_US) {
        if (!run->stopped_us)
            log_warn("run", "signal %d again: stopping now", sig);
        stop(run);
    }
}

static bool gives_up(const struct run *run)
{
    return run->stopped_us && clock_us() - run->stopped_us > run->give_up_us;
}

/* limits.deadline is near, or no document is begun any more for it. */
static void on_deadline(struct run *run)
{
    double drain = run->job->limits.drain;
    run->drain_until_us = gate_drain_until(&run->gate, (int64_t)(drain * 1e6));
    int64_t left = run->drain_until_us - clock_us();
    log_warn("run", "limits.deadline: finishing what was begun, at most %.0f s",
             left > 0 ? (double)left / 1e6 : 0);
    atomic_store(&run->gate.no_time, true);
    atomic_store(&run->cancel, true);
    flow_drain(run->flow);
}

/* Until the threads have ended, or one is given up. */
static void watch(struct run *run)
{
    struct pollfd fds[2] = {{.fd = flow_done_fd(run->flow), .events = POLLIN},
                            {.fd = run->signal_fd, .events = POLLIN}};
    while (!(fds[0].revents & POLLIN) && !gives_up(run)) {
        int sig;
        int wait = progress_interval_ms(&run->progress);
        poll(fds, 2, run->drain_until_us ? 50 : gate_wait_ms(&run->gate, wait));
        while ((sig = signals_next(run->signal_fd)) != 0)
            on_signal(run, sig);
        if (!run->drain_until_us && gate_time_is_up(&run->gate))
            on_deadline(run);
        int64_t now = clock_us();
        if (run->drain_until_us && now >= run->drain_until_us && !run->stopped_us) {
            log_warn("run", "not finished after limits.drain: stopping");
            stop(run);
        }
        progress_tick(&run->progress);
    }
    run->stuck = !(fds[0].revents & POLLIN);
}

/* ---- before ---- */

static void log_start(const struct run *run)
{
    const struct setup *s = &run->setup;
    struct err e = {0};
    struct buf table;
    log_info("run", "quire %s, job %s, kernels %s, %d threads", QUIRE_VERSION, run->job->name,
             s->kernels.name, s->plan.threads);
    log_info("run", "model %s (%s), template %s, digest %.16s", s->facts.model_name,
             arch_name(model_hparams(s->model)->arch), chat_family(s->chat),
             s->facts.model_digest);
    buf_init(&table, CMD_TEXT);
    if (plan_print(&s->plan, &table, &e) == 0)
        for (char *line = strtok(table.data, "\n"); line; line = strtok(NULL, "\n"))
            log_info("plan", "%s", line);
    buf_release(&table);
}

static void fill_env(struct run *run)
{
    const struct job *j = run->job;
    struct setup *s = &run->setup;
    run->env = (struct stage_env){
        .ingest = &j->ingest,
        .chunk = &j->chunk,
        .prompt = &j->prompt,
        .task = &j->task,
        .prefill = &j->prefill,
        .decode = &j->decode,
        .kv = &j->kv,
        .write = &j->write,
        .job_name = j->name,
        .resolved_job = run->resolved.data,
        .model = s->model,
        .chat = s->chat,
        .prompts = s->prompts,
        .context = s->plan.context,
        .pages = s->pages,
        .store = s->store,
        .keeper = run->keeper,
        .output = run->output,
        .ledger = run->ledger,
        .tally = &run->tally,
        .facts = &s->facts,
        .stats = &run->stats,
        .cancel = &run->cancel,
        .document_us = (int64_t)(j->limits.per_document * 1e6),
    };
}

/* While this process is small and has no threads, for what it forks is as large, and has none. */
static int open_keeper(struct run *run, struct err *e)
{
    const struct ingest_config *cfg = &run->job->ingest;
    if (cfg->isolation == ISOLATION_NO) {
        log_warn("run", "documents are read in this process (ingest.isolation: no)");
        return 0;
    }
    bool filter = jail_can_filter();
    if (!filter && cfg->isolation == ISOLATION_YES)
        return err_set(
            e, REACH_JOB, ERR_CONFIG,
            "ingest.isolation: yes, but this kernel does not filter system calls (seccomp)");
    if (!filter)
        log_warn(
            "run",
            "this kernel does not filter system calls (seccomp): a document that takes over "
            "its reader could open files and connections");
    return keeper_open(&run->keeper, cfg, reader_file, e);
}

static int prepare(struct run *run, const struct run_options *o, struct err *e)
{
    buf_init(&run->resolved, RESOLVED_MAX);
    int rc = open_keeper(run, e);
    if (!rc)
        rc = job_print(run->job, &run->resolved, e);
    if (!rc)
        rc = setup_open(&run->setup, run->job, &run->stats, e);
    /* From here on a signal drains. Before, it ends the process at once: there is nothing to lose yet. */
    if (!rc && o->signals)
        rc = signals_open(&run->signal_fd, e);
    if (!rc)
        rc = output_open(&run->output, run->job->write.to, e);
    if (!rc)
        rc = resume_open(&run->ledger, run->output, &run->setup, run->job, o->restart, e);
    if (!rc) {
        fill_env(run);
        log_start(run);
    }
    return rc;
}

/* ---- after ---- */

/* Nothing may still be held, and no document may be missing: a difference is a bug, not bad luck. */
static int audit(struct run *run, struct err *e)
{
    const struct run_result *r = run->result;
    int rc = page_pool_audit(run->setup.pages, 0, e);
    int64_t records = r->ok + r->partial + r->failed;
    if (!rc && run->complete && r->found != records)
        rc = err_set(e, REACH_JOB, ERR_BUG,
                     "%" PRId64 " documents were found, but %" PRId64 " have a record",
                     r->found, records);
    return rc;
}

static void judge(struct run *run, int rc, const struct err *e)
{
    struct run_result *r = run->result;
    if (rc < 0) {
        r->end = RUN_STOPPED;
        r->exit_status = e->code == ERR_CONFIG ? EXIT_USAGE : EXIT_STOPPED;
    } else if (run->complete) {
        r->end = RUN_FINISHED;
        r->exit_status = r->failed > 0 && !run->job->write.partial_ok ? EXIT_SOME : EXIT_ALL;
    } else if (r->signal) {
        r->end = RUN_INTERRUPTED;
        r->exit_status = 128 + r->signal;
    } else {
        r->end = RUN_DEADLINE;
        r->exit_status = EXIT_DEADLINE;
    }
}

/* kept: pages may be kept for the next run, for which their stability is measured. */
static void log_kv(const struct run_stats *stats, bool kept)
{
    struct err e = {0};
    struct buf line;
    buf_init(&line, 4096);
    if (atomic_load(&stats->kv.lookup_tokens) == 0)
        return;
    if (kv_report_line(&stats->kv, &line, &e) == 0)
        log_info("kv", "%s", line.data);
    buf_clear(&line);
    if (kept && stability_line(&stats->stability, &line, &e) == 0)
        log_info("kv", "%s", line.data);
    buf_release(&line);
}

static int write_report(struct run *run, const struct err *why, struct err *e)
{
    struct report report = {
        .job = run->job,
        .setup = &run->setup,
        .stats = &run->stats,
        .tally = &run->tally,
        .result = run->result,
        .why = why,
        .resolved_job = run->resolved.data,
        .run = ledger_run(run->ledger),
        .started = run->started,
        .ended = time(NULL),
        .seconds = (double)(clock_us() - run->started_us) / 1e6,
    };
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        report.peak_rss = (uint64_t)usage.ru_maxrss * 1024;
    if (run->keeper && !run->stuck)
        report.reader_peak = keeper_peak(run->keeper);
    if (run->stuck)
        report.pages =
            (struct page_stats){.total = run->setup.plan.n_pages,
                                .peak_used = (int)atomic_load(&run->stats.kv_pages_peak)};
    else
        page_pool_stats(run->setup.pages, &report.pages);
    if (run->setup.disk) {
        disk_get_stats(run->setup.disk, &report.disk);
        atomic_store(&run->stats.kv.pages_evicted[KV_DISK], report.disk.evicted);
    }
    char *text = report_json(&report, e);
    if (!text)
        return -(int)e->code;
    int rc = output_file(run->output, "run.json", text, strlen(text), e);
    if (!rc)
        rc = output_file(run->output, "job.resolved.yaml", run->resolved.data,
                         run->resolved.len, e);
    log_info("run", "peak memory %.1f MiB, and %.1f MiB to read documents; %.1f s",
             (double)report.peak_rss / (1 << 20), (double)report.reader_peak / (1 << 20),
             report.seconds);
    log_kv(&run->stats, run->setup.disk != NULL);
    free(text);
    return rc;
}

static const char *words_of_end(enum run_end end)
{
    static const char *const words[] = {"stopped", "finished", "interrupted", "deadline",
                                        "locked"};
    return words[end];
}

static bool wants_markdown(const struct job *job)
{
    bool wants = false;
    for (size_t i = 0; i < job->write.formats.n; i++)
        wants |= strcmp(job->write.formats.items[i], "markdown") == 0;
    return wants;
}

/* A run that ended early leaves what it has to the next one. */
static int publish(struct run *run, const struct err *why, struct err *e)
{
    bool finished = run->result->end == RUN_FINISHED;
    int rc = finished && wants_markdown(run->job) ? summaries_write(run->output, e) : 0;
    if (!rc)
        rc = write_report(run, why, e);
    if (!rc && finished)
        rc = output_publish(run->output, e);
    if (!rc && finished)
        ledger_note(run->ledger, "finished", "exit status %d", run->result->exit_status);
    if (!rc && finished)
        rc = ledger_finish(run->ledger, e);
    if (!rc && !finished)
        ledger_note(run->ledger, words_of_end(run->result->end), "exit status %d%s%s",
                    run->result->exit_status, why->code ? ": " : "", why->msg);
    return rc;
}

static void count_results(struct run *run)
{
    struct run_result *r = run->result;
    r->found = atomic_load(&run->stats.docs_found);
    r->ok = run->tally.by_status[DOC_OK];
    r->partial = run->tally.by_status[DOC_PARTIAL];
    r->failed = run->tally.by_status[DOC_FAILED];
    r->kept = atomic_load(&run->stats.docs_kept);
}

static void log_end(const struct run *run)
{
    const struct run_result *r = run->result;
    int64_t records = r->ok + r->partial + r->failed;
    tally_log(&run->tally);
    log_info("run",
             "%s: %" PRId64 " of %" PRId64 " documents: %" PRId64 " ok, %" PRId64
             " partial, %" PRId64 " failed; %" PRId64 " of them kept; results in %s",
             words_of_end(r->end), records, r->found, r->ok, r->partial, r->failed, r->kept,
             run->job->write.to);
    if (r->end != RUN_FINISHED)
        log_info(
            "run",
            "what is done is kept in results.jsonl.partial and .ledger: run it again to go on");
    if (r->end == RUN_FINISHED && r->found == 0)
        log_warn("run", "no document was found: look at ingest.from, include and exclude");
}

/* A thread that is deep in a long call cannot be freed under it: the process ends with it. What is finished is
 * published first, unless it is the writing itself that hangs. */
static void give_up(struct run *run)
{
    struct err none = {0}, e = {0};
    log_error("run", "a stage did not stop within %.1f s; ending the process",
              (double)run->give_up_us / 1e6);
    judge(run, 0, &none);
    if (flow_abandon(run->flow)) {
        count_results(run);
        if (publish(run, &none, &e) < 0)
            log_error("run", "%s", e.msg);
        log_end(run);
    }
    if (ledger_sync(run->ledger, &e) != 0)
        log_error("run", "%s", e.msg);
    _exit(run->result->exit_status);
}

/* ---- the run ---- */

static int run_stages(struct run *run, enum progress_mode progress, struct err *e)
{
    const struct limits_config *l = &run->job->limits;
    int window = 4 * run->job->decode.batch + l->queue;
    struct flow_limits limits = {.gate = &run->gate.flow,
                                 .queue = l->queue,
                                 .queue_bytes = l->queue_bytes,
                                 .window = window < 16 ? 16 : window,
                                 .window_bytes = l->queue_bytes,
                                 .threads = run->setup.plan.threads};
    gate_open(&run->gate, &run->stats, &run->cancel, run->setup.plan.context);
    int rc = flow_start(&run->flow, stage_table, n_stages, &run->env, &limits, e);
    if (rc)
        return rc;
    progress_start(&run->progress, &run->stats, progress);
    watch(run);
    progress_end(&run->progress);
    if (run->stuck)
        give_up(run);
    rc = flow_join(run->flow, &run->complete, e);
    if (rc == 0 && !run->complete && atomic_load(&run->gate.too_many))
        return err_set(e, REACH_JOB, ERR_LIMIT,
                       "more documents have failed than limits.max_failures allows (%s)",
                       l->max_failures);
    /* Stopped by a signal or for the deadline: no error, only not complete. */
    return rc == -ERR_CANCELLED && run->drain_until_us ? 0 : rc;
}

static void release(struct run *run)
{
    ledger_close(run->ledger);
    output_close(run->output);
    keeper_close(run->keeper);
    setup_close(&run->setup);
    tally_release(&run->tally);
    buf_release(&run->resolved);
    signals_close(run->signal_fd);
    lock_release(run->lock_fd);
}

/* With the lock held. */
static int run_locked(struct run *run, const struct run_options *o, struct err *e)
{
    int rc = prepare(run, o, e);
    if (rc) {
        if (run->output)
            output_discard(run->output);

        judge(run, rc, e);
        return rc;
    }
    rc = run_stages(run, o->progress, e);
    if (!run->flow) {
        output_discard(run->output);
        judge(run, rc, e);
        return rc;
    }
    count_results(run);
    /* A run that ends in order stores what it has; one that was told to stop does not wait for a disk. */
    store_settle(run->setup.store, run->complete);
    if (!rc)
        rc = audit(run, e);
    judge(run, rc, e);
    struct err second = {0};
    if (publish(run, e, &second) < 0) {
        /* The first error is the reason; what cannot be published stays as .partial. */
        if (!rc)
            *e = second;
        else
            log_warn("run", "%s", second.msg);
        rc = rc ? rc : -(int)second.code;
        judge(run, rc, e);
    }
    log_end(run);
    return rc;
}

int run_job(const struct job *job, const struct run_options *o, struct run_result *r,
            struct err *e)
{
    char holder[256];
    struct run run = {.job = job,
                      .result = r,
                      .signal_fd = -1,
                      .give_up_us =
                          INT64_C(1000) * (o->give_up_ms ? o->give_up_ms : GIVE_UP_MS),
                      .started = time(NULL),
                      .started_us = clock_us()};
    *r = (struct run_result){0};
    int rc = gate_init(&run.gate, job, run.started, e);
    if (rc) {
        judge(&run, rc, e);
        return rc;
    }
    rc = lock_take(job->write.to, &run.lock_fd, holder, sizeof(holder), e);
    if (rc == 1) {
        if (!o->quiet_if_locked)
            log_error("run", "%s is in use by another run (%s)", job->write.to, holder);
        r->end = RUN_LOCKED;
        r->exit_status = EXIT_LOCKED;
        return 0;
    }
    if (rc) {
        judge(&run, rc, e);
    } else if (gate_time_is_up(&run.gate)) {
        log_warn("run", "limits.deadline: the time is up; nothing was begun");
        judge(&run, 0, e);
    } else {
        rc = run_locked(&run, o, e);
    }
    release(&run);
    return rc;
}

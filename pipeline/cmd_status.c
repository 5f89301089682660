/* quire status, quire retry: what is done of a job, and what is to be done again. */
#include "pipeline/cmd.h"

#include "pipeline/job.h"
#include "pipeline/lock.h"
#include "stages/ledger/ledger.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct status {
    const struct job *job;
    struct ledger_look look;
    bool running;
    char holder[256];
};

static const char *state_of(const struct status *s)
{
    if (s->running)
        return "running";
    if (!s->look.there || s->look.runs == 0)
        return "not begun";
    return s->look.finished ? "finished" : "stopped";
}

static void moment(int64_t ms, char *out, size_t cap)
{
    struct tm tm;
    time_t t = (time_t)(ms / 1000);
    out[0] = '\0';
    if (gmtime_r(&t, &tm))
        strftime(out, cap, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int64_t done_of(const struct ledger_look *l)
{
    return l->by_status[0] + l->by_status[1] + l->by_status[2];
}

static int print_text(const struct status *s, struct buf *out, struct err *e)
{
    const struct ledger_look *l = &s->look;
    char begun[32], active[32], last[32];
    moment(l->begun_ms, begun, sizeof(begun));
    moment(l->active_ms, active, sizeof(active));
    moment(l->last_ms, last, sizeof(last));
    int rc = buf_addf(out, e, "job         %s, in %s\nstate       %s%s%s\n", s->job->name,
                      s->job->write.to, state_of(s), s->running ? ": " : "",
                      s->running ? s->holder : "");
    if (rc || !l->there)
        return rc;
    rc = buf_addf(out, e, "run         %" PRId64 " since %s, last write %s\n", l->runs, begun,
                  active);
    if (!rc)
        rc = buf_addf(out, e,
                      "documents   %" PRId64 " done: %" PRId64 " ok, %" PRId64
                      " partial, %" PRId64 " failed\nfound       %" PRId64 " in %" PRId64
                      " files that were read to their end\n",
                      done_of(l), l->by_status[0], l->by_status[1], l->by_status[2], l->found,
                      l->sources);
    if (!rc && l->again > 0)
        rc = buf_addf(out, e, "again       %" PRId64 " that failed are to be done again\n",
                      l->again);
    if (!rc && l->answers + l->flights > 0)
        rc = buf_addf(out, e,
                      "unfinished  %" PRId64 " answers, and %" PRId64
                      " that are begun (%" PRId64 " tokens)\n",
                      l->answers, l->flights, l->flight_tokens);
    if (!rc && l->last[0])
        rc = buf_addf(out, e, "last        %s %s, %s\n", l->last, l->last_detail, last);
    return rc;
}

static void set_moment(json_t *o, const char *key, int64_t ms)
{
    char text[32];
    moment(ms, text, sizeof(text));
    json_object_set_new(o, key, ms ? json_string(text) : json_null());
}

static int print_json(const struct status *s, struct buf *out, struct err *e)
{
    const struct ledger_look *l = &s->look;
    json_t *o = json_pack(
        "{ss ss ss s{sI sI sI sI sI sI} s{sI sI sI} sI sI}", "job", s->job->name, "folder",
        s->job->write.to, "state", state_of(s), "documents", "done", (json_int_t)done_of(l),
        "ok", (json_int_t)l->by_status[0], "partial", (json_int_t)l->by_status[1], "failed",
        (json_int_t)l->by_status[2], "again", (json_int_t)l->again, "found",
        (json_int_t)l->found, "unfinished", "answers", (json_int_t)l->answers, "begun",
        (json_int_t)l->flights, "tokens", (json_int_t)l->flight_tokens, "runs",
        (json_int_t)l->runs, "generation", (json_int_t)l->generation);
    json_object_set_new(o, "holder", s->running ? json_string(s->holder) : json_null());
    set_moment(o, "begun", l->begun_ms);
    set_moment(o, "last_write", l->active_ms);
    json_object_set_new(o, "last_action",
                        l->last[0]
                            ? json_pack("{ss ss}", "what", l->last, "detail", l->last_detail)
                            : json_null());
    char *text = json_dumps(o, JSON_INDENT(2));
    json_decref(o);
    int rc = text ? buf_addf(out, e, "%s\n", text)
                  : err_set(e, REACH_JOB, ERR_FORMAT, "a name of the job is not UTF-8");
    free(text);
    return rc;
}

int cmd_status(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    struct buf out;
    struct status s = {.job = &j};
    if (cmd_load_job(l, 0, &j, &e))
        return cmd_fail(&e);
    buf_init(&out, CMD_TEXT);
    s.running = lock_look(j.write.to, s.holder, sizeof(s.holder));
    int rc = ledger_look(j.write.to, &s.look, &e);
    if (!rc)
        rc = cmd_value(l, "--json", 0) ? print_json(&s, &out, &e) : print_text(&s, &out, &e);
    job_release(&j);
    return cmd_print(&out, rc, &e);
}

/* ---- retry ---- */

static int retry(const struct job *j, struct buf *out, struct err *e)
{
    struct ledger *l = NULL;
    struct ledger_look look;
    int rc = ledger_look(j->write.to, &look, e);
    if (!rc && !look.there)
        return err_set(e, REACH_JOB, ERR_CONFIG, "%s has no ledger: nothing was run there yet",
                       j->write.to);
    if (!rc)
        rc = ledger_open(&l, j->write.to, e);
    int64_t n = rc < 0 ? rc : ledger_retry_failed(l, e);
    ledger_close(l);
    if (n < 0)
        return (int)n;
    return buf_addf(out, e, "%" PRId64 " failed documents are done again by the next run\n", n);
}

int cmd_retry(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    struct buf out;
    int fd = -1;
    char holder[256];
    if (!cmd_value(l, "--failed", 0)) {
        err_set(&e, REACH_JOB, ERR_CONFIG, "say what is to be done again: --failed");
        return cmd_fail(&e);
    }
    if (cmd_load_job(l, 0, &j, &e))
        return cmd_fail(&e);
    buf_init(&out, CMD_TEXT);
    int rc = lock_take(j.write.to, &fd, holder, sizeof(holder), &e);
    if (rc == 1)
        fprintf(stderr, "quire: %s is in use by a run (%s)\n", j.write.to, holder);
    else if (!rc)
        rc = retry(&j, &out, &e);
    lock_release(fd);
    job_release(&j);
    if (rc == 1) {
        buf_release(&out);
        return EXIT_LOCKED;
    }
    return cmd_print(&out, rc, &e);
}

#include "pipeline/resume.h"

#include "stages/base/log.h"
#include "stages/write/result_line.h"

#include <stdio.h>
#include <string.h>

/* ---- records that the ledger does not know ---- */

struct adopting {
    struct ledger *ledger;
    const struct setup *setup;
    const char *job;
    int64_t n, other, bad;
};

static bool of_this_job(const struct adopting *a, const struct result_line *l)
{
    return strcmp(l->job, a->job) == 0 &&
           strcmp(l->model_digest, a->setup->facts.model_digest) == 0 &&
           strcmp(l->prompt_digest, a->setup->facts.prompt_digest) == 0;
}

/* line_fn */
static int adopt(void *to, const char *text, size_t n, struct err *e)
{
    struct adopting *a = to;
    struct result_line l;
    struct err bad = {0};
    if (result_line_parse(&l, text, n, &bad) != 0) {
        a->bad++;
        return 0;
    }
    int rc = 1;
    if (of_this_job(a, &l)) {
        struct ledger_doc d = {.occurrence = -1, .ordinal = l.ordinal, .status = (int)l.status};
        memcpy(d.id, l.id, sizeof(d.id));
        snprintf(d.code, sizeof(d.code), "%s", l.code);
        snprintf(d.message, sizeof(d.message), "%s", l.message);
        d.flags = result_line_flags(&l);
        rc = ledger_adopt(a->ledger, &d, text, n, e);
        a->n += rc == 0;
    } else {
        a->other++;
    }
    result_line_release(&l);
    return rc < 0 ? rc : 0;
}

/* A ledger that is new is filled from the finished results, too. */
static int adopt_all(struct adopting *a, struct output *o, bool fresh, struct err *e)
{
    int rc = output_old_lines(o, adopt, a, e);
    if (!rc && fresh && a->other > 0)
        return err_set(
            e, REACH_JOB, ERR_CONFIG,
            "write.to: results.jsonl.partial has %lld records of another job, model or "
            "settings, and its ledger is gone; --restart drops them",
            (long long)a->other);
    if (!rc && fresh)
        rc = output_published_lines(o, adopt, a, e);
    if (!rc && a->n > 0)
        log_info("run", "%lld finished records were found in the results", (long long)a->n);
    if (!rc && a->bad > 0)
        log_warn("run",
                 "%lld lines of the results are no records; their documents are done again",
                 (long long)a->bad);
    return rc;
}

/* ---- another generation ---- */

/* That the texts of the prompts differ is no news beside the text that does. */
static bool is_news(const char *line, const char *all)
{
    static const char *const said[] = {"prompt.system:", "prompt.document:", "prompt.reduce:",
                                       "prompt.date:",   "prompt.template:", "task.kind:"};
    if (strncmp(line, "  prompt.texts:", 15) != 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(said); i++)
        if (strstr(all, said[i]))
            return false;
    return true;
}

static int refuse(const struct buf *differences, struct err *e)
{
    int n = 0;
    for (const char *line = differences->data; *line; line = strchr(line, '\n') + 1) {
        if (!is_news(line, differences->data))
            continue;
        log_error("run", "changed:%.*s", (int)strcspn(line, "\n") - 1, line + 1);
        n++;
    }
    return err_set(
        e, REACH_JOB, ERR_CONFIG,
        "write.to: its records were made with other settings (%d changed, see above); "
        "--restart makes all of them anew, another folder keeps both",
        n);
}

static int settle_generation(struct ledger *l, struct output *o, const struct setup *s,
                             bool restart, struct err *e)
{
    struct buf differences;
    buf_init(&differences, 1 << 20);
    int rc;
    if (restart) {
        rc = output_restart(o, e);
        if (!rc)
            rc = ledger_restart(l, &s->settings, e);
    } else {
        rc = ledger_compare(l, &s->settings, &differences, e);
        if (rc == 1)
            rc = refuse(&differences, e);
    }
    buf_release(&differences);
    return rc;
}

int resume_open(struct ledger **out, struct output *o, const struct setup *s,
                const struct job *job, bool restart, struct err *e)
{
    struct adopting a = {.setup = s, .job = job->name};
    int fresh = ledger_open(out, job->write.to, e);
    if (fresh < 0)
        return fresh;
    a.ledger = *out;
    int rc = settle_generation(*out, o, s, restart, e);
    if (!rc && !restart)
        rc = adopt_all(&a, o, fresh == 1, e);
    if (!rc)
        rc = ledger_start(*out, e);
    if (!rc)
        ledger_note(*out, restart ? "restarted" : "started", "run %lld",
                    (long long)ledger_run(*out));
    /* What was adopted is on the disk before the results may be cut. */
    return rc ? rc : ledger_sync(*out, e);
}

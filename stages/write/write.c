/* The write stage: answers in any order in, one record per document in input order out.
 *
 * A document whose record an earlier run has written comes as such; its record is taken from the ledger, and gets this
 * run's number. What is on the disk is told to the ledger, never before.
 *
 *     next ->  [ordinal 7: 1 of 2 answers] [8: failed] [9: complete] [10: -] ...
 *
 * A ring of places, one per document in flight. A place is settled when the document as a whole failed, or
 * when each of its questions has an answer or a failure; settled places at the front are written, and their
 * documents emitted, which lets the runner admit new ones. What comes for a settled document is dropped.
 * Of several questions that failed, the first in the job's order is the reason: never the first in time.
 */
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/ledger/ledger.h"
#include "stages/stage.h"
#include "stages/stats.h"
#include "stages/write/output.h"
#include "stages/write/result.h"
#include "stages/write/result_line.h"
#include "stages/write/tally.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct place {
    struct rec **finals; /* [expected] by question: answered or failed; NULL where missing */
    int expected, got;
    struct rec *failed; /* the document as a whole */
};

/* A record that is written, but perhaps not on the disk yet. */
struct written {
    struct ledger_doc doc;
    char *line; /* heap; NULL for one that was kept */
};

struct write_state {
    struct place *ring; /* [cap], place of ordinal i at i % cap */
    size_t cap;
    int64_t next;            /* first ordinal that has no record yet */
    int64_t last;            /* highest ordinal seen */
    struct written *written; /* [n_written] that the ledger does not know of */
    size_t n_written, written_cap;
    struct buf line; /* of a kept record */
};

static bool settled(const struct place *p)
{
    return p->failed || (p->expected > 0 && p->got == p->expected);
}

static void place_clear(struct place *p)
{
    for (int i = 0; i < p->expected; i++)
        rec_free(p->finals[i]);
    free(p->finals);
    rec_free(p->failed);
    *p = (struct place){0};
}

/* The place of an ordinal >= next; the ring grows to reach it. The runner's window bounds it. */
static struct place *place_of(struct write_state *w, int64_t ordinal)
{
    size_t need = (size_t)(ordinal - w->next) + 1;
    if (need > w->cap) {
        size_t cap = w->cap ? w->cap : 64;
        while (cap < need)
            cap *= 2;
        struct place *ring = mem_need(cap * sizeof(*ring));
        for (size_t i = 0; i < w->cap; i++) {
            size_t at = (size_t)w->next + i;
            ring[at % cap] = w->ring[at % w->cap];
        }
        free(w->ring);
        w->ring = ring;
        w->cap = cap;
    }
    if (ordinal > w->last)
        w->last = ordinal;
    return &w->ring[(size_t)ordinal % w->cap];
}

/* ---- taking answers ---- */

static int add_final(struct place *p, struct rec *r, struct err *e)
{
    int expected = r->info ? r->info->n_finals : 1;
    int q = r->info ? r->req.question : 0;
    if (!p->expected) {
        if (expected < 1 || expected > 1 << 16) {
            rec_free(r);
            return err_set(e, REACH_JOB, ERR_BUG, "a document that expects %d answers",
                           expected);
        }
        p->expected = expected;
        p->finals = mem_need((size_t)expected * sizeof(*p->finals));
    }
    if (expected != p->expected || q < 0 || q >= p->expected || p->finals[q]) {
        int rc =
            err_set(e, REACH_JOB, ERR_BUG, "document %" PRId64 ": answer %d of %d came twice",
                    r->doc->ordinal, q + 1, p->expected);
        rec_free(r);
        return rc;
    }
    p->finals[q] = r;
    p->got++;
    return 0;
}

static int accept(struct write_state *w, struct rec *r, struct err *e)
{
    if (r->doc->ordinal < w->next) {
        rec_free(r);
        return 0;
    }
    struct place *p = place_of(w, r->doc->ordinal);
    if (settled(p)) {
        rec_free(r);
        return 0;
    }
    bool failed = rec_passes(r);
    bool of_question = r->kind >= REC_REQUEST && r->info;
    if (failed && !of_question) {
        place_clear(p);
        p->failed = r;
        return 0;
    }
    if (!failed && r->kind != REC_ANSWER) {
        int rc =
            err_set(e, REACH_JOB, ERR_BUG, "a record of kind %d came to write", (int)r->kind);
        rec_free(r);
        return rc;
    }
    return add_final(p, r, e);
}

/* ---- writing records ---- */

static void count(const struct stage_env *env, const struct tally_doc *d, bool kept)
{
    bool failed = d->status == DOC_FAILED;
    atomic_fetch_add(&env->stats->docs_done, 1);
    if (failed)
        atomic_fetch_add(&env->stats->docs_failed, 1);
    if (kept)
        atomic_fetch_add(&env->stats->docs_kept, 1);
    tally_add(env->tally, d);
    if (failed && log_get_level() >= LOG_DEBUG)
        log_debug("write", "document %" PRId64 " failed: %s", d->ordinal, d->message);
}

/* Tell the ledger of the records that are on the disk. */
static int tell_ledger(struct stage *s, struct err *e)
{
    struct write_state *w = s->state;
    int rc = 0;
    if (!output_is_synced(s->env->output))
        return 0;
    for (size_t i = 0; i < w->n_written; i++) {
        struct written *x = &w->written[i];
        if (!rc)
            rc =
                ledger_done(s->env->ledger, &x->doc, x->line, x->line ? strlen(x->line) : 0, e);
        free(x->line);
    }
    w->n_written = 0;
    return rc;
}

/* The record is in the file. Takes line, which is NULL when the ledger has it. */
static int note_written(struct stage *s, const struct ledger_doc *doc, char *line,
                        struct err *e)
{
    struct write_state *w = s->state;
    if (!s->env->ledger) {
        free(line);
        return 0;
    }
    if (w->n_written == w->written_cap) {
        size_t cap = w->written_cap ? w->written_cap * 2 : 64;
        struct written *more = mem_resize(w->written, cap * sizeof(*more));
        if (!more) {
            free(line);
            return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for %zu records", cap);
        }
        w->written = more;
        w->written_cap = cap;
    }
    w->written[w->n_written++] = (struct written){*doc, line};
    return tell_ledger(s, e);
}

static struct rec *failure_of(const struct place *p)
{
    for (int i = 0; i < p->expected; i++)
        if (p->finals[i]->fail.code)
            return p->finals[i];
    return p->failed;
}

static struct ledger_doc ledger_doc_of(const struct doc *d)
{
    struct ledger_doc x = {.row = d->origin.row,
                           .source = d->origin.source,
                           .occurrence = d->origin.occurrence,
                           .ordinal = d->ordinal};
    memcpy(x.id, d->id, sizeof(x.id));
    return x;
}

/* A record that is new. */
static int write_new(struct stage *s, const struct place *p, struct err *e)
{
    struct rec *failed = failure_of(p), *any = failed ? failed : p->finals[0];
    struct result r = {.doc = any->doc,
                       .finals = p->finals,
                       .n_finals = failed ? 0 : p->expected,
                       .failed = failed};
    result_judge(&r);
    char *line = result_json(&r, s->env, e);
    if (!line)
        return -(int)e->code;
    int rc = output_line(s->env->output, line, strlen(line), e);
    if (rc) {
        free(line);
        return rc;
    }
    char *name = doc_name(r.doc);
    struct tally_doc t = {r.doc->ordinal,
                          name,
                          r.status,
                          r.code,
                          r.message,
                          r.flags,
                          r.timings.prefill_us + r.timings.decode_us};
    count(s->env, &t, false);
    free(name);
    struct ledger_doc d = ledger_doc_of(r.doc);
    d.status = (int)r.status;
    d.flags = r.flags;
    d.prefill_us = r.timings.prefill_us;
    d.decode_us = r.timings.decode_us;
    d.wait_us = r.timings.wait_us;
    d.reused_tokens = r.account.reused;
    memcpy(d.code, r.code, sizeof(d.code));
    memcpy(d.message, r.message, sizeof(d.message));
    return note_written(s, &d, line, e);
}

/* A record that an earlier run has written, with the number and the place that its document has now. */
static int write_kept(struct stage *s, const struct doc *doc, struct err *e)
{
    struct write_state *w = s->state;
    struct ledger *ledger = s->env->ledger;
    struct ledger_doc known;
    struct result_line l = {0};
    int rc = ledger_get(ledger, doc->origin.row, &known, &w->line, e);
    if (!rc)
        rc = result_line_parse(&l, w->line.data, w->line.len, e);
    char *line =
        rc ? NULL : result_line_print(&l, doc->ordinal, doc->source ? doc->source : l.source);
    if (!rc && !line)
        rc = err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a record of %zu bytes",
                     w->line.len);
    if (!rc)
        rc = output_line(s->env->output, line, strlen(line), e);
    if (!rc) {
        char *name = result_line_name(&l);
        struct tally_doc t = {doc->ordinal,          name, l.status, l.code, l.message,
                              result_line_flags(&l), 0};
        count(s->env, &t, true);
        free(name);
        struct ledger_doc d = ledger_doc_of(doc);
        memcpy(d.id, known.id, sizeof(d.id));
        rc = note_written(s, &d, NULL, e);
    }
    free(line);
    result_line_release(&l);
    if (rc)
        e->reach = REACH_JOB;
    return rc;
}

static int write_place(struct stage *s, struct place *p, struct err *e)
{
    struct doc *doc = p->failed ? p->failed->doc : p->finals[0]->doc;
    int rc = doc->origin.row ? write_kept(s, doc, e) : write_new(s, p, e);
    if (rc)
        return rc;
    struct rec *done = rec_new(REC_DOC, doc);
    place_clear(p);
    return stage_emit(s, done);
}

static int write_settled(struct stage *s, struct err *e)
{
    struct write_state *w = s->state;
    int rc = 0;
    while (!rc && w->cap && w->next <= w->last) {
        struct place *p = &w->ring[(size_t)w->next % w->cap];
        if (!settled(p))
            break;
        rc = write_place(s, p, e);
        w->next++;
    }
    return rc;
}

/* ---- the stage ---- */

static int write_open(struct stage *s, struct err *e)
{
    (void)e;
    struct write_state *w = mem_need(sizeof(*w));
    w->last = -1;
    buf_init(&w->line, LINE_MAX_BYTES);
    s->state = w;
    return 0;
}

static int write_push(struct stage *s, struct rec *r, struct err *e)
{
    int rc = accept(s->state, r, e);
    return rc ? rc : write_settled(s, e);
}

/* After a whole run nothing is left. After one that ended early, documents that are settled behind one
 * that is not get their records, too: the work is done. */
static int write_finish(struct stage *s, struct err *e)
{
    struct write_state *w = s->state;
    int rc = 0;
    for (; !rc && w->next <= w->last; w->next++) {
        struct place *p = &w->ring[(size_t)w->next % w->cap];
        if (settled(p))
            rc = write_place(s, p, e);
        else
            place_clear(p);
    }
    if (!rc)
        rc = output_sync(s->env->output, e);
    return rc ? rc : tell_ledger(s, e);
}

static void write_close(struct stage *s)
{
    struct write_state *w = s->state;
    if (!w)
        return;
    for (size_t i = 0; i < w->cap; i++)
        place_clear(&w->ring[i]);
    for (size_t i = 0; i < w->n_written; i++)
        free(w->written[i].line);
    free(w->written);
    buf_release(&w->line);
    free(w->ring);
    free(w);
    s->state = NULL;
}

const struct stage_ops write_stage = {
    .name = "write",
    .open = write_open,
    .push = write_push,
    .finish = write_finish,
    .close = write_close,
};

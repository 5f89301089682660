/* The write stage: answers in any order in, one record per document in input order out.
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
#include "stages/stage.h"
#include "stages/stats.h"
#include "stages/write/markdown.h"
#include "stages/write/output.h"
#include "stages/write/result.h"
#include "stages/write/tally.h"
#include "stages/write/write_opts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct place {
    struct rec **finals; /* [expected] by question: answered or failed; NULL where missing */
    int expected, got;
    struct rec *failed; /* the document as a whole */
};

struct write_state {
    struct place *ring; /* [cap], place of ordinal i at i % cap */
    size_t cap;
    int64_t next; /* first ordinal that has no record yet */
    int64_t last; /* highest ordinal seen */
    bool markdown;
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
    bool failed = r->fail.code || r->doc->status == DOC_FAILED;
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

static int write_markdown(const struct result *r, const struct stage_env *env, struct err *e)
{
    char name[128];
    struct buf page;
    buf_init(&page, (size_t)1 << 30);
    markdown_name(r->doc, name, sizeof(name));
    int rc = markdown_page(r, env, &page, e);
    if (!rc)
        rc = output_file(env->output, name, page.data, page.len, e);
    buf_release(&page);
    return rc;
}

static void count(const struct result *r, const struct stage_env *env)
{
    bool failed = r->status == DOC_FAILED;
    atomic_fetch_add(&env->stats->docs_done, 1);
    if (failed)
        atomic_fetch_add(&env->stats->docs_failed, 1);
    tally_add(env->tally, r->doc, r->status, r->code, r->message, r->flags,
              r->timings.prefill_us + r->timings.decode_us);
    if (failed && log_get_level() >= LOG_DEBUG)
        log_debug("write", "document %" PRId64 " failed: %s", r->doc->ordinal, r->message);
}

static struct rec *failure_of(const struct place *p)
{
    for (int i = 0; i < p->expected; i++)
        if (p->finals[i]->fail.code)
            return p->finals[i];
    return p->failed;
}

static int write_place(struct stage *s, struct place *p, struct err *e)
{
    struct write_state *w = s->state;
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
    free(line);
    if (!rc && w->markdown && r.status != DOC_FAILED)
        rc = write_markdown(&r, s->env, e);
    if (rc)
        return rc;
    count(&r, s->env);
    struct rec *done = rec_new(REC_DOC, r.doc);
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
    for (size_t i = 0; i < s->env->write->formats.n; i++)
        w->markdown |= strcmp(s->env->write->formats.items[i], "markdown") == 0;
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
    return rc;
}

static void write_close(struct stage *s)
{
    struct write_state *w = s->state;
    if (!w)
        return;
    for (size_t i = 0; i < w->cap; i++)
        place_clear(&w->ring[i]);
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

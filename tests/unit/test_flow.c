/* The runner with stages of our own, shaped like the real ones: a source, a splitter, a stage whose requests
 * come back to it, two stages in one thread that work in steps, and a last one that retires documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipeline/flow.h"
#include "stages/base/mem.h"

#include <poll.h>
#include <string.h>
#include <time.h>

enum { CHUNKS = 5, BATCH = 4, MAX_DOCS = 4096 };

/* What the stages shall do, and what they saw. Written before the threads start or by one stage only. */
static struct {
    int docs;
    int fail_doc;                  /* this document comes failed from the source, -1: none */
    int fail_request;              /* one chunk of this document fails in prefill, -1 */
    int break_prefill, break_sink; /* the stage returns an error at this document, -1 */
    bool break_open;
    int sink_us;    /* the last stage takes so long for each */
    int hold_after; /* so many it waits until it may go on; 0: it does not */
    atomic_bool go_on;
    atomic_int emitted;    /* by the source */
    atomic_int most_ahead; /* emitted - retired, seen by the source */
    atomic_int retired;
    int seen[MAX_DOCS]; /* 1: answered, 2: failed */
    int twice;
    int64_t last_retired;
    bool out_of_order;
    int finishes, closes;
    const struct flow_gate *gate;
} t;

static atomic_bool cancel;

static void nap(long us)
{
    struct timespec ts = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&ts, NULL);
}

/* ---- source ---- */

static int source_run(struct stage *s, struct err *e)
{
    (void)e;
    for (int i = 0; i < t.docs && !atomic_load(s->env->cancel); i++) {
        struct doc *d = doc_new();
        d->ordinal = i;
        if (i == t.fail_doc) {
            d->status = DOC_FAILED;
            err_set(&d->fail, REACH_DOC, ERR_FORMAT, "not readable");
        } else {
            d->text_len = 100;
            d->text = mem_need(101);
        }
        int ahead = atomic_load(&t.emitted) - atomic_load(&t.retired);
        if (ahead > atomic_load(&t.most_ahead))
            atomic_store(&t.most_ahead, ahead);
        struct rec *r = rec_new(REC_DOC, d);
        doc_unref(d);
        int rc = stage_emit(s, r);
        if (rc)
            return rc;
        atomic_fetch_add(&t.emitted, 1);
    }
    return 0;
}

static void count_close(struct stage *s)
{
    free(s->state);
    t.closes++;
}

static int count_finish(struct stage *s, struct err *e)
{
    (void)s;
    (void)e;
    __atomic_fetch_add(&t.finishes, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static const struct stage_ops source = {
    .name = "source", .source = source_run, .finish = count_finish, .close = count_close};

/* ---- splitter ---- */

static int split_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    if (r->doc->status == DOC_FAILED)
        return stage_emit(s, r);
    int rc = 0;
    for (int i = 0; i < CHUNKS && !rc; i++) {
        struct rec *c = rec_new(REC_CHUNK, r->doc);
        c->chunk.index = i;
        c->chunk.count = CHUNKS;
        rc = stage_emit(s, c);
    }
    rec_free(r);
    return rc;
}

static const struct stage_ops split = {
    .name = "split", .push = split_push, .finish = count_finish, .close = count_close};

/* ---- the stage with a loop ---- */

struct waiting {
    int back;    /* requests of the document that came back */
    bool failed; /* its failure was passed on */
};

static int ask_open(struct stage *s, struct err *e)
{
    if (t.break_open)
        return err_set(e, REACH_JOB, ERR_CONFIG, "does not open");
    s->state = mem_need(sizeof(struct waiting) * MAX_DOCS);
    return 0;
}

static int ask_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    struct waiting *w = (struct waiting *)s->state + r->doc->ordinal;
    if (r->kind == REC_DOC)
        return stage_emit(s, r);
    if (r->kind == REC_CHUNK) {
        r->kind = REC_REQUEST;
        r->req.use = ANSWER_REDUCE;
        r->req.index = r->chunk.index;
        return stage_emit(s, r);
    }
    w->back++;
    if (r->fail.code && !w->failed) {
        w->failed = true;
        return stage_emit(s, r);
    }
    struct rec *final = w->back == CHUNKS && !w->failed ? rec_new(REC_REQUEST, r->doc) : NULL;
    rec_free(r);
    return final ? stage_emit(s, final) : 0;
}

static const struct stage_ops ask = {.name = "ask",
                                     .open = ask_open,
                                     .push = ask_push,
                                     .finish = count_finish,
                                     .close = count_close};

/* ---- two stages that share a thread ---- */

struct held {
    struct rec *r[BATCH];
    int left[BATCH];
    int n;
};

static int held_open(struct stage *s, struct err *e)
{
    (void)e;
    s->state = mem_need(sizeof(struct held));
    return 0;
}

static bool held_want(const struct stage *s)
{
    return ((const struct held *)s->state)->n < BATCH;
}

static void held_close(struct stage *s)
{
    struct held *h = s->state;
    for (int i = 0; h && i < h->n; i++)
        rec_free(h->r[i]);
    count_close(s);
}

static int prefill_push(struct stage *s, struct rec *r, struct err *e)
{
    struct held *h = s->state;
    if (r->kind == REC_DOC || r->fail.code)
        return stage_emit(s, r);
    if (r->doc->ordinal == t.break_prefill) {
        rec_free(r);
        return err_set(e, REACH_JOB, ERR_DEVICE, "broken");
    }
    h->r[h->n++] = r;
    return 0;
}

static int prefill_step(struct stage *s, struct err *e)
{
    (void)e;
    struct held *h = s->state;
    if (h->n == 0)
        return ST_IDLE;
    struct rec *r = h->r[0];
    memmove(h->r, h->r + 1, sizeof(h->r[0]) * (size_t)--h->n);
    if (!stage_begin(s, r)) {
        int rc = stage_emit(s, r);
        return rc ? rc : ST_MORE;
    }
    if (r->doc->ordinal == t.fail_request && r->req.use == ANSWER_REDUCE && r->req.index == 2)
        err_set(&r->fail, REACH_DOC, ERR_DEVICE, "not finite");
    r->kind = REC_SEQUENCE;
    int rc = stage_emit(s, r);
    return rc ? rc : ST_MORE;
}

static int decode_push(struct stage *s, struct rec *r, struct err *e)
{
    (void)e;
    struct held *h = s->state;
    if (r->kind == REC_DOC || r->fail.code)
        return stage_emit(s, r);
    h->left[h->n] =
        1 + (int)(r->doc->ordinal * 7 + r->req.index) % 5; /* answers end out of order */
    h->r[h->n++] = r;
    return 0;
}

static int decode_step(struct stage *s, struct err *e)
{
    (void)e;
    struct held *h = s->state;
    if (h->n == 0)
        return ST_IDLE;
    for (int i = 0; i < h->n;) {
        if (--h->left[i] > 0) {
            i++;
            continue;
        }
        struct rec *r = h->r[i];
        h->n--;
        h->r[i] = h->r[h->n];
        h->left[i] = h->left[h->n];
        r->kind = REC_ANSWER;
        int rc = stage_emit(s, r);
        if (rc)
            return rc;
    }
    return ST_MORE;
}

static const struct stage_ops prefill = {.name = "prefill",
                                         .open = held_open,
                                         .want = held_want,
                                         .push = prefill_push,
                                         .step = prefill_step,
                                         .finish = count_finish,
                                         .close = held_close};
static const struct stage_ops decode = {.name = "decode",
                                        .open = held_open,
                                        .want = held_want,
                                        .push = decode_push,
                                        .step = decode_step,
                                        .finish = count_finish,
                                        .close = held_close};

/* ---- the last one ---- */

static int sink_open(struct stage *s, struct err *e)
{
    (void)e;
    s->state = mem_need(sizeof(struct rec *) * MAX_DOCS);
    return 0;
}

static int sink_push(struct stage *s, struct rec *r, struct err *e)
{
    struct rec **kept = s->state;
    int64_t at = r->doc->ordinal;
    if (at == t.break_sink) {
        rec_free(r);
        return err_set(e, REACH_JOB, ERR_IO, "disk full");
    }
    if (t.sink_us)
        nap(t.sink_us);
    while (t.hold_after && atomic_load(&t.retired) >= t.hold_after && !atomic_load(&t.go_on))
        nap(500);
    if (t.seen[at])
        t.twice++;
    t.seen[at] = r->fail.code || r->doc->status == DOC_FAILED ? 2 : 1;
    kept[at] = r;
    int rc = 0;
    for (; !rc && t.last_retired + 1 < t.docs && kept[t.last_retired + 1]; t.last_retired++) {
        struct rec *done = kept[t.last_retired + 1];
        kept[t.last_retired + 1] = NULL;
        atomic_fetch_add(&t.retired, 1); /* first: the emit may let the source go on */
        rc = stage_emit(s, done);
    }
    return rc;
}

static void sink_close(struct stage *s)
{
    struct rec **kept = s->state;
    for (int i = 0; kept && i < MAX_DOCS; i++)
        rec_free(kept[i]);
    count_close(s);
}

static const struct stage_ops sink = {.name = "sink",
                                      .open = sink_open,
                                      .push = sink_push,
                                      .finish = count_finish,
                                      .close = sink_close};

static const struct stage_row rows[] = {
    {&source, .thread = 0},
    {&split, .thread = 1},
    {&ask, .thread = 2},
    {&prefill, .thread = 3, .compute = true},
    {&decode, .thread = 3, .compute = true, .loop_to = 2},
    {&sink, .thread = 4},
};

/* ---- tests ---- */

static int set_up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof(t));
    t.fail_doc = t.fail_request = t.break_prefill = t.break_sink = -1;
    t.last_retired = -1;
    t.docs = 200;
    atomic_store(&cancel, false);
    return 0;
}

static struct flow *start(int queue, int window, uint64_t window_bytes)
{
    static struct stage_env env = {.cancel = &cancel};
    struct flow_limits l = {.gate = t.gate,
                            .queue = queue,
                            .queue_bytes = 1 << 20,
                            .window = window,
                            .window_bytes = window_bytes,
                            .threads = 1};
    struct err e = {0};
    struct flow *f;
    assert_int_equal(flow_start(&f, rows, ARRAY_LEN(rows), &env, &l, &e), 0);
    return f;
}

static int run_to_end(int queue, int window, bool *complete)
{
    struct err e = {0};
    struct flow *f = start(queue, window, 0);
    struct pollfd fd = {.fd = flow_done_fd(f), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 60000), 1);
    return flow_join(f, complete, &e);
}

static void every_document_comes_out_once_at_any_queue_depth(void **state)
{
    static const int depths[] = {1, 2, 64};
    for (size_t k = 0; k < ARRAY_LEN(depths); k++) {
        bool complete;
        set_up(state);
        assert_int_equal(run_to_end(depths[k], 16, &complete), 0);
        assert_true(complete);
        for (int i = 0; i < t.docs; i++)
            assert_int_equal(t.seen[i], 1);
        assert_int_equal(t.twice, 0);
        assert_int_equal(t.finishes, ARRAY_LEN(rows));
        assert_int_equal(t.closes, ARRAY_LEN(rows));
    }
}

static void failures_reach_the_end_as_one_record(void **state)
{
    (void)state;
    bool complete;
    t.fail_doc = 7;
    t.fail_request = 11;
    assert_int_equal(run_to_end(1, 16, &complete), 0);
    assert_true(complete);
    for (int i = 0; i < t.docs; i++)
        assert_int_equal(t.seen[i], i == 7 || i == 11 ? 2 : 1);
    assert_int_equal(t.twice, 0);
}

static void a_slow_end_stops_the_source_at_the_window(void **state)
{
    (void)state;
    bool complete;
    t.docs = 60;
    t.sink_us = 500;
    assert_int_equal(run_to_end(64, 10, &complete), 0);
    assert_true(atomic_load(&t.most_ahead) <= 10);
    assert_int_equal(atomic_load(&t.retired), 60);
}

static void a_window_of_few_bytes_takes_one_document_at_a_time(void **state)
{
    (void)state;
    bool complete;
    struct err e = {0};
    t.docs = 40;
    struct flow *f = start(8, 10, 1);
    assert_int_equal(flow_join(f, &complete, &e), 0);
    assert_true(complete);
    assert_true(atomic_load(&t.most_ahead) <= 1);
}

static void no_documents_at_all_is_a_whole_run(void **state)
{
    (void)state;
    bool complete;
    t.docs = 0;
    assert_int_equal(run_to_end(1, 16, &complete), 0);
    assert_true(complete);
    assert_int_equal(t.finishes, ARRAY_LEN(rows));
}

static void a_stage_that_fails_ends_the_run_with_its_reason(void **state)
{
    (void)state;
    bool complete;
    struct err e = {0};
    t.break_prefill = 50;
    struct flow *f = start(4, 16, 0);
    assert_int_equal(flow_join(f, &complete, &e), -ERR_DEVICE);
    assert_false(complete);
    assert_string_equal(e.msg, "prefill: broken");
    assert_int_equal(e.reach, REACH_JOB);
    assert_int_equal(t.closes, ARRAY_LEN(rows));
}

static void a_last_stage_that_fails_is_not_called_again(void **state)
{
    (void)state;
    bool complete;
    struct err e = {0};
    t.break_sink = 20;
    struct flow *f = start(1, 16, 0);
    assert_int_equal(flow_join(f, &complete, &e), -ERR_IO);
    assert_string_equal(e.msg, "sink: disk full");
}

static void a_stage_that_does_not_open_starts_nothing(void **state)
{
    (void)state;
    struct stage_env env = {.cancel = &cancel};
    struct flow_limits l = {.queue = 1, .window = 1};
    struct err e = {0};
    struct flow *f;
    t.break_open = true;
    assert_int_equal(flow_start(&f, rows, ARRAY_LEN(rows), &env, &l, &e), -ERR_CONFIG);
    assert_string_equal(e.msg, "ask: does not open");
    assert_null(f);
    assert_int_equal(atomic_load(&t.emitted), 0);
}

static void draining_finishes_what_was_begun_and_nothing_else(void **state)
{
    (void)state;
    bool complete;
    struct err e = {0};
    t.docs = MAX_DOCS;
    t.hold_after = 20;
    struct flow *f = start(8, 32, 0);
    while (atomic_load(&t.retired) < 20)
        nap(500);
    atomic_store(&cancel, true);
    flow_drain(f);
    atomic_store(&t.go_on, true);
    assert_int_equal(flow_join(f, &complete, &e), 0);
    assert_false(complete);
    int n = 0;
    while (n < t.docs && t.seen[n])
        n++;
    assert_in_range(n, 20, t.docs - 1);
    assert_int_equal(t.last_retired, n - 1);
    for (int i = n; i < t.docs; i++)
        assert_int_equal(t.seen[i], 0);
}

/* The gates of these tests: at a document, or after so many are done. */
static bool not_from_40(void *ctx, const struct rec *r)
{
    (void)ctx;
    if (r->doc->ordinal < 40)
        return true;
    atomic_store(&cancel, true);
    return false;
}

static bool not_after_20(void *ctx)
{
    if (atomic_fetch_add((atomic_int *)ctx, 1) + 1 < 20)
        return true;
    atomic_store(&cancel, true);
    return false;
}

static bool always(void *ctx, const struct rec *r)
{
    (void)ctx, (void)r;
    return true;
}

static bool ever(void *ctx)
{
    (void)ctx;
    return true;
}

static void a_document_that_may_not_begin_ends_the_run_after_those_before_it(void **state)
{
    (void)state;
    static const struct flow_gate gate = {.may_begin = not_from_40, .may_go_on = ever};
    bool complete;
    t.docs = MAX_DOCS;
    t.gate = &gate;
    assert_int_equal(run_to_end(8, 32, &complete), 0);
    assert_false(complete);
    for (int i = 0; i < t.docs; i++)
        assert_int_equal(t.seen[i], i < 40);
    t.gate = NULL;
}

static void a_run_that_may_not_go_on_finishes_what_was_begun(void **state)
{
    (void)state;
    atomic_int done = 0;
    const struct flow_gate gate = {
        .ctx = &done, .may_begin = always, .may_go_on = not_after_20};
    bool complete;
    t.docs = MAX_DOCS;
    t.gate = &gate;
    assert_int_equal(run_to_end(8, 32, &complete), 0);
    assert_false(complete);
    int n = 0;
    while (n < t.docs && t.seen[n])
        n++;
    assert_in_range(n, 20, t.docs - 1);
    assert_int_equal(t.last_retired, n - 1);
    t.gate = NULL;
}

static void stopping_ends_at_once_and_keeps_what_arrived(void **state)
{
    (void)state;
    bool complete;
    struct err e = {0};
    t.docs = MAX_DOCS;
    t.hold_after = 20;
    struct flow *f = start(64, 32, 0);
    while (atomic_load(&t.retired) < 20)
        nap(500);
    flow_stop(f);
    atomic_store(&t.go_on, true);
    assert_int_equal(flow_join(f, &complete, &e), -ERR_CANCELLED);
    assert_false(complete);
    assert_int_equal(e.code, ERR_NONE);
    assert_true(atomic_load(&t.retired) >= 20);
    assert_int_equal(t.closes, ARRAY_LEN(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_document_comes_out_once_at_any_queue_depth, set_up),
        cmocka_unit_test_setup(failures_reach_the_end_as_one_record, set_up),
        cmocka_unit_test_setup(a_slow_end_stops_the_source_at_the_window, set_up),
        cmocka_unit_test_setup(a_window_of_few_bytes_takes_one_document_at_a_time, set_up),
        cmocka_unit_test_setup(no_documents_at_all_is_a_whole_run, set_up),
        cmocka_unit_test_setup(a_stage_that_fails_ends_the_run_with_its_reason, set_up),
        cmocka_unit_test_setup(a_last_stage_that_fails_is_not_called_again, set_up),
        cmocka_unit_test_setup(a_stage_that_does_not_open_starts_nothing, set_up),
        cmocka_unit_test_setup(draining_finishes_what_was_begun_and_nothing_else, set_up),
        cmocka_unit_test_setup(a_document_that_may_not_begin_ends_the_run_after_those_before_it,
                               set_up),
        cmocka_unit_test_setup(a_run_that_may_not_go_on_finishes_what_was_begun, set_up),
        cmocka_unit_test_setup(stopping_ends_at_once_and_keeps_what_arrived, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

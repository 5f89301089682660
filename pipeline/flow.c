#include "pipeline/flow.h"

#include "kernels/kernels.h"
#include "kernels/team.h"
#include "pipeline/queue.h"
#include "stages/base/clock.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

/* A row of the table at work. */
struct node {
    const struct stage_row *row;
    struct stage stage;
    struct flow *flow;
    struct worker *worker;
    struct queue in;   /* unused by the first row */
    struct queue loop; /* rows that another row loops to */
    bool is_loop_target;
    bool opened, finished;
};

/* A thread and its rows [first, last]. */
struct worker {
    struct flow *flow;
    int first, last;
    struct bell bell;
    pthread_t thread;
    bool started;
};

/* Documents between the first and the last row. Both ends move in input order. */
struct window {
    pthread_mutex_t lock;
    int n, max;
    uint64_t bytes, max_bytes;
};

struct flow {
    struct node *nodes;
    int n_nodes;
    struct worker *workers;
    int n_workers, threads;
    const struct flow_gate *gate;
    struct window window;
    int done_fd;
    atomic_int running;      /* workers that have not ended */
    atomic_bool draining;    /* flow_drain() was called */
    atomic_bool cancelled;   /* flow_stop(), or a stage failed */
    atomic_bool last_ended;  /* the worker of the last row */
    atomic_bool source_done; /* the source ended by itself, before a drain */
    atomic_llong loop_out;   /* REDUCE requests that have left tokenize and not come back */
    atomic_llong begun;      /* highest ordinal that the compute thread has begun, -1 */
    atomic_llong cut;        /* when draining: documents after this one are dropped */
    atomic_llong dropped;
    pthread_mutex_t err_lock;
    struct err err; /* of the first stage that failed */
};

/* ---- where records go ---- */

static bool in_loop(const struct rec *r)
{
    return r->kind >= REC_REQUEST && r->req.use == ANSWER_REDUCE;
}

static bool beyond_cut(const struct flow *f, const struct rec *r)
{
    return atomic_load(&f->draining) && r->doc->ordinal > atomic_load(&f->cut);
}

/* A record that was on its way, of a document that the drain gives up. */
static void drop(struct flow *f, struct rec *r, bool was_counted)
{
    atomic_fetch_add(&f->dropped, 1);
    if (was_counted) {
        atomic_fetch_sub(&f->loop_out, 1);
        for (int i = 0; i < f->n_nodes; i++)
            if (f->nodes[i].is_loop_target)
                bell_ring(&f->nodes[i].worker->bell);
    }
    rec_free(r);
}

/* Waits for a place for r's document. False: the run takes no more documents. */
static bool window_enter(struct flow *f, const struct rec *r)
{
    struct window *w = &f->window;
    struct bell *bell = &f->workers[0].bell;
    size_t bytes = doc_memory(r->doc);
    for (;;) {
        unsigned seen = bell_read(bell);
        if (atomic_load(&f->cancelled) || atomic_load(&f->draining))
            return false;
        pthread_mutex_lock(&w->lock);
        bool ok =
            w->n == 0 || (w->n < w->max && (!w->max_bytes || w->bytes + bytes <= w->max_bytes));
        if (ok) {
            w->n++;
            w->bytes += bytes;
        }
        pthread_mutex_unlock(&w->lock);
        if (ok)
            return true;
        bell_wait(bell, seen);
    }
}

static void window_leave(struct flow *f, const struct rec *r)
{
    struct window *w = &f->window;
    pthread_mutex_lock(&w->lock);
    assert(w->n > 0);
    w->n--;
    w->bytes -= doc_memory(r->doc);
    pthread_mutex_unlock(&w->lock);
    bell_ring(&f->workers[0].bell);
}

/* stage_emit_fn */
static int flow_emit(void *runner, struct rec *r)
{
    struct node *n = runner;
    struct flow *f = n->flow;
    int i = (int)(n - f->nodes);
    if (i == f->n_nodes - 1) {
        window_leave(f, r);
        rec_free(r);
        if (f->gate && !atomic_load(&f->draining) && !f->gate->may_go_on(f->gate->ctx))
            flow_drain(f);
        return 0;
    }
    if (i == 0 && !window_enter(f, r)) {
        drop(f, r, false);
        return -ERR_CANCELLED;
    }
    if (beyond_cut(f, r)) {
        drop(f, r, in_loop(r) && !n->is_loop_target);
        return 0;
    }
    if (n->row->loop_to && in_loop(r)) {
        queue_put(&f->nodes[n->row->loop_to].loop, r);
        return 0;
    }
    if (n->is_loop_target && in_loop(r)) {
        if (r->fail.code)
            r->req.use = ANSWER_FINAL; /* given up: it is the document's failure now */
        else
            atomic_fetch_add(&f->loop_out, 1);
    }
    struct node *next = n + 1;
    if (next->worker != n->worker)
        return queue_push(&next->in, r);
    queue_put(&next->in, r);
    return 0;
}

/* ---- one turn of a row ---- */

static bool has_room(struct node *n)
{
    bool last = n == &n->flow->nodes[n->flow->n_nodes - 1];
    return last || queue_has_room(&n[1].in);
}

/* The next record for n, or NULL. The loop comes first: its requests hold pages and documents. */
static struct rec *take(struct node *n, bool *worked, bool *from_loop)
{
    struct rec *r = n->is_loop_target ? queue_pull(&n->loop) : NULL;
    *from_loop = r != NULL;
    if (!r)
        r = queue_pull(&n->in);
    if (!r)
        return NULL;
    *worked = true;
    struct flow *f = n->flow;
    if (beyond_cut(f, r)) {
        drop(f, r, in_loop(r));
        return NULL;
    }
    return r;
}

/* struct stage.begin */
static bool flow_begin(void *runner, const struct rec *r)
{
    struct flow *f = ((struct node *)runner)->flow;
    if (beyond_cut(f, r))
        return false;
    if (r->doc->ordinal > atomic_load(&f->begun)) { /* one thread computes */
        if (f->gate && !atomic_load(&f->draining) && !f->gate->may_begin(f->gate->ctx, r)) {
            flow_drain(f);
            return false;
        }
        atomic_store(&f->begun, r->doc->ordinal);
    }
    if (!r->doc->begun_us)
        r->doc->begun_us = clock_us();
    return true;
}

/* struct stage.wake */
static void flow_wake(void *runner)
{
    bell_ring(&((struct node *)runner)->worker->bell);
}

static bool input_ended(struct node *n)
{
    if (n == n->flow->nodes)
        return true;
    if (!queue_ended(&n->in))
        return false;
    return !n->is_loop_target ||
           (atomic_load(&n->flow->loop_out) == 0 && queue_empty(&n->loop));
}

static int finish(struct node *n, struct err *e)
{
    const struct stage_ops *ops = n->row->ops;
    int rc = ops->finish ? ops->finish(&n->stage, e) : 0;
    n->finished = true;
    if (n + 1 < n->flow->nodes + n->flow->n_nodes)
        queue_close(&n[1].in);
    return rc;
}

static int push(struct node *n, struct rec *r, bool from_loop, struct err *e)
{
    int rc = n->row->ops->push(&n->stage, r, e);
    /* After the push, so that requests which it made were counted before this one is taken off. */
    if (from_loop)
        atomic_fetch_sub(&n->flow->loop_out, 1);
    return rc;
}

static int run_source(struct node *n, struct err *e)
{
    struct flow *f = n->flow;
    int rc = n->row->ops->source(&n->stage, e);
    if (rc == -ERR_CANCELLED && atomic_load(&f->draining)) {
        err_clear(e);
        rc = 0;
    }
    /* The caller sets cancel before it drains: a source that saw it did not end by itself. */
    if (rc >= 0 && !atomic_load(n->stage.env->cancel))
        atomic_store(&f->source_done, true);
    return rc < 0 ? rc : finish(n, e);
}

/* One step and one push, where there is something to do. Sets *worked if anything was done. */
static int turn(struct node *n, bool *worked, struct err *e)
{
    const struct stage_ops *ops = n->row->ops;
    if (ops->source) {
        *worked = true;
        return run_source(n, e);
    }
    bool busy = false;
    int rc;
    if (ops->step && has_room(n)) {
        if ((rc = ops->step(&n->stage, e)) < 0)
            return rc;
        busy = rc != ST_IDLE;
        *worked |= rc == ST_MORE;
    }
    bool wants = has_room(n) && (!ops->want || ops->want(&n->stage));
    if (wants) {
        bool from_loop;
        struct rec *r = take(n, worked, &from_loop);
        if (r)
            return push(n, r, from_loop, e);
    }
    if (!busy && wants && input_ended(n)) {
        *worked = true;
        return finish(n, e);
    }
    return 0;
}

/* ---- threads ---- */

static void stop_queues(struct flow *f)
{
    atomic_store(&f->cancelled, true);
    for (int i = 0; i < f->n_nodes; i++) {
        queue_cancel(&f->nodes[i].in);
        queue_cancel(&f->nodes[i].loop);
    }
    for (int i = 0; i < f->n_workers; i++)
        bell_ring(&f->workers[i].bell);
}

static void stage_failed(struct node *n, int rc, struct err *e)
{
    struct flow *f = n->flow;
    if (rc == -ERR_CANCELLED && atomic_load(&f->cancelled))
        return; /* told to stop, and did */
    if (!e->code)
        err_set(e, REACH_JOB, rc < 0 && -rc < ERR_CODE_COUNT ? (enum err_code) - rc : ERR_BUG,
                "stopped without a reason");
    err_wrap(e, "%s", n->row->ops->name);
    e->reach = REACH_JOB;
    pthread_mutex_lock(&f->err_lock);
    if (!f->err.code)
        f->err = *e;
    pthread_mutex_unlock(&f->err_lock);
    stop_queues(f);
}

/* After a stop: answers that already reached the last row are worth keeping. */
static int flush_last(struct node *n, struct err *e)
{
    struct rec *r;
    int rc = 0;
    while (rc >= 0 && (r = queue_pull(&n->in)) != NULL)
        rc = n->row->ops->push(&n->stage, r, e);
    return rc < 0 ? rc : finish(n, e);
}

static int serve(struct worker *w, struct node **at, struct err *e)
{
    struct flow *f = w->flow;
    for (bool open = true; open;) {
        unsigned seen = bell_read(&w->bell);
        if (atomic_load(&f->cancelled))
            break;
        bool worked = false;
        open = false;
        for (int i = w->last; i >= w->first; i--) {
            *at = &f->nodes[i];
            if ((*at)->finished)
                continue;
            int rc = turn(*at, &worked, e);
            if (rc < 0)
                return rc;
            open |= !(*at)->finished;
        }
        if (open && !worked)
            bell_wait(&w->bell, seen);
    }
    *at = &f->nodes[w->last];
    return w->last == f->n_nodes - 1 && !(*at)->finished ? flush_last(*at, e) : 0;
}

static int gather_team(struct team **team, int threads, struct err *e)
{
    *team = team_new(threads);
    if (!*team)
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a team of %d threads", threads);
    if (team_size(*team) < threads)
        log_warn("run", "the system refuses more threads: %d compute, %d were to",
                 team_size(*team), threads);
    team_use(*team);
    return 0;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct flow *f = w->flow;
    struct node *at = &f->nodes[w->first];
    struct err e = {0};
    prctl(PR_SET_NAME, at->row->ops->name, 0, 0, 0);
    struct team *team = NULL;
    int rc = 0;
    if (!kern_float_environment_ok()) /* its team inherits it */
        rc = err_set(&e, REACH_JOB, ERR_DEVICE,
                     "this thread does not round to nearest even with denormals");
    if (!rc && at->row->compute && f->threads > 0)
        rc = gather_team(&team, f->threads, &e);
    if (!rc)
        rc = serve(w, &at, &e);
    team_free(team);
    if (rc < 0)
        stage_failed(at, rc, &e);
    if (w->last == f->n_nodes - 1)
        atomic_store(&f->last_ended, true);
    if (atomic_fetch_sub(&f->running, 1) == 1) {
        uint64_t one = 1;
        ssize_t put = write(f->done_fd, &one, sizeof(one));
        (void)put; /* an eventfd takes 8 bytes */
    }
    return NULL;
}

/* ---- life ---- */

static void wire(struct flow *f, const struct stage_row *rows, const struct stage_env *env,
                 const struct flow_limits *l)
{
    for (int i = 0; i < f->n_nodes; i++) {
        struct node *n = &f->nodes[i];
        struct worker *w = &f->workers[rows[i].thread];
        if (i == 0 || rows[i].thread != rows[i - 1].thread) {
            *w = (struct worker){.flow = f, .first = i};
            bell_init(&w->bell);
        }
        w->last = i;
        n->row = &rows[i];
        n->flow = f;
        n->worker = w;
        n->stage = (struct stage){.ops = rows[i].ops,
                                  .env = env,
                                  .emit = flow_emit,
                                  .wake = flow_wake,
                                  .begin = flow_begin,
                                  .runner = n};
        queue_init(&n->in, l->queue, l->queue_bytes, i ? &n[-1].worker->bell : &w->bell,
                   &w->bell);
    }
    for (int i = 0; i < f->n_nodes; i++) {
        struct worker *from = f->nodes[i].worker;
        for (int j = i + 1; j < f->n_nodes; j++)
            if (rows[j].loop_to == i && i > 0) {
                f->nodes[i].is_loop_target = true;
                from = f->nodes[j].worker;
            }
        queue_init(&f->nodes[i].loop, 0, 0, &from->bell, &f->nodes[i].worker->bell);
    }
}

static void flow_free(struct flow *f)
{
    for (int i = 0; i < f->n_nodes; i++)
        if (f->nodes[i].opened && f->nodes[i].row->ops->close)
            f->nodes[i].row->ops->close(&f->nodes[i].stage);
    for (int i = 0; i < f->n_nodes; i++) {
        queue_destroy(&f->nodes[i].in);
        queue_destroy(&f->nodes[i].loop);
    }
    for (int i = 0; i < f->n_workers; i++)
        bell_destroy(&f->workers[i].bell);
    pthread_mutex_destroy(&f->window.lock);
    pthread_mutex_destroy(&f->err_lock);
    if (f->done_fd >= 0)
        close(f->done_fd);
    free(f->nodes);
    free(f->workers);
    free(f);
}

static int open_stages(struct flow *f, struct err *e)
{
    for (int i = 0; i < f->n_nodes; i++) {
        struct node *n = &f->nodes[i];
        n->opened = true; /* close is called after a failed open, too */
        int rc = n->row->ops->open ? n->row->ops->open(&n->stage, e) : 0;
        if (rc < 0)
            return err_wrap(e, "%s", n->row->ops->name);
    }
    return 0;
}

int flow_start(struct flow **out, const struct stage_row *rows, int n_rows,
               const struct stage_env *env, const struct flow_limits *l, struct err *e)
{
    struct flow *f = mem_need(sizeof(*f));
    *out = NULL;
    f->n_nodes = n_rows;
    f->n_workers = rows[n_rows - 1].thread + 1;
    f->nodes = mem_need((size_t)n_rows * sizeof(*f->nodes));
    f->workers = mem_need((size_t)f->n_workers * sizeof(*f->workers));
    f->threads = l->threads;
    f->gate = l->gate;
    f->window.max = l->window > 0 ? l->window : 1;
    f->window.max_bytes = l->window_bytes;
    pthread_mutex_init(&f->window.lock, NULL);
    pthread_mutex_init(&f->err_lock, NULL);
    atomic_store(&f->begun, -1);
    wire(f, rows, env, l);
    f->done_fd = eventfd(0, EFD_CLOEXEC);
    if (f->done_fd < 0) {
        int rc = err_set(e, REACH_JOB, ERR_IO, "cannot make an event descriptor: %s",
                         strerror(errno));
        flow_free(f);
        return rc;
    }
    int rc = open_stages(f, e);
    if (rc < 0) {
        flow_free(f);
        return rc;
    }
    atomic_store(&f->running, f->n_workers);
    for (int i = 0; i < f->n_workers; i++) {
        struct worker *w = &f->workers[i];
        int no = pthread_create(&w->thread, NULL, work, w);
        if (no) {
            /* Those that run already must end before anything is freed. */
            stop_queues(f);
            for (int k = 0; k < i; k++)
                pthread_join(f->workers[k].thread, NULL);
            rc = err_set(e, REACH_JOB, ERR_NOMEM, "cannot start a thread: %s", strerror(no));
            flow_free(f);
            return rc;
        }
        w->started = true;
    }
    *out = f;
    return 0;
}

int flow_done_fd(const struct flow *f)
{
    return f->done_fd;
}

void flow_drain(struct flow *f)
{
    atomic_store(&f->cut, atomic_load(&f->begun));
    atomic_store(&f->draining, true);
    for (int i = 0; i < f->n_workers; i++)
        bell_ring(&f->workers[i].bell);
}

void flow_stop(struct flow *f)
{
    stop_queues(f);
}

bool flow_abandon(struct flow *f)
{
    for (int i = 0; i < f->n_workers; i++)
        pthread_detach(f->workers[i].thread);
    return atomic_load(&f->last_ended);
}

int flow_join(struct flow *f, bool *complete, struct err *e)
{
    for (int i = 0; i < f->n_workers; i++)
        pthread_join(f->workers[i].thread, NULL);
    bool cancelled = atomic_load(&f->cancelled);
    *complete = !cancelled && atomic_load(&f->source_done) && atomic_load(&f->dropped) == 0;
    int rc = 0;
    if (f->err.code) {
        *e = f->err;
        rc = -(int)f->err.code;
    } else if (cancelled) {
        rc = -ERR_CANCELLED;
    }
    if (*complete && f->window.n != 0)
        rc = err_set(e, REACH_JOB, ERR_BUG, "%d documents went in and did not come out",
                     f->window.n);
    flow_free(f);
    return rc;
}

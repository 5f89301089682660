/* pipeline/flow.h - runs a table of stages: threads, queues, the loop back, the way to stop.
 *
 *     [ingest] =window=> [chunk] ==> [tokenize] ==> [prefill -> decode] ==> [write]
 *                                        ^                    |               |
 *                                        +--- loop (REDUCE) --+               |
 *         ^---------------------- retire (a document is done) ----------------+
 *
 * What:   one thread per group of rows (brackets); a bounded queue before each row; sleeps when there
 *         is nothing to do.
 * Rules:  1. Back-pressure: a full queue stops the thread that fills it. The edge inside a thread
 *            and the loop edge never block; the thread looks for room before it works instead.
 *         2. At most `window` documents, and `window_bytes` of them (one larger alone), are between
 *            the first row's emit and their retirement, so what the last row holds is bounded.
 *         3. The loop cannot deadlock: its queue has no bound of its own, holds only requests that are
 *            in flight (bounded by the window), and is served before the stage's first input, so the
 *            compute thread never waits for tokenize while tokenize waits for it.
 *         4. A row with a loop input ends when its first input ended and none of its loop requests is
 *            still out. Then finish() is called and the next row's input closed.
 *         5. Drain: documents of which no request was begun (struct stage.begin) are dropped wherever
 *            they are; the rest is finished. Stop: queues are cancelled, threads end after the call
 *            they are in; the last row still takes what reached it, and finishes.
 * Thread: flow_start() to flow_join() from one thread; flow_drain() and flow_stop() too.
 */
#ifndef QUIRE_PIPELINE_FLOW_H
#define QUIRE_PIPELINE_FLOW_H

#include "pipeline/stage_table.h"

struct flow;

/* What the caller may have against going on. False drains the flow, as flow_drain(); the callee sets env.cancel first.
 * Called from the threads of the flow. */
struct flow_gate {
    void *ctx;
    bool (*may_begin)(void *ctx,
                      const struct rec *r); /* r: a request of a document not yet begun */
    bool (*may_go_on)(void *ctx);           /* a document is done */
};

struct flow_limits {
    const struct flow_gate *gate; /* NULL: nothing; else it must outlive the flow */
    int queue;                    /* records in a queue */
    uint64_t queue_bytes;         /* bytes in a queue */
    int window;                   /* documents in flight */
    uint64_t window_bytes;
    int threads; /* of the compute team */
};

/* Opens the stages in order and starts the threads. On failure everything is closed again. */
int flow_start(struct flow **out, const struct stage_row *rows, int n_rows,
               const struct stage_env *env, const struct flow_limits *l,
               struct err *e) MUST_CHECK;

/* A descriptor that becomes readable when all threads have ended. */
int flow_done_fd(const struct flow *f);

/* Stop taking documents and finish those that were begun; the caller has set env.cancel already. */
void flow_drain(struct flow *f);
/* Stop now. */
void flow_stop(struct flow *f);

/* Instead of flow_join(), when a thread does not end after flow_stop(): leaves all to themselves and frees
 * nothing. True: the thread of the last row has ended, and what that row wrote is the caller's. */
bool flow_abandon(struct flow *f) MUST_CHECK;

/* Wait for the threads, close the stages, free everything. *complete: all documents of the source went
 * through. Returns 0, -ERR_CANCELLED after flow_stop() (*e untouched), or the first stage's error. */
int flow_join(struct flow *f, bool *complete, struct err *e) MUST_CHECK;

#endif

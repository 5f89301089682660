/* pipeline/queue.h - bounded queues of records between two threads, and the bells that wake them.
 *
 *     producer --push (waits while full)--> [ oldest ... newest ] --pull (never waits)--> consumer
 *         ^                                                                                  ^
 *         +-- rung when a record leaves                    rung when one arrives, or at the end --+
 *
 * What:   struct queue holds records; struct bell lets a thread that serves several queues sleep
 *         until any of them changed.
 * Rules:  1. A queue is full at max_records, or when the next record would take it over max_bytes;
 *            a record that is larger than max_bytes passes alone. 0 means no bound.
 *         2. close: no more pushes will come; what is inside is still pulled. cancel: pushes fail
 *            from now on; what is inside is still pulled or freed.
 *         3. No busy waiting. bell_read() before looking at the queues, bell_wait() with what it
 *            returned: a ring in between makes the wait return at once, so none is ever lost.
 * Thread: safe. One producer and one consumer thread per queue.
 */
#ifndef QUIRE_PIPELINE_QUEUE_H
#define QUIRE_PIPELINE_QUEUE_H

#include "stages/rec.h"

#include <pthread.h>

/* ---- bell ---- */

struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    unsigned rings; /* how often; wraps */
};

void bell_init(struct bell *b);
void bell_destroy(struct bell *b);
void bell_ring(struct bell *b);
unsigned bell_read(struct bell *b);
/* Sleep until the count differs from seen. */
void bell_wait(struct bell *b, unsigned seen);

/* ---- queue ---- */

struct queue {
    pthread_mutex_t lock;
    struct rec *head, **tail;
    int n, max_records;
    uint64_t bytes, max_bytes;
    bool closed, cancelled;
    struct bell *producer, *consumer;
    int peak; /* most records at once, for the report */
};

void queue_init(struct queue *q, int max_records, uint64_t max_bytes, struct bell *producer,
                struct bell *consumer);
void queue_destroy(struct queue *q); /* frees the records inside */

/* Append r, waiting while the queue is full. Takes r in any case.
 * Returns 0, or -ERR_CANCELLED when the queue was cancelled (r is freed). */
int queue_push(struct queue *q, struct rec *r) MUST_CHECK;
/* Append r without waiting, past the bounds if need be: for an edge whose consumer is this same
 * thread, or whose records are bounded elsewhere. */
void queue_put(struct queue *q, struct rec *r);
/* Oldest record, or NULL when there is none now. */
struct rec *queue_pull(struct queue *q);

/* Room for a record of the smallest size. */
bool queue_has_room(struct queue *q);
bool queue_empty(struct queue *q);
/* Closed and empty: nothing will come any more. */
bool queue_ended(struct queue *q);
void queue_close(struct queue *q);
void queue_cancel(struct queue *q);

/* Bytes that a record counts for: its own, and those of its document for the document's first record. */
size_t queue_weight(const struct rec *r);

#endif

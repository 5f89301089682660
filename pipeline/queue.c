#include "pipeline/queue.h"

/* ---- bell ---- */

void bell_init(struct bell *b)
{
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->rung, NULL);
    b->rings = 0;
}

void bell_destroy(struct bell *b)
{
    pthread_cond_destroy(&b->rung);
    pthread_mutex_destroy(&b->lock);
}

void bell_ring(struct bell *b)
{
    pthread_mutex_lock(&b->lock);
    b->rings++;
    pthread_cond_broadcast(&b->rung);
    pthread_mutex_unlock(&b->lock);
}

unsigned bell_read(struct bell *b)
{
    pthread_mutex_lock(&b->lock);
    unsigned seen = b->rings;
    pthread_mutex_unlock(&b->lock);
    return seen;
}

void bell_wait(struct bell *b, unsigned seen)
{
    pthread_mutex_lock(&b->lock);
    while (b->rings == seen)
        pthread_cond_wait(&b->rung, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

/* ---- queue ---- */

void queue_init(struct queue *q, int max_records, uint64_t max_bytes, struct bell *producer,
                struct bell *consumer)
{
    *q = (struct queue){.max_records = max_records,
                        .max_bytes = max_bytes,
                        .producer = producer,
                        .consumer = consumer};
    q->tail = &q->head;
    pthread_mutex_init(&q->lock, NULL);
}

void queue_destroy(struct queue *q)
{
    while (q->head) {
        struct rec *r = q->head;
        q->head = r->next;
        rec_free(r);
    }
    pthread_mutex_destroy(&q->lock);
}

size_t queue_weight(const struct rec *r)
{
    return rec_memory(r) + (r->kind == REC_DOC ? doc_memory(r->doc) : 0);
}

static bool fits(const struct queue *q, size_t weight)
{
    if (q->n == 0)
        return true; /* alone, whatever its size */
    return (!q->max_records || q->n < q->max_records) &&
           (!q->max_bytes || q->bytes + weight <= q->max_bytes);
}

/* The lock is held. */
static void append(struct queue *q, struct rec *r, size_t weight)
{
    r->next = NULL;
    *q->tail = r;
    q->tail = &r->next;
    q->bytes += weight;
    if (++q->n > q->peak)
        q->peak = q->n;
}

int queue_push(struct queue *q, struct rec *r)
{
    size_t weight = queue_weight(r);
    for (;;) {
        unsigned seen = bell_read(q->producer);
        pthread_mutex_lock(&q->lock);
        bool cancelled = q->cancelled, ok = !cancelled && fits(q, weight);
        if (ok)
            append(q, r, weight);
        pthread_mutex_unlock(&q->lock);
        if (ok) {
            bell_ring(q->consumer);
            return 0;
        }
        if (cancelled) {
            rec_free(r);
            return -ERR_CANCELLED;
        }
        bell_wait(q->producer, seen);
    }
}

void queue_put(struct queue *q, struct rec *r)
{
    size_t weight = queue_weight(r);
    pthread_mutex_lock(&q->lock);
    append(q, r, weight);
    pthread_mutex_unlock(&q->lock);
    bell_ring(q->consumer);
}

struct rec *queue_pull(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    struct rec *r = q->head;
    if (r) {
        q->head = r->next;
        if (!q->head)
            q->tail = &q->head;
        q->n--;
        q->bytes -= queue_weight(r);
        r->next = NULL;
    }
    pthread_mutex_unlock(&q->lock);
    if (r)
        bell_ring(q->producer);
    return r;
}

bool queue_has_room(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool room = fits(q, 1);
    pthread_mutex_unlock(&q->lock);
    return room;
}

bool queue_empty(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool empty = q->n == 0;
    pthread_mutex_unlock(&q->lock);
    return empty;
}

bool queue_ended(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool ended = q->closed && q->n == 0;
    pthread_mutex_unlock(&q->lock);
    return ended;
}

void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_mutex_unlock(&q->lock);
    bell_ring(q->consumer);
}

void queue_cancel(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->cancelled = true;
    pthread_mutex_unlock(&q->lock);
    bell_ring(q->producer);
    bell_ring(q->consumer);
}

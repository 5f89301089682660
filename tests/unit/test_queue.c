/* Queues: order, bounds, and that nobody sleeps through a ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipeline/queue.h"

static struct rec *document(int64_t ordinal, size_t text_len)
{
    struct doc *d = doc_new();
    d->ordinal = ordinal;
    d->text = calloc(1, text_len + 1);
    d->text_len = text_len;
    struct rec *r = rec_new(REC_DOC, d);
    doc_unref(d);
    return r;
}

struct pair {
    struct bell in, out;
    struct queue q;
};

static void pair_init(struct pair *p, int records, uint64_t bytes)
{
    bell_init(&p->in);
    bell_init(&p->out);
    queue_init(&p->q, records, bytes, &p->in, &p->out);
}

static void pair_destroy(struct pair *p)
{
    queue_destroy(&p->q);
    bell_destroy(&p->in);
    bell_destroy(&p->out);
}

static void records_leave_in_the_order_they_came(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 0, 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(queue_push(&p.q, document(i, 10)), 0);
    for (int i = 0; i < 5; i++) {
        struct rec *r = queue_pull(&p.q);
        assert_int_equal(r->doc->ordinal, i);
        rec_free(r);
    }
    assert_null(queue_pull(&p.q));
    pair_destroy(&p);
}

static void a_queue_is_full_by_records_and_by_bytes(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 2, 0);
    assert_int_equal(queue_push(&p.q, document(0, 0)), 0);
    assert_true(queue_has_room(&p.q));
    assert_int_equal(queue_push(&p.q, document(1, 0)), 0);
    assert_false(queue_has_room(&p.q));
    pair_destroy(&p);
    pair_init(&p, 100, 10000);
    assert_int_equal(queue_push(&p.q, document(0, 9999)), 0);
    assert_false(queue_has_room(&p.q));
    pair_destroy(&p);
}

static void a_record_larger_than_the_bound_passes_alone(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 100, 1000);
    assert_int_equal(queue_push(&p.q, document(0, 1 << 20)), 0);
    assert_false(queue_has_room(&p.q));
    rec_free(queue_pull(&p.q));
    assert_true(queue_has_room(&p.q));
    assert_int_equal(p.q.bytes, 0);
    pair_destroy(&p);
}

static void a_document_counts_once_however_many_records_share_it(void **state)
{
    (void)state;
    struct rec *d = document(0, 1 << 20);
    struct rec *c = rec_new(REC_CHUNK, d->doc);
    assert_true(queue_weight(d) > 1 << 20);
    assert_true(queue_weight(c) < 10000);
    rec_free(c);
    rec_free(d);
}

static void closing_lets_what_is_inside_out(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 0, 0);
    assert_int_equal(queue_push(&p.q, document(0, 0)), 0);
    queue_close(&p.q);
    assert_false(queue_ended(&p.q));
    rec_free(queue_pull(&p.q));
    assert_true(queue_ended(&p.q));
    pair_destroy(&p);
}

static void *push_many(void *arg)
{
    struct pair *p = arg;
    for (int i = 0; i < 2000; i++)
        if (queue_push(&p->q, document(i, (size_t)(i % 7) * 100)) != 0)
            return p;
    queue_close(&p->q);
    return NULL;
}

static void a_waiting_producer_is_woken_by_each_pull(void **state)
{
    (void)state;
    struct pair p;
    pthread_t thread;
    void *failed;
    pair_init(&p, 1, 0);
    assert_int_equal(pthread_create(&thread, NULL, push_many, &p), 0);
    for (int next = 0;;) {
        unsigned seen = bell_read(&p.out);
        struct rec *r = queue_pull(&p.q);
        if (r) {
            assert_int_equal(r->doc->ordinal, next++);
            rec_free(r);
        } else if (queue_ended(&p.q)) {
            assert_int_equal(next, 2000);
            break;
        } else {
            bell_wait(&p.out, seen);
        }
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(p.q.peak, 1);
    pair_destroy(&p);
}

static void cancelling_frees_a_waiting_producer(void **state)
{
    (void)state;
    struct pair p;
    pthread_t thread;
    void *failed;
    pair_init(&p, 1, 0);
    assert_int_equal(pthread_create(&thread, NULL, push_many, &p), 0);
    unsigned seen = bell_read(&p.out);
    if (queue_empty(&p.q))
        bell_wait(&p.out, seen);
    queue_cancel(&p.q);
    pthread_join(thread, &failed);
    assert_non_null(failed);
    pair_destroy(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_leave_in_the_order_they_came),
        cmocka_unit_test(a_queue_is_full_by_records_and_by_bytes),
        cmocka_unit_test(a_record_larger_than_the_bound_passes_alone),
        cmocka_unit_test(a_document_counts_once_however_many_records_share_it),
        cmocka_unit_test(closing_lets_what_is_inside_out),
        cmocka_unit_test(a_waiting_producer_is_woken_by_each_pull),
        cmocka_unit_test(cancelling_frees_a_waiting_producer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

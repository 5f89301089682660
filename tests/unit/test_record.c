/* Heads of records, notices, and the walk over a segment: damage costs what it hits and no more. */
#include "tests/unit/disk_rig.h"

#include "stages/kv/segment.h"

static struct record_head head_of(int i, uint32_t body_bytes)
{
    return (struct record_head){.info = rig_info(i),
                                .state = RECORD_KEPT,
                                .body_bytes = body_bytes,
                                .body_hash = 77,
                                .owner = 5,
                                .written = 1700000000};
}

static void a_head_is_read_as_it_was_written(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct record_head h = head_of(i, 1000u + (uint32_t)i), got;
        uint8_t bytes[RECORD_HEAD_MAX];
        h.state = i % 2 ? RECORD_EPHEMERAL : RECORD_PINNED;
        h.info.ephemeral = i % 2;
        size_t n = record_put(&h, bytes);
        assert_int_equal(n, record_head_bytes(h.info.n_tokens));
        assert_int_equal(n % RECORD_ALIGN, 0);
        memset(&got, 0, sizeof(got));
        assert_int_equal(record_get(&got, bytes, n), n);
        assert_int_equal(got.state, h.state);
        assert_int_equal(got.body_bytes, h.body_bytes);
        assert_int_equal(got.body_hash, h.body_hash);
        assert_int_equal(got.owner, h.owner);
        assert_int_equal(got.written, h.written);
        assert_memory_equal(&got.info, &h.info, sizeof(h.info));
    }
}

static void every_flipped_bit_of_a_head_is_noticed(void **state)
{
    (void)state;
    struct record_head h = head_of(1, 1000), got;
    uint8_t bytes[RECORD_HEAD_MAX];
    size_t n = record_put(&h, bytes);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (bit / 8 == RECORD_STATE_AT) {
            assert_int_equal(record_get(&got, bytes, n), n);
            assert_false(record_is_live(got.state));
            assert_true(got.state != RECORD_REMOVED && got.state != RECORD_BAD);
        } else {
            assert_int_equal(record_get(&got, bytes, n), 0);
        }
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t shorter = 0; shorter < n; shorter++)
        assert_int_equal(record_get(&got, bytes, shorter), 0);
}

/* A head with a right checksum may still be made by an enemy. */
static void impossible_fields_are_refused_even_with_a_right_checksum(void **state)
{
    (void)state;
    uint8_t bytes[RECORD_HEAD_MAX];
    struct record_head h = head_of(1, RECORD_BODY_MAX), got;
    assert_true(record_get(&got, bytes, record_put(&h, bytes)) > 0);
    h.body_bytes = RECORD_BODY_MAX + 1u;
    assert_int_equal(record_get(&got, bytes, record_put(&h, bytes)), 0);
    h = head_of(1, 64);
    h.info.n_logits = 16;
    assert_true(record_get(&got, bytes, record_put(&h, bytes)) > 0);
    h.info.n_logits = 17;
    assert_int_equal(record_get(&got, bytes, record_put(&h, bytes)), 0);
    h = head_of(1, 64);
    h.info.codec = CODEC_COUNT;
    assert_int_equal(record_get(&got, bytes, record_put(&h, bytes)), 0);
    h = head_of(1, 64);
    h.info.kind = (enum record_kind)2;
    assert_int_equal(record_get(&got, bytes, record_put(&h, bytes)), 0);
    h = head_of(1, 64);
    h.info.kind = RECORD_PAGE;
    h.info.n_tokens = 0;
    assert_int_equal(record_get(&got, bytes, record_put(&h, bytes)), 0);
    h.info.kind = RECORD_TAIL; /* the logits behind a prompt that fills its last page */
    assert_true(record_get(&got, bytes, record_put(&h, bytes)) > 0);
}

static void every_flipped_bit_of_a_notice_is_noticed(void **state)
{
    (void)state;
    struct record_notice t = {.segment = 3, .offset = 1 << 20}, got;
    uint8_t bytes[NOTICE_BYTES];
    memset(t.key, 9, sizeof(t.key));
    notice_put(&t, bytes);
    assert_true(notice_get(&got, bytes));
    assert_int_equal(got.segment, 3);
    assert_int_equal(got.offset, 1 << 20);
    assert_memory_equal(got.key, t.key, sizeof(t.key));
    for (size_t bit = 0; bit < 8 * 56; bit++) { /* the rest is padding */
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(notice_get(&got, bytes));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* ---- the walk ---- */

struct bytes {
    uint8_t *data;
    size_t n;
    size_t unreadable; /* reads from here on fail; 0: none do */
};

static size_t read_bytes(void *ctx, uint64_t offset, uint8_t *to, size_t n)
{
    const struct bytes *b = ctx;
    if (offset >= b->n || (b->unreadable && offset >= b->unreadable))
        return 0;
    n = n < b->n - offset ? n : b->n - offset;
    memcpy(to, b->data + offset, n);
    return n;
}

enum { RECORDS = 40 };

/* RECORDS records with bodies from nothing to 20,000 bytes, and a notice after each fifth. */
static struct bytes make(uint64_t at[RECORDS + 1])
{
    struct bytes b = {.data = calloc(1, 2 << 20)};
    assert_non_null(b.data);
    segment_head_put(b.data);
    b.n = SEGMENT_HEAD_BYTES;
    for (int i = 0; i < RECORDS; i++) {
        uint32_t body = (uint32_t)(i * 7919 % 20000);
        struct record_head h = head_of(i, body);
        at[i] = b.n;
        size_t head = record_put(&h, b.data + b.n);
        rig_body(i, b.data + b.n + head, (body + 7u) & ~7u);
        b.n += record_bytes(h.info.n_tokens, body);
        if (i % 5 == 0) {
            struct record_notice t = {.segment = (uint32_t)i};
            notice_put(&t, b.data + b.n);
            b.n += NOTICE_BYTES;
        }
    }
    at[RECORDS] = b.n;
    return b;
}

/* Walk b; seen[i] counts record i. Returns where the walk ended. */
static uint64_t walk(struct bytes *b, int seen[RECORDS], int *notices, struct segment_walk *w)
{
    struct segment_item item;
    static struct record_info infos[RECORDS];
    for (int i = 0; i < RECORDS && infos[i].n_tokens == 0; i++)
        infos[i] = rig_info(i);
    memset(seen, 0, RECORDS * sizeof(int));
    *notices = 0;
    segment_walk_init(w, read_bytes, b, SEGMENT_HEAD_BYTES, b->n);
    while (segment_next(w, &item)) {
        *notices += item.is_notice;
        for (int i = 0; !item.is_notice && i < RECORDS; i++)
            seen[i] += memcmp(infos[i].key, item.head.info.key, HASH_BYTES) == 0;
    }
    return w->end;
}

static void a_walk_finds_every_record_and_notice(void **state)
{
    (void)state;
    uint64_t at[RECORDS + 1];
    int seen[RECORDS], notices;
    struct bytes b = make(at);
    struct segment_walk *w = malloc(sizeof(*w));
    assert_int_equal(walk(&b, seen, &notices, w), b.n);
    for (int i = 0; i < RECORDS; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(notices, RECORDS / 5);
    assert_int_equal(w->gaps, 0);
    assert_false(w->failed);
    free(w);
    free(b.data);
}

static void a_damaged_head_costs_its_record_only(void **state)
{
    (void)state;
    uint64_t at[RECORDS + 1];
    int seen[RECORDS], notices;
    struct bytes b = make(at);
    struct segment_walk *w = malloc(sizeof(*w));
    for (int bad = 0; bad < RECORDS - 1; bad++) {
        b.data[at[bad] + 20] ^= 1;
        assert_int_equal(walk(&b, seen, &notices, w), b.n);
        for (int i = 0; i < RECORDS; i++)
            assert_int_equal(seen[i], i != bad);
        assert_int_equal(w->gaps, 1);
        b.data[at[bad] + 20] ^= 1;
    }
    free(w);
    free(b.data);
}

static void a_torn_tail_ends_the_walk_behind_the_last_whole_record(void **state)
{
    (void)state;
    uint64_t at[RECORDS + 1];
    int seen[RECORDS], notices;
    struct bytes b = make(at);
    struct segment_walk *w = malloc(sizeof(*w));
    size_t whole = b.n;
    for (b.n = 0; b.n <= whole; b.n += 61) {
        uint64_t end = walk(&b, seen, &notices, w);
        for (int i = 0; i < RECORDS; i++) {
            uint64_t next = at[i + 1] - (i % 5 == 0 ? NOTICE_BYTES : 0);
            assert_int_equal(seen[i], next <= b.n);
            if (next <= b.n)
                assert_true(end >= next);
        }
        assert_true(end <= b.n || b.n < SEGMENT_HEAD_BYTES);
        assert_int_equal(w->gaps, 0);
    }
    free(w);
    free(b.data);
}

static void a_walk_that_cannot_read_on_says_so(void **state)
{
    (void)state;
    uint64_t at[RECORDS + 1];
    int seen[RECORDS], notices;
    struct bytes b = make(at);
    struct segment_walk *w = malloc(sizeof(*w));
    b.unreadable = at[30];
    assert_true(walk(&b, seen, &notices, w) <= b.n);
    assert_true(w->failed);
    assert_int_equal(seen[20], 1);
    free(w);
    free(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_read_as_it_was_written),
        cmocka_unit_test(every_flipped_bit_of_a_head_is_noticed),
        cmocka_unit_test(impossible_fields_are_refused_even_with_a_right_checksum),
        cmocka_unit_test(every_flipped_bit_of_a_notice_is_noticed),
        cmocka_unit_test(a_walk_finds_every_record_and_notice),
        cmocka_unit_test(a_damaged_head_costs_its_record_only),
        cmocka_unit_test(a_torn_tail_ends_the_walk_behind_the_last_whole_record),
        cmocka_unit_test(a_walk_that_cannot_read_on_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

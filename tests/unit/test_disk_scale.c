/* A million records: what the index takes, and how long it takes to read it again. */
#include "tests/unit/disk_rig.h"
#include "tests/unit/thread_time.h"

#include "stages/kv/disk_index.h"

#include <malloc.h>

#ifdef SANITIZED
enum { MANY = 50000, SECONDS = 60 };
#else
enum { MANY = 1000000, SECONDS = 5 };
#endif
enum { PER_SEGMENT = 100000 };

/* Record i with one token and `body` bytes that are not written: only heads are read here. */
static struct record_head head_of(int i, uint32_t body)
{
    struct record_head h = {.info = {.n_tokens = 1}, .state = RECORD_KEPT, .body_bytes = body};
    uint64_t s = (uint64_t)i;
    for (size_t k = 0; k < HASH_BYTES; k += 8) {
        uint64_t r = rig_random(&s);
        memcpy(h.info.key + k, &r, 8);
    }
    return h;
}

/* Segments with records [0, n), each `apart` bytes long, written as far as they have content. */
static void make_segments(int n, int per_segment, uint64_t apart)
{
    uint8_t bytes[RECORD_HEAD_MAX];
    uint32_t body = (uint32_t)(apart - record_head_bytes(1));
    for (int i = 0, number = 0; i < n; number++) {
        char name[32];
        snprintf(name, sizeof(name), "%08d.seg", number);
        int fd = open(rig_path(name), O_RDWR | O_CREAT, 0600);
        segment_head_put(bytes);
        assert_int_equal(write(fd, bytes, SEGMENT_HEAD_BYTES), SEGMENT_HEAD_BYTES);
        uint64_t at = SEGMENT_HEAD_BYTES;
        for (int end = i + per_segment < n ? i + per_segment : n; i < end; i++, at += apart) {
            struct record_head h = head_of(i, body);
            size_t head = record_put(&h, bytes);
            assert_int_equal(pwrite(fd, bytes, head, (off_t)at), head);
        }
        assert_int_equal(ftruncate(fd, (off_t)at), 0);
        close(fd);
    }
}

static double seconds_to_open(struct disk **d)
{
    double start = thread_seconds();
    *d = rig_open(&(struct disk_options){.read_only = true});
    return thread_seconds() - start;
}

static void a_million_records_take_less_than_200_bytes_of_memory_each(void **state)
{
    (void)state;
    struct disk *d;
    make_segments(MANY, PER_SEGMENT, 192 + 64);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    double seconds = seconds_to_open(&d);
    double each = (double)(mallinfo2().uordblks + mallinfo2().hblkhd - before) / MANY;
    print_message("%d records: %.1f bytes of memory each, read in %.2f s\n", MANY, each,
                  seconds);
    assert_int_equal(rig_stats(d).records, MANY);
    for (int i = 0; i < MANY; i += 997)
        assert_true(disk_has(d, head_of(i, 0).info.key));
    assert_false(disk_has(d, head_of(MANY, 0).info.key));
#ifndef SANITIZED
    assert_true(each < 200);
#endif
    disk_close(d);
}

static void ten_gigabytes_of_pages_are_listed_within_seconds(void **state)
{
    (void)state;
    struct disk *d;
    enum { MIB = 1 << 20, PAGES = 10 << 10 };
    make_segments(PAGES, 256, MIB);
    double cold = seconds_to_open(&d);
    assert_int_equal(rig_stats(d).records, PAGES);
    assert_int_equal(rig_stats(d).segments, PAGES / 256);
    disk_close(d);
    double warm = seconds_to_open(&d);
    print_message("10 GiB of pages of 1 MiB: %.3f s, then %.3f s\n", cold, warm);
    assert_true(warm < SECONDS);
    disk_close(d);
}

static void the_index_finds_what_was_added_and_not_removed(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct disk_index x;
    static bool in[N];
    uint64_t s = 3;
    index_init(&x, 0);
    for (int step = 0; step < 40 * N; step++) {
        int i = (int)(rig_random(&s) % N);
        struct record_head h = head_of(i, 0);
        struct disk_entry *entry = index_find(&x, h.info.key);
        assert_int_equal(entry != NULL, in[i]);
        if (entry) {
            assert_int_equal(entry->offset, i);
            index_remove(&x, entry);
        } else {
            index_add(&x, h.info.key)->offset = (uint64_t)i;
        }
        in[i] = !in[i];
    }
    uint32_t live = 0, listed = 0;
    for (int i = 0; i < N; i++)
        live += in[i];
    for (uint32_t i = 0; i < x.n_made; i++)
        listed += index_at(&x, i) != NULL;
    assert_int_equal(x.live, live);
    assert_int_equal(listed, live);
    assert_true(index_bytes(&x) < 200 * N);
    index_release(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_finds_what_was_added_and_not_removed),
        cmocka_unit_test_setup_teardown(
            a_million_records_take_less_than_200_bytes_of_memory_each, rig_setup_fast,
            rig_teardown),
        cmocka_unit_test_setup_teardown(ten_gigabytes_of_pages_are_listed_within_seconds,
                                        rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

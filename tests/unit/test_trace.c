/* The ring of KV events: what is written comes back, half-written slots are seen, probes are in the program. */
#include "stages/kv/trace_read.h"

#include "stages/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <libgen.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/quire-trace-XXXXXX";
static char path[64];
static const char *program_folder;

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/kv.ring", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static struct kv_ring *ring_of(const char *file, int n)
{
    struct kv_ring *r = NULL;
    struct err e = {0};
    if (kv_ring_open(&r, file, n, &e) != 0)
        fail_msg("%s", e.msg);
    return r;
}

static struct trace_ring read_file(void)
{
    struct buf b;
    struct err e = {0};
    struct trace_ring t = {0};
    buf_init(&b, 1 << 28);
    if (file_read(path, &b, &e) != 0 || trace_read(&t, (const uint8_t *)b.data, b.len, &e) != 0)
        fail_msg("%s", e.msg);
    buf_release(&b);
    return t;
}

static void test_events_come_back_in_order_with_everything_they_said(void **state)
{
    (void)state;
    struct kv_ring *r = ring_of(path, 64);
    kv_trace(r, KV_ALLOC, KV_RAM, 7, 0, 0);
    kv_trace(r, KV_SPILL, KV_DISK, 123456, UINT64_C(0xfedcba9876543210), 987654321);
    kv_trace(r, KV_MISS, KV_RAM, -1, UINT64_MAX, UINT64_MAX);
    kv_trace(r, KV_RECOMPUTE, KV_RAM, 2147483647, 1, 2);
    kv_ring_close(r);
    struct trace_ring t = read_file();
    assert_int_equal(t.n_events, 4);
    assert_int_equal(t.written, 4);
    assert_int_equal(t.unreadable, 0);
    assert_int_equal(t.pid, getpid());
    assert_int_equal(t.events[0].op, KV_ALLOC);
    assert_int_equal(t.events[0].page, 7);
    assert_int_equal(t.events[1].op, KV_SPILL);
    assert_int_equal(t.events[1].tier, KV_DISK);
    assert_int_equal(t.events[1].page, 123456);
    assert_true(t.events[1].key == UINT64_C(0xfedcba9876543210));
    assert_true(t.events[1].bytes == 987654321);
    assert_int_equal(t.events[2].page, -1);
    assert_true(t.events[2].key == UINT64_MAX);
    assert_true(t.events[2].bytes ==
                (UINT64_C(1) << 48) - 1); /* as many as there is room for */
    assert_int_equal(t.events[3].page, 2147483647);
    for (int i = 1; i < 4; i++)
        assert_true(t.events[i].time_us >= t.events[i - 1].time_us);
    trace_ring_release(&t);
}

static void test_every_operation_and_tier_has_a_name_and_comes_back(void **state)
{
    (void)state;
    struct kv_ring *r = ring_of(NULL, 64);
    for (int op = 0; op < KV_OP_COUNT; op++) {
        assert_non_null(kv_op_name((enum kv_op)op));
        kv_trace(r, (enum kv_op)op, (enum kv_tier)(op % KV_TIER_COUNT), op, 0, 0);
    }
    assert_null(kv_op_name(KV_OP_COUNT));
    assert_null(kv_tier_name(KV_TIER_COUNT));
    assert_string_equal(kv_op_name(KV_RECOMPUTE), "recompute");
    assert_string_equal(kv_tier_name(KV_DISK), "disk");
    size_t n;
    struct err e = {0};
    struct trace_ring t = {0};
    const void *bytes = kv_ring_bytes(r, &n);
    assert_int_equal(trace_read(&t, bytes, n, &e), 0);
    assert_int_equal(t.n_events, KV_OP_COUNT);
    for (int op = 0; op < KV_OP_COUNT; op++)
        assert_int_equal(t.events[op].op, op);
    trace_ring_release(&t);
    kv_ring_close(r);
}

static void test_the_ring_keeps_the_last_events_of_a_power_of_two(void **state)
{
    (void)state;
    struct kv_ring *r = ring_of(path, 100);
    for (int i = 0; i < 1000; i++)
        kv_trace(r, KV_REF, KV_RAM, i, 0, 0);
    kv_ring_close(r);
    struct trace_ring t = read_file();
    assert_int_equal(t.slots, 128);
    assert_int_equal(t.written, 1000);
    assert_int_equal(t.n_events, 128);
    for (int i = 0; i < 128; i++) {
        assert_int_equal(t.events[i].page, 1000 - 128 + i);
        assert_int_equal(t.events[i].number, 1000 - 128 + i);
    }
    trace_ring_release(&t);
}

static void test_without_a_ring_only_the_probe_fires(void **state)
{
    (void)state;
    kv_trace(NULL, KV_HIT, KV_RAM, 1, 2, 3);
    kv_ring_close(NULL);
}

static void test_a_killed_process_leaves_its_last_events(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct kv_ring *r = NULL;
        struct err e = {0};
        if (kv_ring_open(&r, path, 256, &e) != 0)
            _exit(1);
        for (int i = 0; i < 300; i++)
            kv_trace(r, KV_LOAD, KV_DISK, i, 0, 4096);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    struct trace_ring t = read_file();
    assert_int_equal(t.pid, child);
    assert_int_equal(t.n_events, 256);
    assert_int_equal(t.events[255].page, 299);
    trace_ring_release(&t);
}

/* ---- many writers ---- */

enum { WRITERS = 4, EVENTS = 30000, SLOTS = 1024 };

static atomic_int writers_at_work;

/* Key, bytes and page of an event are made from one number, so that a mixture of two is seen. */
static uint64_t key_of(int page)
{
    return (uint64_t)page * UINT64_C(0x9e3779b97f4a7c15);
}

static void *write_events(void *ring)
{
    static atomic_int count;
    int id = atomic_fetch_add(&count, 1) % WRITERS;
    for (int i = 0; i < EVENTS; i++) {
        int page = id * EVENTS + i;
        kv_trace(ring, KV_HIT, KV_RAM, page, key_of(page), key_of(page) >> 17);
    }
    atomic_fetch_sub(&writers_at_work, 1);
    return NULL;
}

static void check_events(const struct trace_ring *t)
{
    for (size_t i = 0; i < t->n_events; i++) {
        const struct trace_event *v = &t->events[i];
        assert_true(v->page >= 0 && v->page < WRITERS * EVENTS);
        assert_true(v->key == key_of(v->page) && v->bytes == key_of(v->page) >> 17);
        assert_true(v->op == KV_HIT && v->tier == KV_RAM);
        assert_true(i == 0 || v->number > v[-1].number);
    }
}

static void test_threads_write_side_by_side_and_a_reader_never_sees_a_mixture(void **state)
{
    (void)state;
    pthread_t threads[WRITERS];
    struct kv_ring *r = ring_of(path, SLOTS);
    atomic_store(&writers_at_work, WRITERS);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_events, r), 0);
    while (atomic_load(&writers_at_work) > 0) {
        struct trace_ring t = read_file();
        check_events(&t);
        trace_ring_release(&t);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    kv_ring_close(r);
    struct trace_ring t = read_file();
    check_events(&t);
    assert_int_equal(t.written, WRITERS * EVENTS);
    assert_int_equal(t.n_events + t.unreadable, SLOTS);
    /* A writer that slept while the others went around leaves one bad slot at most: the next round heals it. */
    assert_in_range(t.unreadable, 0, WRITERS);
    trace_ring_release(&t);
}

/* ---- damage ---- */

static uint8_t *filled_ring(size_t *n)
{
    struct kv_ring *r = ring_of(NULL, 8);
    for (int i = 0; i < 13; i++)
        kv_trace(r, KV_EVICT, KV_DISK, i, key_of(i), 77);
    uint8_t *copy = malloc(TRACE_HEADER_BYTES + 8 * TRACE_SLOT_BYTES);
    const void *bytes = kv_ring_bytes(r, n);
    assert_int_equal(*n, TRACE_HEADER_BYTES + 8 * TRACE_SLOT_BYTES);
    memcpy(copy, bytes, *n);
    kv_ring_close(r);
    return copy;
}

static void test_any_flipped_bit_of_a_slot_costs_that_event_alone(void **state)
{
    (void)state;
    size_t n;
    uint8_t *bytes = filled_ring(&n);
    for (size_t bit = TRACE_HEADER_BYTES * 8; bit < n * 8; bit++) {
        struct trace_ring t = {0};
        struct err e = {0};
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(trace_read(&t, bytes, n, &e), 0);
        assert_int_equal(t.n_events, 7);
        assert_int_equal(t.unreadable, 1);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        trace_ring_release(&t);
    }
    free(bytes);
}

static void test_what_is_no_ring_is_refused_with_a_reason(void **state)
{
    (void)state;
    size_t n;
    uint8_t *bytes = filled_ring(&n);
    struct trace_ring t = {0};
    for (size_t cut = 0; cut < n; cut++) {
        struct err e = {0};
        assert_int_equal(trace_read(&t, bytes, cut, &e), -ERR_FORMAT);
    }
    static const struct {
        size_t at;
        uint8_t value;
        const char *why;
    } bad[] = {{0, 'Q', "not a ring"},   {8, 2, "version 2"},           {12, 41, "impossible"},
               {16, 7, "impossible"},    {16, 0, "impossible"},         {20, 1, "impossible"},
               {16, 16, "expected 704"}, {23, 0x80, "impossible sizes"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};
        uint8_t was = bytes[bad[i].at];
        bytes[bad[i].at] = bad[i].value;
        assert_int_equal(trace_read(&t, bytes, n, &e), -ERR_FORMAT);
        assert_non_null(strstr(e.msg, bad[i].why));
        bytes[bad[i].at] = was;
    }
    assert_null(t.events);
    free(bytes);
}

static void test_a_count_of_events_that_is_a_lie_makes_them_unreadable(void **state)
{
    (void)state;
    size_t n;
    uint8_t *bytes = filled_ring(&n);
    for (int top = 0; top < 2; top++) {
        struct trace_ring t = {0};
        struct err e = {0};
        memset(bytes + 24, top ? 0xff : 0x11, 8);
        assert_int_equal(trace_read(&t, bytes, n, &e), 0);
        assert_int_equal(t.n_events, 0);
        assert_int_equal(t.unreadable, 8);
        trace_ring_release(&t);
    }
    free(bytes);
}

/* ---- files ---- */

static void test_a_ring_that_is_replaced_stays_usable_for_its_owner(void **state)
{
    (void)state;
    struct kv_ring *old = ring_of(path, 4096); /* many pages of memory, all of them written */
    kv_trace(old, KV_ALLOC, KV_RAM, 1, 0, 0);
    struct kv_ring *new = ring_of(path, 2);
    for (int i = 0; i < 5000; i++)
        kv_trace(old, KV_ALLOC, KV_RAM, 2, 0, 0);
    struct trace_ring t = read_file();
    assert_int_equal(t.slots, 2);
    assert_int_equal(t.n_events, 0);
    trace_ring_release(&t);
    kv_ring_close(new);
    kv_ring_close(old);
}

/* A map of the file would end the process here. */
static void test_a_file_that_is_cut_under_the_ring_costs_the_trace_alone(void **state)
{
    (void)state;
    struct kv_ring *r = ring_of(path, 4096);
    kv_trace(r, KV_ALLOC, KV_RAM, 1, 0, 0);
    assert_int_equal(truncate(path, 0), 0);
    for (int i = 0; i < 5000; i++)
        kv_trace(r, KV_ALLOC, KV_RAM, 2, 0, 0);
    size_t n;
    struct err e = {0};
    struct trace_ring t = {0};
    const void *bytes = kv_ring_bytes(r, &n);
    assert_int_equal(trace_read(&t, bytes, n, &e), 0);
    assert_int_equal(t.written, 5001);
    trace_ring_release(&t);
    kv_ring_close(r);
}

static void test_a_file_that_cannot_be_made_is_an_error_with_its_name(void **state)
{
    (void)state;
    struct kv_ring *r = NULL;
    struct err e = {0}, none = {0}, many = {0};
    assert_int_equal(kv_ring_open(&r, "/nonexistent-folder/kv.ring", 64, &e), -ERR_IO);
    assert_int_equal(e.reach, REACH_DOC);
    assert_non_null(strstr(e.msg, "/nonexistent-folder/kv.ring"));
    assert_int_equal(kv_ring_open(&r, path, 0, &none), -ERR_LIMIT);
    assert_int_equal(kv_ring_open(&r, path, 1 << 25, &many), -ERR_LIMIT);
    assert_null(r);
}

static void test_a_full_disk_is_an_error_at_once_and_leaves_no_file(void **state)
{
    (void)state;
    struct rlimit was, small;
    struct kv_ring *r = NULL;
    struct err e = {0};
    struct stat st;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = (struct rlimit){4096, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = kv_ring_open(&r, path, 1 << 16, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(rc, -ERR_IO);
    assert_non_null(strstr(e.msg, "allocate"));
    assert_int_not_equal(stat(path, &st), 0);
}

/* ---- probes ---- */

static void test_every_operation_is_a_probe_of_the_program(void **state)
{
    (void)state;
    if (system("readelf --version >/dev/null 2>&1") != 0) {
        print_message("skipped: no readelf (apt install binutils)\n");
        skip();
    }
    char command[4200], line[512];
    bool found[KV_OP_COUNT] = {false}, ours = false;
    snprintf(command, sizeof(command), "readelf -nW '%s/../../quire'", program_folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        char name[64];
        if (strstr(line, "Provider:"))
            ours = strstr(line, "Provider: quire") != NULL;
        if (ours && sscanf(line, " Name: kv_%63s", name) == 1)
            for (int op = 0; op < KV_OP_COUNT; op++)
                found[op] |= strcmp(name, kv_op_name((enum kv_op)op)) == 0;
    }
    pclose(f);
    for (int op = 0; op < KV_OP_COUNT; op++)
        if (!found[op])
            fail_msg("quire:kv_%s is not in the program", kv_op_name((enum kv_op)op));
}

int main(int argc, char **argv)
{
    (void)argc;
    program_folder = dirname(argv[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_come_back_in_order_with_everything_they_said),
        cmocka_unit_test(test_every_operation_and_tier_has_a_name_and_comes_back),
        cmocka_unit_test(test_the_ring_keeps_the_last_events_of_a_power_of_two),
        cmocka_unit_test(test_without_a_ring_only_the_probe_fires),
        cmocka_unit_test(test_a_killed_process_leaves_its_last_events),
        cmocka_unit_test(test_threads_write_side_by_side_and_a_reader_never_sees_a_mixture),
        cmocka_unit_test(test_any_flipped_bit_of_a_slot_costs_that_event_alone),
        cmocka_unit_test(test_what_is_no_ring_is_refused_with_a_reason),
        cmocka_unit_test(test_a_count_of_events_that_is_a_lie_makes_them_unreadable),
        cmocka_unit_test(test_a_ring_that_is_replaced_stays_usable_for_its_owner),
        cmocka_unit_test(test_a_file_that_is_cut_under_the_ring_costs_the_trace_alone),
        cmocka_unit_test(test_a_file_that_cannot_be_made_is_an_error_with_its_name),
        cmocka_unit_test(test_a_full_disk_is_an_error_at_once_and_leaves_no_file),
        cmocka_unit_test(test_every_operation_is_a_probe_of_the_program),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

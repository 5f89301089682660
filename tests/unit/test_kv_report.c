/* The counters of the KV store in run.json and in the log. */
#include "pipeline/kv_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

static const struct page_stats pages = {.total = 512, .peak_used = 480, .evictions = 12};

static void fill(struct kv_counters *c)
{
    c->lookup_tokens = 10000;
    c->hit_tokens[KV_RAM] = 6000;
    c->hit_tokens[KV_DISK] = 3000;
    c->pages_allocated = 160;
    c->pages_evicted[KV_RAM] = 12;
    c->pages_evicted[KV_DISK] = 4;
    c->pages_recomputed = 3;
    c->pages_spilled = 100;
    c->pages_loaded = 50;
    c->pages_corrupt = 1;
    c->bytes_raw = 117 << 20;
    c->bytes_stored = 100 << 20;
    c->bytes_loaded = 60 << 20;
    c->spill_us = 250000;
    c->load_us = 50000;
    c->positions_allocated = 12800;
    c->positions_unused = 640;
}

static json_int_t count(const json_t *o, const char *key)
{
    assert_true(json_is_integer(json_object_get(o, key)));
    return json_integer_value(json_object_get(o, key));
}

static double real(const json_t *o, const char *key)
{
    assert_true(json_is_real(json_object_get(o, key)));
    return json_real_value(json_object_get(o, key));
}

static void test_the_json_object_has_every_counter_and_what_follows_from_it(void **state)
{
    (void)state;
    struct kv_counters c = {0};
    fill(&c);
    struct stability stability = {.lookups = {4, 4, 0}, .repeats = {4, 1, 0}};
    struct disk_stats disk = {.records = 90,
                              .bytes = 1 << 20,
                              .blocks = 1 << 21,
                              .segments = 2,
                              .full = 5,
                              .writing = true};
    json_t *o = kv_report_json(&pages, &c, &stability, &disk);
    assert_true(real(json_object_get(o, "stability"), "shared") == 1.0);
    assert_true(real(json_object_get(o, "stability"), "document") == 0.25);
    assert_true(json_is_null(json_object_get(json_object_get(o, "stability"), "own")));
    assert_int_equal(count(o, "pages"), 512);
    assert_int_equal(count(o, "peak_used"), 480);
    assert_int_equal(count(o, "evictions"), 12);
    assert_int_equal(count(o, "lookup_tokens"), 10000);
    assert_int_equal(count(json_object_get(o, "hit_tokens"), "ram"), 6000);
    assert_int_equal(count(json_object_get(o, "hit_tokens"), "disk"), 3000);
    assert_int_equal(count(o, "computed_tokens"), 1000);
    assert_true(real(o, "hit_ratio") == 0.9);
    assert_int_equal(count(o, "pages_allocated"), 160);
    assert_int_equal(count(json_object_get(o, "pages_evicted"), "ram"), 12);
    assert_int_equal(count(json_object_get(o, "pages_evicted"), "disk"), 4);
    assert_int_equal(count(o, "pages_recomputed"), 3);
    assert_int_equal(count(o, "pages_corrupt"), 1);
    assert_int_equal(count(o, "pages_spilled"), 100);
    assert_int_equal(count(o, "pages_loaded"), 50);
    assert_int_equal(count(o, "bytes_raw"), 117 << 20);
    assert_int_equal(count(o, "bytes_stored"), 100 << 20);
    assert_true(real(o, "compression_ratio") == 1.17);
    assert_true(real(o, "spill_seconds") == 0.25);
    assert_true(real(o, "spill_bytes_per_second") == (117 << 20) * 4.0);
    assert_true(real(o, "load_seconds") == 0.05);
    assert_true(real(o, "load_bytes_per_second") == (60 << 20) / 0.05);
    assert_true(real(o, "unused_ratio") == 0.05);
    const json_t *d = json_object_get(o, "disk");
    assert_int_equal(count(d, "records"), 90);
    assert_int_equal(count(d, "bytes"), 1 << 20);
    assert_int_equal(count(d, "blocks"), 1 << 21);
    assert_int_equal(count(d, "segments"), 2);
    assert_int_equal(count(d, "no_room"), 5);
    assert_true(json_is_true(json_object_get(d, "writing")));
    json_decref(o);
}

static void test_a_quotient_of_nothing_is_null(void **state)
{
    (void)state;
    struct kv_counters c = {0};
    struct stability none = {0};
    json_t *o = kv_report_json(&pages, &c, &none, NULL);
    assert_true(json_is_null(json_object_get(o, "disk")));
    static const char *const quotients[] = {"hit_ratio", "compression_ratio",
                                            "spill_bytes_per_second", "load_bytes_per_second",
                                            "unused_ratio"};
    for (size_t i = 0; i < ARRAY_LEN(quotients); i++)
        assert_true(json_is_null(json_object_get(o, quotients[i])));
    json_decref(o);
}

static void expect_line(const struct kv_counters *c, const char *expected)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 4096);
    assert_int_equal(kv_report_line(c, &b, &e), 0);
    assert_string_equal(b.data, expected);
    buf_release(&b);
}

static void test_the_line_says_where_the_tokens_came_from_and_what_moved(void **state)
{
    (void)state;
    struct kv_counters c = {0};
    fill(&c);
    expect_line(
        &c,
        "10000 prompt tokens: 60.0 % from memory, 30.0 % from disk, 10.0 % computed; "
        "160 pages allocated, 5.0 % of their positions unused; "
        "100 pages spilled (100.0 MiB, 1.17 : 1, 491 MB/s); 50 loaded (60.0 MiB, 1258 MB/s); "
        "evicted 12 from memory, 4 from disk; 3 pages computed again; corrupt records: 1");
}

static void test_the_line_leaves_out_what_did_not_happen(void **state)
{
    (void)state;
    struct kv_counters c = {0};
    expect_line(&c, "0 prompt tokens: 0.0 % from memory, 0.0 % computed; 0 pages allocated");
    c.lookup_tokens = 400;
    c.hit_tokens[KV_RAM] = 100;
    c.pages_allocated = 7;
    expect_line(&c,
                "400 prompt tokens: 25.0 % from memory, 75.0 % computed; 7 pages allocated");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_json_object_has_every_counter_and_what_follows_from_it),
        cmocka_unit_test(test_a_quotient_of_nothing_is_null),
        cmocka_unit_test(test_the_line_says_where_the_tokens_came_from_and_what_moved),
        cmocka_unit_test(test_the_line_leaves_out_what_did_not_happen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

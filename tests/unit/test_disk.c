/* The folder of KV pages: what is written is read, by anybody, and within the limit. */
#include "tests/unit/disk_rig.h"

static void what_is_written_is_read_at_once_and_after_reopening(void **state)
{
    (void)state;
    struct disk *d = rig_open(NULL);
    for (int i = 0; i < 50; i++)
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    assert_int_equal(rig_write(d, 7, RIG_BODY, false), 1);
    assert_int_equal(rig_read(d, 50, RIG_BODY), 0);
    assert_int_equal(rig_stats(d).records, 50);
    assert_int_equal(rig_stats(d).already_there, 1);
    disk_sync(d);
    disk_close(d);
    d = rig_open(NULL);
    struct record_info info = rig_info(50);
    assert_false(disk_has(d, info.key));
    for (int i = 0; i < 50; i++) {
        info = rig_info(i);
        assert_true(disk_has(d, info.key));
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    }
    assert_int_equal(rig_stats(d).corrupt, 0);
    disk_close(d);
    disk_close(NULL);
}

static void other_token_ids_under_the_same_key_are_a_miss(void **state)
{
    (void)state;
    struct disk *d = rig_open(NULL);
    struct record_info info = rig_info(1), got;
    static uint8_t body[RIG_BODY];
    struct err e = {0};
    size_t n;
    assert_int_equal(rig_write(d, 1, RIG_BODY, false), 0);
    info.tokens[63]++;
    assert_int_equal(disk_read(d, info.key, info.tokens, 64, &got, body, sizeof(body), &n, &e),
                     0);
    info.tokens[63]--;
    assert_int_equal(disk_read(d, info.key, info.tokens, 63, &got, body, sizeof(body), &n, &e),
                     0);
    assert_int_equal(disk_read(d, info.key, NULL, 0, &got, body, sizeof(body), &n, &e), 1);
    assert_int_equal(rig_read(d, 1, RIG_BODY), 1);
    disk_close(d);
}

static void the_limit_holds_at_every_write(void **state)
{
    (void)state;
    enum { LIMIT = 8 << 20 };
    struct disk *d = rig_open(&(struct disk_options){.limit = LIMIT});
    int kept = 0;
    for (int i = 0; i < 500; i++) {
        assert_int_equal(rig_write(d, i, RIG_BODY, false), 0);
        assert_true(rig_blocks() <= LIMIT);
        assert_int_equal(rig_read(d, i, RIG_BODY), 1);
    }
    for (int i = 0; i < 500; i++)
        kept += rig_read(d, i, RIG_BODY) == 1;
    assert_true(kept > 80); /* of 7.5 MiB, by records of about 52 KiB */
    assert_int_equal(rig_stats(d).records, kept);
    assert_int_equal(rig_stats(d).evicted, 500 - kept);
    assert_int_equal(rig_stats(d).corrupt, 0);
    disk_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read_at_once_and_after_reopening,
                                        rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(other_token_ids_under_the_same_key_are_a_miss,
                                        rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(the_limit_holds_at_every_write, rig_setup,
                                        rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

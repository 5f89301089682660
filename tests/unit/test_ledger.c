/* The ledger alone: what one run tells it the next one finds, whatever happens to the process or the file between. */
#include "stages/base/log.h"
#include "stages/ledger/ledger.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], file[128];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/quire-ledger-XXXXXX");
    log_set_level(LOG_ERROR);
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof(file), "%s/.ledger/ledger.sqlite", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

/* ---- helpers ---- */

static void settings(struct ledger_settings *s, const char *system_text, const char *limit)
{
    *s = (struct ledger_settings){0};
    ledger_settings_add(s, "model.digest", "aa", false);
    ledger_settings_add(s, "prompt.system", system_text, false);
    ledger_settings_add(s, "ingest.max_document", limit, true);
}

static struct ledger *open_ledger(int want_fresh)
{
    struct err e = {0};
    struct ledger *l = NULL;
    int rc = ledger_open(&l, folder, &e);
    if (rc < 0)
        fail_msg("%s", e.msg);
    if (want_fresh >= 0)
        assert_int_equal(rc, want_fresh);
    return l;
}

static int compare(struct ledger *l, const char *system_text, const char *limit,
                   struct buf *out)
{
    struct err e = {0};
    struct ledger_settings s;
    settings(&s, system_text, limit);
    int rc = ledger_compare(l, &s, out, &e);
    ledger_settings_release(&s);
    if (rc < 0)
        fail_msg("%s", e.msg);
    return rc;
}

/* A run of the job: opened, compared, started. */
static struct ledger *begin(int want_fresh)
{
    struct err e = {0};
    struct buf none;
    buf_init(&none, 4096);
    struct ledger *l = open_ledger(want_fresh);
    assert_int_equal(compare(l, "be brief", "16MiB", &none), 0);
    buf_release(&none);
    assert_int_equal(ledger_start(l, &e), 0);
    return l;
}

static struct ledger_stat stat_of(const char *path, uint64_t size)
{
    return (struct ledger_stat){
        .path = path, .size = size, .inode = 7, .mtime_ns = 99, .how = {1}};
}

static struct ledger_doc doc_of(int64_t source, int i)
{
    struct ledger_doc d = {
        .source = source, .occurrence = i, .ordinal = i, .status = i % 5 == 4 ? 2 : 0};
    snprintf(d.id, sizeof(d.id), "%032x", i);
    if (d.status == 2) {
        snprintf(d.code, sizeof(d.code), "limit");
        snprintf(d.message, sizeof(d.message), "too long");
    }
    return d;
}

static void done(struct ledger *l, int64_t source, int i)
{
    struct err e = {0};
    char line[64];
    struct ledger_doc d = doc_of(source, i);
    snprintf(line, sizeof(line), "{\"number\":%d}", i);
    assert_int_equal(ledger_done(l, &d, line, strlen(line), &e), 0);
}

static int64_t find_row(struct ledger *l, int i)
{
    struct err e = {0};
    struct ledger_doc d = doc_of(0, i);
    int64_t row;
    assert_int_equal(ledger_find(l, d.id, &row, &e), 0);
    return row;
}

static struct ledger_source look_up(struct ledger *l, const struct ledger_stat *st)
{
    struct err e = {0};
    struct ledger_source s;
    assert_int_equal(ledger_source(l, st, &s, &e), 0);
    return s;
}

/* One run that reads a file of n documents and finishes the first `finished` of them. */
static void first_run(int n, int finished)
{
    struct ledger *l = begin(1);
    struct ledger_stat st = stat_of("/in/a.zip", 1000);
    struct ledger_source s = look_up(l, &st);
    assert_false(s.whole);
    ledger_reading(l, s.id, &st);
    for (int i = 0; i < finished; i++)
        done(l, s.id, i);
    ledger_read(l, s.id, n);
    ledger_source_release(&s);
    ledger_close(l);
}

static void key_of(int i, uint8_t key[HASH_BYTES])
{
    hash_bytes(&i, sizeof(i), key);
}

/* ---- documents and sources ---- */

static void what_one_run_finished_the_next_one_finds(void **state)
{
    (void)state;
    struct err e = {0};
    first_run(10, 10);
    struct ledger *l = begin(0);
    assert_int_equal(ledger_run(l), 2);
    struct ledger_stat st = stat_of("/in/a.zip", 1000);
    struct ledger_source s = look_up(l, &st);
    assert_true(s.whole);
    assert_int_equal(s.n, 10);
    struct ledger_doc d;
    struct buf line;
    buf_init(&line, 4096);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ledger_get(l, s.rows[i], &d, &line, &e), 0);
        assert_int_equal(d.ordinal, i);
        char want[64];
        snprintf(want, sizeof(want), "{\"number\":%d}", i);
        assert_string_equal(line.data, want);
        if (i == 4)
            assert_string_equal(d.code, "limit");
    }
    buf_release(&line);
    ledger_source_release(&s);
    ledger_close(l);
}

static void a_source_with_a_document_missing_is_not_whole(void **state)
{
    (void)state;
    first_run(10, 7);
    struct ledger *l = begin(0);
    struct ledger_stat st = stat_of("/in/a.zip", 1000);
    struct ledger_source s = look_up(l, &st);
    assert_false(s.whole);
    assert_int_equal(s.n, 7);
    ledger_source_release(&s);
    ledger_close(l);
}

static void a_file_that_changed_is_read_again_and_its_documents_found_by_id(void **state)
{
    (void)state;
    first_run(10, 10);
    struct ledger *l = begin(0);
    struct ledger_stat changes[5] = {stat_of("/in/a.zip", 1001), stat_of("/in/a.zip", 1000),
                                     stat_of("/in/a.zip", 1000), stat_of("/in/b.zip", 1000),
                                     stat_of("/in/a.zip", 1000)};
    changes[1].mtime_ns++;
    changes[2].inode++;
    changes[4].how[0] = 2; /* others of its entries are wanted now */
    for (int i = 0; i < 5; i++) {
        struct ledger_source s = look_up(l, &changes[i]);
        assert_false(s.whole);
        assert_int_equal(s.n, 0);
        ledger_source_release(&s);
    }
    assert_true(find_row(l, 3) > 0);
    assert_int_equal(find_row(l, 77), 0);
    ledger_close(l);
}

static void a_kept_document_moves_and_what_is_gone_is_forgotten_at_the_end(void **state)
{
    (void)state;
    struct err e = {0};
    first_run(4, 4);
    struct ledger *l = begin(0);
    struct ledger_stat st = stat_of("/in/new.zip", 5);
    struct ledger_source s = look_up(l, &st);
    ledger_reading(l, s.id, &st);
    struct ledger_doc d = doc_of(s.id, 2);
    d.row = find_row(l, 2);
    d.occurrence = 0;
    d.ordinal = 0;
    assert_int_equal(ledger_done(l, &d, NULL, 0, &e), 0);
    ledger_read(l, s.id, 1);
    ledger_source_release(&s);
    assert_int_equal(ledger_finish(l, &e), 0);
    assert_int_equal(find_row(l, 1), 0);
    ledger_close(l);
    l = begin(0);
    s = look_up(l, &st);
    assert_true(s.whole);
    ledger_source_release(&s);
    ledger_close(l);
}

static void a_place_of_an_older_state_of_the_file_is_not_offered(void **state)
{
    (void)state;
    first_run(3, 3);
    struct ledger_stat st = stat_of("/in/a.zip", 2000);
    struct ledger *l = begin(0);
    struct ledger_source s = look_up(l, &st);
    ledger_reading(
        l, s.id,
        &st); /* changed; and the run is stopped before any document of it is finished */
    ledger_source_release(&s);
    ledger_close(l);
    l = begin(0);
    s = look_up(l, &st);
    assert_int_equal(s.n, 0);
    ledger_source_release(&s);
    ledger_close(l);
}

static void failed_documents_are_done_again_when_asked_for(void **state)
{
    (void)state;
    struct err e = {0};
    first_run(10, 10);
    struct ledger *l = open_ledger(0);
    assert_int_equal(ledger_retry_failed(l, &e), 2);
    assert_int_equal(ledger_retry_failed(l, &e), 0);
    ledger_close(l);
    l = begin(0);
    struct ledger_stat st = stat_of("/in/a.zip", 1000);
    struct ledger_source s = look_up(l, &st);
    assert_false(s.whole);
    assert_int_equal(s.n, 4); /* up to the first that failed */
    assert_int_equal(find_row(l, 4), 0);
    ledger_reading(l, s.id, &st);
    for (int i = 0; i < 10; i++) {
        struct ledger_doc d = doc_of(s.id, i);
        d.row = find_row(l, i);
        d.status = 0;
        assert_int_equal(ledger_done(l, &d, "{}", 2, &e), 0);
    }
    ledger_read(l, s.id, 10);
    ledger_source_release(&s);
    assert_int_equal(ledger_finish(l, &e), 0);
    assert_true(find_row(l, 4) > 0);
    s = look_up(l, &st);
    assert_true(s.whole);
    ledger_source_release(&s);
    ledger_close(l);
}

static void records_of_the_results_are_adopted_once(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf none;
    buf_init(&none, 64);
    struct ledger *l = open_ledger(1);
    assert_int_equal(compare(l, "be brief", "16MiB", &none), 0);
    struct ledger_doc d = doc_of(0, 1);
    d.occurrence = -1;
    assert_int_equal(ledger_adopt(l, &d, "{\"a\":1}", 7, &e), 0);
    assert_int_equal(ledger_adopt(l, &d, "{\"a\":1}", 7, &e), 1);
    assert_int_equal(ledger_start(l, &e), 0);
    assert_true(find_row(l, 1) > 0);
    ledger_close(l);
}

/* ---- generations ---- */

static void a_changed_setting_is_named_with_both_values(void **state)
{
    (void)state;
    first_run(2, 2);
    struct ledger *l = open_ledger(0);
    struct buf out;
    buf_init(&out, 4096);
    assert_int_equal(compare(l, "be long\nand wide", "16MiB", &out), 1);
    assert_string_equal(out.data, "  prompt.system: \"be brief\" -> \"be long\\nand wide\"\n");
    buf_clear(&out);
    assert_int_equal(compare(l, "be brief", "16MiB", &out), 0);
    assert_int_equal(out.len, 0);
    buf_release(&out);
    ledger_close(l);
}

static void a_changed_limit_of_reading_tries_the_failed_ones_again(void **state)
{
    (void)state;
    first_run(10, 10);
    struct ledger *l = open_ledger(0);
    struct buf out;
    buf_init(&out, 4096);
    assert_int_equal(compare(l, "be brief", "32MiB", &out), 0);
    assert_int_equal(find_row(l, 4), 0);
    assert_true(find_row(l, 3) > 0);
    buf_release(&out);
    ledger_close(l);
}

static void a_restart_forgets_everything(void **state)
{
    (void)state;
    struct err e = {0};
    first_run(5, 5);
    struct ledger *l = open_ledger(0);
    struct ledger_settings s;
    settings(&s, "other", "16MiB");
    assert_int_equal(ledger_restart(l, &s, &e), 0);
    ledger_settings_release(&s);
    assert_int_equal(find_row(l, 1), 0);
    ledger_close(l);
    struct ledger_look look;
    assert_int_equal(ledger_look(folder, &look, &e), 0);
    assert_int_equal(look.generation, 2);
    assert_int_equal(look.runs, 0);
}

/* ---- answers and flights ---- */

static void answers_and_tokens_of_a_stopped_run_are_found(void **state)
{
    (void)state;
    uint8_t key[3][HASH_BYTES];
    for (int i = 0; i < 3; i++)
        key_of(i, key[i]);
    char text[] = "an answer";
    struct ledger_answer a = {.text = text,
                              .len = 9,
                              .n_tokens = 3,
                              .stopped_by = 1,
                              .flags = 2},
                         got;
    struct ledger *l = begin(1);
    struct ledger_flight *f[3];
    for (int i = 0; i < 3; i++) {
        f[i] = ledger_flight(l, key[i], "d", NULL, 0);
        assert_non_null(f[i]);
        for (int t = 0; t < 100 * (i + 1); t++)
            ledger_token(l, f[i], t);
    }
    assert_null(ledger_flight(l, key[0], "d", NULL, 0));
    ledger_land(l, f[0], LEDGER_ANSWERED, &a);
    ledger_land(l, f[1], LEDGER_STOPPED, NULL);
    ledger_land(l, f[2], LEDGER_FAILED, NULL);
    ledger_close(l);
    l = begin(0);
    int n = 0;
    assert_false(ledger_take_answer(l, key[1], &got));
    assert_true(ledger_take_answer(l, key[0], &got));
    assert_false(ledger_take_answer(l, key[0], &a));
    assert_string_equal(got.text, "an answer");
    assert_int_equal(got.n_tokens, 3);
    assert_int_equal(got.stopped_by, 1);
    assert_int_equal(got.flags, 2);
    free(got.text);
    int32_t *tokens = ledger_tokens(l, key[1], &n);
    assert_int_equal(n, 200);
    assert_int_equal(tokens[199], 199);
    assert_null(ledger_tokens(l, key[2], &n));
    struct ledger_flight *again = ledger_flight(l, key[1], "d", tokens, 200);
    ledger_token(l, again, 4711);
    free(tokens);
    ledger_land(l, again, LEDGER_STOPPED, NULL);
    ledger_close(l);
    l = begin(0);
    tokens = ledger_tokens(l, key[1], &n);
    assert_int_equal(n, 201);
    assert_int_equal(tokens[200], 4711);
    free(tokens);
    ledger_close(l);
}

static void the_answers_of_a_finished_document_are_forgotten(void **state)
{
    (void)state;
    uint8_t key[HASH_BYTES];
    key_of(1, key);
    char text[] = "x";
    struct ledger_answer a = {.text = text, .len = 1}, got;
    struct ledger *l = begin(1);
    struct ledger_doc d = doc_of(1, 1);
    ledger_land(l, ledger_flight(l, key, d.id, NULL, 0), LEDGER_ANSWERED, &a);
    done(l, 1, 1);
    ledger_close(l);
    l = begin(0);
    assert_false(ledger_take_answer(l, key, &got));
    ledger_close(l);
}

/* ---- accidents ---- */

static void what_was_synced_survives_a_kill(void **state)
{
    (void)state;
    uint8_t key[HASH_BYTES];
    key_of(5, key);
    pid_t child = fork();
    if (child == 0) {
        struct err e = {0};
        struct ledger *l = begin(1);
        struct ledger_flight *f = ledger_flight(l, key, "d", NULL, 0);
        for (int i = 0; i < 50; i++) {
            done(l, 3, i);
            ledger_token(l, f, i);
        }
        int rc = ledger_sync(l, &e);
        kill(getpid(), rc ? SIGTERM : SIGKILL);
    }
    int status, n = 0;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct ledger *l = begin(0);
    for (int i = 0; i < 50; i++)
        assert_true(i % 5 == 4 || find_row(l, i) > 0);
    free(ledger_tokens(l, key, &n));
    assert_int_equal(n, 50);
    ledger_close(l);
}

static void put_bytes(long at, const void *data, size_t n)
{
    FILE *f = fopen(file, "r+");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void a_damaged_ledger_is_set_aside_and_never_fatal(void **state)
{
    (void)state;
    char damaged[160];
    struct stat st;
    snprintf(damaged, sizeof(damaged), "%s.damaged", file);
    unsigned seed = 12345;
    first_run(60, 60);
    assert_int_equal(stat(file, &st), 0);
    char *good = malloc((size_t)st.st_size);
    FILE *in = fopen(file, "r");
    assert_int_equal(fread(good, 1, (size_t)st.st_size, in), st.st_size);
    fclose(in);
    for (int round = 0; round < 60; round++) {
        put_bytes(0, good, (size_t)st.st_size);
        for (int i = 0; i < 1 + round % 20; i++) {
            unsigned char junk[16];
            for (size_t k = 0; k < sizeof(junk); k++)
                junk[k] = (unsigned char)rand_r(&seed);
            long at =
                round == 0
                    ? 0
                    : (long)((unsigned long)rand_r(&seed) % (unsigned long)(st.st_size - 16));
            put_bytes(at, junk, sizeof(junk));
        }
        struct ledger *l = open_ledger(-1);
        ledger_close(l);
        if (round == 0)
            assert_int_equal(access(damaged, F_OK), 0);
    }
    free(good);
}

static void a_file_that_is_no_ledger_is_set_aside(void **state)
{
    (void)state;
    first_run(1, 1);
    FILE *f = fopen(file, "w");
    fputs("this is a text, and not short enough to be taken for nothing at all by anyone who "
          "looks",
          f);
    fclose(f);
    struct ledger *l = begin(1);
    assert_int_equal(find_row(l, 0), 0);
    ledger_close(l);
    /* cut to nothing it is a new one */
    assert_int_equal(truncate(file, 0), 0);
    ledger_close(begin(1));
    /* another program's database */
    char command[256];
    snprintf(command, sizeof(command),
             "printf '\\0\\0\\0\\7' | dd of=%s bs=1 seek=60 conv=notrunc status=none", file);
    assert_int_equal(system(command), 0);
    ledger_close(begin(1));
}

static void why_it_cannot_be_written_is_said_and_it_is_not_called_damaged(void **state)
{
    (void)state;
    struct err e = {0};
    struct rlimit now;
    struct ledger *l = begin(1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &now), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1, now.rlim_max}), 0);
    struct ledger_doc d = doc_of(1, 0);
    int rc = ledger_done(l, &d, "{}", 2, &e);
    if (!rc)
        rc = ledger_sync(l, &e);
    ledger_close(l);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(rc, -ERR_IO);
    assert_non_null(strstr(e.msg, strerror(EFBIG)));
    ledger_close(begin(0));
}

static void a_look_counts_while_a_run_is_at_work(void **state)
{
    (void)state;
    struct err e = {0};
    struct ledger_look look;
    assert_int_equal(ledger_look(folder, &look, &e), 0);
    assert_false(look.there);
    struct ledger *l = begin(1);
    ledger_note(l, "started", "on %s", "x");
    for (int i = 0; i < 10; i++)
        done(l, 1, i);
    assert_int_equal(ledger_sync(l, &e), 0);
    assert_int_equal(ledger_look(folder, &look, &e), 0);
    assert_true(look.there);
    assert_int_equal(look.by_status[0], 8);
    assert_int_equal(look.by_status[2], 2);
    assert_int_equal(look.runs, 1);
    assert_false(look.finished);
    assert_string_equal(look.last, "started");
    assert_string_equal(look.last_detail, "on x");
    assert_int_equal(ledger_finish(l, &e), 0);
    ledger_close(l);
    assert_int_equal(ledger_look(folder, &look, &e), 0);
    assert_true(look.finished);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_one_run_finished_the_next_one_finds),
        TEST(a_source_with_a_document_missing_is_not_whole),
        TEST(a_file_that_changed_is_read_again_and_its_documents_found_by_id),
        TEST(a_kept_document_moves_and_what_is_gone_is_forgotten_at_the_end),
        TEST(a_place_of_an_older_state_of_the_file_is_not_offered),
        TEST(failed_documents_are_done_again_when_asked_for),
        TEST(records_of_the_results_are_adopted_once),
        TEST(a_changed_setting_is_named_with_both_values),
        TEST(a_changed_limit_of_reading_tries_the_failed_ones_again),
        TEST(a_restart_forgets_everything),
        TEST(answers_and_tokens_of_a_stopped_run_are_found),
        TEST(the_answers_of_a_finished_document_are_forgotten),
        TEST(what_was_synced_survives_a_kill),
        TEST(a_damaged_ledger_is_set_aside_and_never_fatal),
        TEST(a_file_that_is_no_ledger_is_set_aside),
        TEST(why_it_cannot_be_written_is_said_and_it_is_not_called_damaged),
        TEST(a_look_counts_while_a_run_is_at_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

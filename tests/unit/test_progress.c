/* The progress line, the lock of the output folder, and signals as bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipeline/lock.h"
#include "pipeline/progress.h"
#include "pipeline/signals.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void the_line_says_what_is_done_and_what_is_left(void **state)
{
    (void)state;
    char out[PROGRESS_LINE];
    struct progress_sample then = {
        .us = 50000000, .prefill_tokens = 1000, .generated_tokens = 100};
    struct progress_sample now = {.us = 60000000,
                                  .found = 57,
                                  .done = 12,
                                  .failed = 1,
                                  .requests_made = 120,
                                  .requests_done = 60,
                                  .chunks_made = 100,
                                  .prefill_tokens = 4100,
                                  .generated_tokens = 1020,
                                  .bytes_read = 500,
                                  .bytes_planned = 1000};
    progress_text(&now, &then, progress_share(&now), 0, 0, out);
    assert_string_equal(out, "25 %, 3 min left | 12/57 documents, 1 failed | 60/120 requests | "
                             "prefill 310, decode 92 tok/s");
    progress_text(&now, &then, 0.25, 0, 30, out);
    assert_int_equal(strlen(out), 30);
    now.bytes_planned = 0;
    progress_text(&now, &then, progress_share(&now), 0, 0, out);
    assert_null(strchr(out, '%'));
}

static void the_share_grows_to_one_and_never_past_it(void **state)
{
    (void)state;
    struct progress_sample s = {.bytes_planned = 1000};
    assert_true(progress_share(&s) == 0);
    s = (struct progress_sample){.bytes_planned = 1000,
                                 .bytes_read = 1500,
                                 .requests_made = 3,
                                 .requests_done = 3,
                                 .chunks_made = 2};
    assert_true(progress_share(&s) == 1);
    s = (struct progress_sample){
        .bytes_planned = 1000, .bytes_read = 1000, .found = 4, .done = 1};
    assert_true(progress_share(&s) == 0.25);
}

static void a_folder_is_locked_for_others_until_its_holder_ends(void **state)
{
    (void)state;
    char folder[] = "/tmp/quire-lock-XXXXXX", holder[256], command[64];
    struct err e = {0};
    int fd, second, ready[2], end[2], status;
    char byte;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pipe(ready) | pipe(end), 0);
    pid_t child = fork();
    if (child == 0) {
        if (lock_take(folder, &fd, holder, sizeof(holder), &e) != 0)
            _exit(1);
        if (write(ready[1], "x", 1) != 1 || read(end[0], &byte, 1) < 0)
            _exit(2);
        _exit(0); /* without lock_release(): the lock goes with the process */
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(lock_take(folder, &second, holder, sizeof(holder), &e), 1);
    char expected[32];
    snprintf(expected, sizeof(expected), "pid %ld on ", (long)child);
    assert_int_equal(strncmp(holder, expected, strlen(expected)), 0);
    assert_int_equal(write(end[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(lock_take(folder, &fd, holder, sizeof(holder), &e), 0);
    lock_release(fd);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void a_signal_becomes_a_byte_and_handlers_come_back(void **state)
{
    (void)state;
    struct err e = {0};
    struct sigaction before, after;
    int fd;
    /* A test run under nohup(1) has it ignored, and so it would stay. */
    signal(SIGHUP, SIG_DFL);
    sigaction(SIGTERM, NULL, &before);
    assert_int_equal(signals_open(&fd, &e), 0);
    assert_int_equal(signals_next(fd), 0);
    raise(SIGTERM);
    raise(SIGHUP);
    raise(SIGPIPE);
    assert_int_equal(signals_next(fd), SIGTERM);
    assert_int_equal(signals_next(fd), SIGHUP);
    assert_int_equal(signals_next(fd), 0);
    signals_close(fd);
    sigaction(SIGTERM, NULL, &after);
    assert_ptr_equal(before.sa_handler, after.sa_handler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_says_what_is_done_and_what_is_left),
        cmocka_unit_test(the_share_grows_to_one_and_never_past_it),
        cmocka_unit_test(a_folder_is_locked_for_others_until_its_holder_ends),
        cmocka_unit_test(a_signal_becomes_a_byte_and_handlers_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

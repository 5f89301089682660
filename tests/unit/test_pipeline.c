/* Whole runs with the null model: what goes in comes out, once, in order, the same at any setting that must
 * not matter; and what is left behind by runs that fail, are stopped, or meet another. */
#define _GNU_SOURCE /* prlimit */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipeline/run.h"
#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a folder with documents, and jobs over it ---- */

enum { MANY = 5000 }; /* seconds of work */

static char root[] = "/tmp/quire-pipeline-XXXXXX";
static char program[4096];

static char *path_of(const char *name)
{
    return file_join(root, name);
}

static void put(const char *name, const char *text)
{
    struct err e = {0};
    char *path = path_of(name), *parent = file_parent(path);
    assert_int_equal(file_make_dirs(parent, &e), 0);
    FILE *f = fopen(path, "w"); /* not synced: there are thousands */
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    free(path);
    free(parent);
}

static char *get(const char *name)
{
    struct err e = {0};
    struct buf b;
    char *path = path_of(name);
    buf_init(&b, 1 << 28);
    int rc = file_read(path, &b, &e);
    free(path);
    if (rc) {
        buf_release(&b);
        return NULL;
    }
    return b.data ? buf_take(&b) : mem_strdup("");
}

static bool there(const char *name)
{
    char *path = path_of(name);
    bool yes = access(path, F_OK) == 0;
    free(path);
    return yes;
}

/* n documents under folder; number i is i % 9 paragraphs long, so that some are several chunks. */
static void put_documents(const char *folder, int n)
{
    char name[64], text[4096];
    for (int i = 0; i < n; i++) {
        int at = snprintf(text, sizeof(text), "Document %d begins.\n\n", i);
        for (int k = 0; k < i % 9; k++)
            at += snprintf(text + at, sizeof(text) - (size_t)at,
                           "Paragraph %d of document %d says that the cat sat on mat number "
                           "%d, and that it "
                           "was a good mat for a cat to sit on.\n\n",
                           k, i, i * k);
        snprintf(name, sizeof(name), "%s/%04d.txt", folder, i);
        put(name, text);
    }
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(root))
        return 1;
    put_documents("docs", 40);
    put("docs/0007.txt", "This one makes the pass fail: @fail@\n");
    put("docs/0011.txt", "This one repeats itself: @loop@\n");
    put("docs/0013.txt", "");
    for (int i = 0; i < MANY;
         i++) { /* each takes max_tokens steps: there is time to interrupt */
        char name[32];
        snprintf(name, sizeof(name), "many/%04d.txt", i);
        put(name, "This answer has no end: @long@\n");
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command);
}

static void put_job(const char *name, const char *from, const char *to, const char *more)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "job: test\nmodel:\n  kind: \"null\"\n  context: 1024\ningest:\n  from: "
             "%s\nchunk:\n  tokens: 300\n"
             "write:\n  to: %s\n%s",
             from, to, more);
    put(name, text);
}

static struct run_result run_with(const char *job_name, const char *const *settings, size_t n)
{
    /* From the beginning: what an earlier run of the same job has done is not asked for. */
    struct err e = {0};
    struct job job;
    struct run_result r;
    struct run_options o = {.restart = true};
    char *path = path_of(job_name);
    if (job_load_with(&job, path, settings, n, &e))
        fail_msg("%s", e.msg);
    if (run_job(&job, &o, &r, &e))
        fail_msg("%s", e.msg);
    job_release(&job);
    free(path);
    return r;
}

static struct run_result run_simply(const char *job_name)
{
    return run_with(job_name, NULL, 0);
}

static json_t *line(const char *text, int n)
{
    for (; n > 0; n--)
        text = strchr(text, '\n') + 1;
    return json_loadb(text, strcspn(text, "\n"), 0, NULL);
}

/* Says where two results differ first; whole files are too long to read. */
static void assert_same_lines(const char *a, const char *b)
{
    for (int n = 0; *a || *b; n++) {
        int la = (int)strcspn(a, "\n"), lb = (int)strcspn(b, "\n");
        if (la != lb || memcmp(a, b, (size_t)la) != 0)
            fail_msg("line %d:\n%.*s\n%.*s", n, la, a, lb, b);
        a += la + (a[la] == '\n');
        b += lb + (b[lb] == '\n');
    }
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static const char *string_at(json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static bool has_flag(json_t *o, const char *flag)
{
    json_t *flags = json_object_get(o, "flags");
    for (size_t i = 0; i < json_array_size(flags); i++)
        if (strcmp(json_string_value(json_array_get(flags, i)), flag) == 0)
            return true;
    return false;
}

/* ---- tests ---- */

static void every_document_has_one_record_in_input_order(void **state)
{
    (void)state;
    put_job("a.yaml", "docs", "out/a", "  formats: [jsonl, markdown]\n");
    struct run_result r = run_simply("a.yaml");
    assert_int_equal(r.end, RUN_FINISHED);
    assert_int_equal(r.exit_status, 1);
    assert_int_equal(r.found, 40);
    assert_int_equal(r.failed, 2);
    char *text = get("out/a/results.jsonl");
    assert_int_equal(count_lines(text), 40);
    for (int i = 0; i < 40; i++) {
        char name[32];
        json_t *o = line(text, i);
        snprintf(name, sizeof(name), "/docs/%04d.txt", i);
        assert_non_null(strstr(string_at(o, "source"), name));
        assert_int_equal(json_integer_value(json_object_get(o, "ordinal")), i);
        assert_string_equal(string_at(o, "status"), i == 7 || i == 13 ? "failed" : "ok");
        if (i == 11) {
            assert_true(has_flag(o, "repetitive"));
            assert_string_equal(string_at(o, "stopped_by"), "repetition");
        } else if (i != 7 && i != 13) {
            assert_int_equal(strlen(string_at(o, "answer")), 16);
            assert_true(json_real_value(json_object_get(o, "coverage")) == 1.0);
        }
        json_decref(o);
    }
    free(text);
    char command[200];
    snprintf(command, sizeof(command), "cd %s/out/a && sha256sum --quiet -c MANIFEST.sha256",
             root);
    assert_int_equal(system(command), 0);
}

static void queue_batch_threads_and_reuse_never_change_a_byte(void **state)
{
    (void)state;
    static const char *const settings[][5] = {
        {"limits.queue=1", "decode.batch=1", "limits.threads=1", "kv.reuse=yes",
         "prefill.batch=64"},
        {"limits.queue=64", "decode.batch=8", "limits.threads=5", "kv.reuse=no",
         "prefill.batch=512"},
        {"limits.queue=1", "decode.batch=3", "limits.threads=2", "kv.reuse=yes",
         "limits.queue_bytes=64KiB"},
    };
    char *first = NULL;
    put_job("b.yaml", "docs", "out/b", "");
    char disk[100];
    snprintf(disk, sizeof(disk), "kv.disk=%s/kv", root);
    const char *const nights[] = {disk, "kv.keep=all", "decode.batch=2",
                                  "kv.memory=4608"}; /* 18 pages, and a context has 16 */
    for (size_t i = 0; i < ARRAY_LEN(settings) + 2; i++) {
        if (i < ARRAY_LEN(settings))
            run_with("b.yaml", settings[i], ARRAY_LEN(settings[i]));
        else
            run_with("b.yaml", nights, ARRAY_LEN(nights));
        char *text = get("out/b/results.jsonl");
        if (first)
            assert_same_lines(text, first);
        else
            first = mem_strdup(text);
        free(text);
    }
    assert_int_equal(count_lines(first), 40);
    free(first);
}

static void questions_are_answered_in_their_order(void **state)
{
    (void)state;
    put_job("c.yaml", "docs", "out/c",
            "  partial_ok: yes\ntask:\n  kind: ask\n  questions: [Who sat?, \"Where?\"]\n");
    struct run_result r = run_simply("c.yaml");
    assert_int_equal(r.exit_status, 0);
    char *text = get("out/c/results.jsonl");
    json_t *o = line(text, 8), *answers = json_object_get(o, "answers");
    assert_int_equal(json_array_size(answers), 2);
    assert_string_equal(string_at(json_array_get(answers, 0), "question"), "Who sat?");
    assert_string_equal(string_at(json_array_get(answers, 1), "question"), "Where?");
    json_decref(o);
    free(text);
}

static void partial_answers_are_kept_when_asked_for(void **state)
{
    (void)state;
    put_job("d.yaml", "docs", "out/d", "  chunks: yes\ntask:\n  strategy: map_reduce\n");
    run_simply("d.yaml");
    char *text = get("out/d/results.jsonl");
    json_t *o = line(text, 8), *parts = json_object_get(o, "parts");
    int64_t n = json_integer_value(json_object_get(o, "chunks")), at = 0;
    assert_true(n > 1);
    assert_int_equal(json_array_size(parts), n);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        assert_int_equal(json_integer_value(json_object_get(json_array_get(parts, i), "begin")),
                         at);
        at = json_integer_value(json_object_get(json_array_get(parts, i), "end"));
    }
    json_decref(o);
    free(text);
}

static void a_second_run_replaces_the_first(void **state)
{
    (void)state;
    put_job("e.yaml", "docs", "out/e", "  formats: [jsonl, markdown]\n");
    run_simply("e.yaml");
    char *first = get("out/e/results.jsonl");
    assert_true(there("out/e/summaries"));
    put_job("e.yaml", "docs", "out/e", "");
    run_simply("e.yaml");
    char *second = get("out/e/results.jsonl");
    assert_same_lines(first, second);
    char command[200];
    snprintf(command, sizeof(command),
             "test -z \"$(find %s/out/e -name '*.md' -o -name '*.partial')\"", root);
    assert_int_equal(system(command), 0);
    free(first);
    free(second);
}

static void no_document_is_a_finished_run(void **state)
{
    (void)state;
    put_job("f.yaml", "docs", "out/f", "");
    static const char *const settings[] = {"ingest.include=*.nothing"};
    struct run_result r = run_with("f.yaml", settings, 1);
    assert_int_equal(r.found, 0);
    assert_int_equal(r.exit_status, 0);
    char *text = get("out/f/results.jsonl");
    assert_string_equal(text, "");
    assert_true(there("out/f/MANIFEST.sha256"));
    free(text);
}

static void a_source_that_is_not_there_is_refused_and_nothing_is_left(void **state)
{
    (void)state;
    struct err e = {0};
    struct job job;
    struct run_result r;
    struct run_options o = {0};
    put_job("g.yaml", "no-such-folder", "out/g", "");
    char *path = path_of("g.yaml");
    assert_int_equal(job_load(&job, path, &e), 0);
    assert_true(run_job(&job, &o, &r, &e) < 0);
    assert_int_equal(r.end, RUN_STOPPED);
    assert_false(there("out/g/results.jsonl.partial"));
    assert_false(there("out/g/run.json"));
    job_release(&job);
    free(path);
}

/* ---- the real program ---- */

static pid_t start(const char *job_name)
{
    char *path = path_of(job_name);
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, "run", "--quiet", path, (char *)NULL);
        _exit(127);
    }
    free(path);
    return pid;
}

static int wait_for(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Until the run has written its first records. */
static void wait_for_records(const char *partial)
{
    for (int i = 0; i < 36000; i++) {
        char *text = get(partial);
        bool some = text && count_lines(text) >= 3;
        free(text);
        if (some)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    fail_msg("no record within 3 minutes");
}

static void stop_a_run(const char *more)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s/out/h", root);
    assert_int_equal(system(command), 0);

    put_job("h.yaml", "many", "out/h", more);
    pid_t pid = start("h.yaml");
    wait_for_records("out/h/results.jsonl.partial");
    kill(pid, SIGTERM);
    kill(pid, SIGTERM); /* within a second: counts as the same */
    assert_int_equal(wait_for(pid), 128 + SIGTERM);
    char *text = get("out/h/results.jsonl.partial"), *report = get("out/h/run.json.partial");
    int n = count_lines(text);
    assert_in_range(n, 3, MANY - 1);
    for (int i = 0; i < n; i++) {
        json_t *o = line(text, i);
        assert_int_equal(json_integer_value(json_object_get(o, "ordinal")), i);
        assert_string_equal(string_at(o, "status"), "ok");
        json_decref(o);
    }
    json_t *o = json_loads(report, 0, NULL);
    assert_string_equal(string_at(o, "ended"), "interrupted");
    assert_int_equal(json_integer_value(json_object_get(o, "signal")), SIGTERM);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "documents"), "ok")),
                     n);
    assert_false(there("out/h/MANIFEST.sha256"));
    assert_false(there("out/h/results.jsonl"));

    json_decref(o);
    free(text);
    free(report);
}

static void a_signal_leaves_valid_results_that_say_so(void **state)
{
    (void)state;
    stop_a_run("");
}

static void a_signal_ends_a_run_whose_prompts_are_parked(void **state)
{
    (void)state;
    char more[200];
    snprintf(more, sizeof(more),
             "kv:\n  memory: 4608\n  disk: %s/kv-signal\n  keep: none\ndecode:\n  batch: 2\n",
             root);
    stop_a_run(more);
}

/* Does every thread of the process wait for something? */
static bool is_asleep(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    bool asleep = true;
    for (struct dirent *x; (x = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)pid, x->d_name);
        FILE *f = x->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!f)
            continue;
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = '\0';
        fclose(f);
        const char *name_end = strrchr(text, ')');
        asleep &= name_end && name_end[1] && name_end[2] == 'S';
    }
    closedir(dir);
    return asleep;
}

/* For so long that it does not go on by itself: a thread that only waits for a processor does not sleep. */
static void wait_for_sleep(pid_t pid)
{
    for (int i = 0, asleep = 0; i < 36000 && asleep < 60;
         i++, asleep = is_asleep(pid) ? asleep + 1 : 0)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* A run in a process of its own that gives up early. */
static pid_t start_impatient(const char *job_name, const char *const *settings, size_t n)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct err e = {0};
    struct job job;
    struct run_result r;
    struct run_options o = {.signals = true, .give_up_ms = 300};
    if (job_load_with(&job, path_of(job_name), settings, n, &e) || run_job(&job, &o, &r, &e))
        _exit(99);
    _exit(98); /* it came back: the stage was not stuck */
}

static void a_stage_that_does_not_stop_costs_no_finished_record(void **state)
{
    (void)state;
    static const char *const settings[] = {"decode.batch=1", "limits.drain=0.2s"};
    put_documents("stuck", 8);
    put("stuck/0008.txt", "This one takes long: @slow@\n");
    put_job("k.yaml", "stuck", "out/k", "  formats: [jsonl, markdown]\n");
    pid_t pid = start_impatient("k.yaml", settings, ARRAY_LEN(settings));
    wait_for_records("out/k/results.jsonl.partial");
    wait_for_sleep(pid);
    kill(pid, SIGTERM);
    assert_int_equal(wait_for(pid), 128 + SIGTERM);
    char *text = get("out/k/results.jsonl.partial"), *report = get("out/k/run.json.partial");
    assert_non_null(text);
    assert_non_null(report);
    int n = count_lines(text);
    assert_in_range(n, 3, 8);
    json_t *o = json_loads(report, 0, NULL);
    assert_string_equal(string_at(o, "ended"), "interrupted");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "documents"), "ok")),
                     n);
    json_decref(o);
    assert_false(there("out/k/MANIFEST.sha256"));
    free(text);
    free(report);
}

static void a_second_run_at_the_same_time_exits_with_75(void **state)
{
    (void)state;
    put_job("i.yaml", "many", "out/i", "");
    pid_t first = start("i.yaml");
    wait_for_records("out/i/results.jsonl.partial");
    kill(first, SIGSTOP);
    assert_int_equal(wait_for(start("i.yaml")), 75);
    assert_true(there("out/i/results.jsonl.partial"));
    kill(first, SIGCONT);
    kill(first, SIGINT);
    assert_int_equal(wait_for(first), 128 + SIGINT);
}

/* The limit on the size of files is set from outside and late: sanitizers write files of their own at the start. */
static void a_full_disk_stops_the_run_and_keeps_the_old_results(void **state)
{
    (void)state;
    static const char *const few[] = {"ingest.include=000*.txt"};
    struct rlimit limit = {20000, 20000};
    put_job("j.yaml", "many", "out/j", "");
    run_with("j.yaml", few, 1);
    char *before = get("out/j/results.jsonl");
    assert_int_equal(count_lines(before), 10);
    pid_t pid = start("j.yaml");
    wait_for_records("out/j/results.jsonl.partial");
    assert_int_equal(prlimit(pid, RLIMIT_FSIZE, &limit, NULL), 0);
    assert_int_equal(wait_for(pid), 3);
    char *after = get("out/j/results.jsonl"), *partial = get("out/j/results.jsonl.partial");
    assert_same_lines(before, after);
    assert_true(there("out/j/MANIFEST.sha256"));
    assert_true(partial[0] && partial[strlen(partial) - 1] == '\n');
    free(before);
    free(after);
    free(partial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_document_has_one_record_in_input_order),
        cmocka_unit_test(queue_batch_threads_and_reuse_never_change_a_byte),
        cmocka_unit_test(questions_are_answered_in_their_order),
        cmocka_unit_test(partial_answers_are_kept_when_asked_for),
        cmocka_unit_test(a_second_run_replaces_the_first),
        cmocka_unit_test(no_document_is_a_finished_run),
        cmocka_unit_test(a_source_that_is_not_there_is_refused_and_nothing_is_left),
        cmocka_unit_test(a_signal_leaves_valid_results_that_say_so),
        cmocka_unit_test(a_signal_ends_a_run_whose_prompts_are_parked),
        cmocka_unit_test(a_stage_that_does_not_stop_costs_no_finished_record),
        cmocka_unit_test(a_second_run_at_the_same_time_exits_with_75),
        cmocka_unit_test(a_full_disk_stops_the_run_and_keeps_the_old_results),
    };
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 32);
    if (n <= 0)
        return 1;
    program[n] = '\0';
    for (int i = 0; i < 3; i++) /* BUILD/tests/unit/test_pipeline -> BUILD */
        *strrchr(program, '/') = '\0';
    strcat(program, "/quire");
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

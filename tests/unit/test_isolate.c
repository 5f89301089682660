/* Readers that misbehave, in every way we know, cost one document each. The reader here is a fake: each line of a
 * file is an entry, and says what its reading does. */
#include "tests/unit/ingest_try.h"

#include "stages/base/clock.h"
#include "stages/ingest/isolate.h"
#include "stages/ingest/jail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- the fake reader, in its own process ---- */

static void eat_memory(void)
{
    for (;;) {
        char *p = malloc(8 << 20);
        if (!p)
            abort(); /* as a library does that sees no other way */
        memset(p, 1, 8 << 20);
    }
}

static void write_everywhere(void)
{
    static const char nonsense[4096] = {1, 2, 3};
    for (int fd = 3; fd < 64; fd++)
        if (write(fd, nonsense, sizeof(nonsense)) < 0)
            continue;
    _exit(0);
}

static void sleep_for_ever(void)
{
    static int word;
    for (;;)
        syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, NULL);
}

static void end_by(const char *what)
{
    volatile int *nowhere = NULL;
    if (strcmp(what, "abort") == 0)
        abort();
    if (strcmp(what, "segv") == 0)
        *nowhere = 1;
    if (strcmp(what, "exit") == 0)
        _exit(0);
    if (strcmp(what, "loop") == 0)
        for (volatile long i = 0;; i++)
            ;
    if (strcmp(what, "wait") == 0)
        sleep_for_ever();
    if (strcmp(what, "memory") == 0)
        eat_memory();
    if (strcmp(what, "need") == 0)
        for (;;)
            mem_need(1 << 20);
    if (strcmp(what, "socket") == 0)
        socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(what, "fork") == 0)
        fork();
    if (strcmp(what, "exec") == 0)
        execl("/bin/true", "true", (char *)NULL);
    if (strcmp(what, "kill-parent") == 0)
        kill(getppid(), SIGKILL);
    if (strcmp(what, "killed") == 0)
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGKILL);
    if (strcmp(what, "nonsense") == 0)
        write_everywhere();
}

static char escape[128]; /* a file that no reader may make; set before the keeper is forked */

/* What the process may not do although it lives on: the text of the document says what came of it. */
static void try_files(char *out, size_t cap)
{
    int made = open(escape, O_WRONLY | O_CREAT, 0644), why = errno;
    int read_only = open("/etc/passwd", O_RDONLY), why_not = errno;
    snprintf(out, cap, "create %d %d, read %d %d, map %d", made, why, read_only, why_not,
             mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                 MAP_FAILED);
}

static int give_text(struct reader *r, const struct place *p, const char *text)
{
    struct doc *d = reader_doc(r, p, text, strlen(text));
    d->media_type = mem_strdup("text/plain");
    d->encoding = mem_strdup("UTF-8");
    d->text = mem_strdup(text);
    d->text_len = strlen(text);
    d->blocks = mem_need(sizeof(*d->blocks));
    d->blocks[0] = (struct block){.end = d->text_len, .part = -1};
    d->n_blocks = 1;
    return reader_give(r, d, NULL);
}

static int fake_entry(struct reader *r, const char *line, int64_t i)
{
    struct place p = {NULL, line, i};
    char text[128];
    if (strncmp(line, "head-", 5) == 0)
        end_by(line + 5);
    const struct err *spoilt = reader_at(r, &p, false);
    if (spoilt)
        return reader_fail(r, &p, spoilt);
    end_by(line);
    snprintf(text, sizeof(text), "%s", line);
    if (strcmp(line, "files") == 0)
        try_files(text, sizeof(text));
    return give_text(r, &p, text);
}

/* read_file_fn */
static int fake_file(struct reader *r, const struct walk_file *f, int fd, const char *why)
{
    char text[8192];
    struct err e = {0};
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    close(fd);
    r->source = f->path;
    r->name = f->name;
    r->docs = 0;
    const struct err *spoilt = reader_at(r, NULL, false);
    if (why)
        err_set(&e, REACH_DOC, ERR_IO, "%s", why);
    if (spoilt) {
        r->docs = r->errand->known;
        e = *spoilt;
    }
    if (e.code)
        return reader_fail(r, NULL, &e);
    text[n > 0 ? n : 0] = '\0';
    int rc = 0;
    int64_t i = 0;
    for (char *line = strtok(text, "\n"); line && rc == 0; line = strtok(NULL, "\n")) {
        struct place next = {NULL, "", ++i};
        spoilt = reader_at(r, &next, true);
        if (spoilt)
            return reader_fail(r, NULL, spoilt);
        rc = fake_entry(r, line, i);
    }
    return rc;
}

/* ---- the tests ---- */

static struct try *fake_try(void)
{
    struct try *t = try_new();
    try_option(t, "timeout", "1.5s");
    try_option(t, "memory", "64MiB");
    return t;
}

static int fake_run(struct try *t, const char *from)
{
    struct keeper *k;
    try_option(t, "from", from);
    assert_int_equal(keeper_open(&k, &t->cfg, fake_file, &t->e), 0);
    int rc = try_once(t, k);
    keeper_close(k);
    return rc;
}

static void assert_text(const struct try *t, size_t i, const char *text)
{
    assert_true(i < t->n);
    if (!t->docs[i]->text)
        fail_msg("document %zu failed: %s", i, t->docs[i]->fail.msg);
    assert_string_equal(t->docs[i]->text, text);
}

static void assert_failed(const struct try *t, size_t i, enum err_code code, const char *says)
{
    assert_true(i < t->n);
    if (t->docs[i]->fail.code != code || !strstr(t->docs[i]->fail.msg, says))
        fail_msg("document %zu: code %d, \"%s\", not \"%s\"", i, t->docs[i]->fail.code,
                 t->docs[i]->fail.msg, says);
}

/* a, the bad entry, b: the bad one fails as it should, the others are read. Returns seconds. */
static double one_bad(const char *what, enum err_code code, const char *says)
{
    struct try *t = fake_try();
    char lines[64];
    snprintf(lines, sizeof(lines), "a\n%s\nb\n", what);
    int64_t from = clock_us();
    if (fake_run(t, try_file(t, "x", lines, strlen(lines))) != 0)
        fail_msg("%s: %s", what, t->e.msg);
    double seconds = (double)(clock_us() - from) / 1e6;
    assert_int_equal(t->n, 3);
    assert_text(t, 0, "a");
    assert_failed(t, 1, code, says);
    assert_string_equal(t->docs[1]->chain[0], what);
    assert_text(t, 2, "b");
    printf("    %-12s %.2f s: %s\n", what, seconds, t->docs[1]->fail.msg);
    try_free(t);
    return seconds;
}

static void a_crash_costs_one_document(void **state)
{
    (void)state;
    one_bad("exit", ERR_BUG, "ended with status 0");
#ifndef SANITIZED /* which reports both and exits */
    one_bad("segv", ERR_BUG, "crashed (signal 11");
    one_bad("abort", ERR_BUG, "crashed (signal 6");
#endif
}

static void a_hang_costs_one_document_and_bounded_time(void **state)
{
    (void)state;
    /* ingest.timeout, a quarter, a second, and room for a busy machine: neither ends by itself */
    assert_true(one_bad("wait", ERR_LIMIT, "ingest.timeout") < 60);
    assert_true(one_bad("loop", ERR_LIMIT, "ingest.timeout") < 60);
}

static void memory_over_the_limit_costs_one_document(void **state)
{
    (void)state;
#ifdef SANITIZED
    skip(); /* memory is not limited: sanitizers map terabytes */
#else
    one_bad("memory", ERR_NOMEM, "ingest.memory");
    one_bad("need", ERR_NOMEM, "ingest.memory");
#endif
}

static void a_reader_that_is_killed_costs_one_document(void **state)
{
    (void)state;
    one_bad("killed", ERR_IO, "signal 9");
}

static void what_makes_no_sense_costs_one_document(void **state)
{
    (void)state;
    one_bad("nonsense", ERR_CORRUPT, "message of the reader");
}

static void connections_and_processes_are_stopped(void **state)
{
    (void)state;
    if (!jail_can_filter())
        skip();
    one_bad("socket", ERR_BUG, "system call");
    one_bad("fork", ERR_BUG, "system call");
    one_bad("exec", ERR_BUG, "system call");
    one_bad("kill-parent", ERR_BUG, "system call");
}

static void files_cannot_be_opened_or_made(void **state)
{
    (void)state;
    if (!jail_can_filter())
        skip();
    struct try *t = fake_try();
    char want[64];
    snprintf(escape, sizeof(escape), "%s/escaped", t->folder);
    assert_int_equal(fake_run(t, try_file(t, "x", "files\n", 6)), 0);
    snprintf(want, sizeof(want), "create -1 %d, read -1 %d, map 1", EACCES, EACCES);
    assert_text(t, 0, want);
    assert_int_equal(access(escape, F_OK), -1);
    try_free(t);
}

static void a_death_on_the_way_to_an_entry_ends_the_archive(void **state)
{
    (void)state;
    struct try *t = fake_try();
    const char *lines = "a\nb\nhead-killed\nc\n";
    try_file(t, "1", lines, strlen(lines));
    try_file(t, "2", "d\n", 2);
    assert_int_equal(fake_run(t, t->folder), 0);
    assert_int_equal(t->n, 4);
    assert_text(t, 1, "b");
    assert_failed(t, 2, ERR_IO, "signal 9");
    assert_null(t->docs[2]->chain[0]);
    assert_text(t, 3, "d");
    try_free(t);
}

static void a_file_that_kills_again_and_again_is_given_up(void **state)
{
    (void)state;
    struct try *t = fake_try();
    char lines[400] = "a\n";
    for (int i = 0; i < 20; i++)
        strcat(lines, "killed\n");
    try_file(t, "1", lines, strlen(lines));
    try_file(t, "2", "b\n", 2);
    assert_int_equal(fake_run(t, t->folder), 0);
    assert_text(t, 0, "a");
    assert_int_equal(t->n, 11); /* a, eight that were killed, the rest as one, b */
    assert_failed(t, 9, ERR_IO, "given up after 9 readers");
    assert_text(t, 10, "b");
    try_free(t);
}

static void files_sent_ahead_survive_the_reader(void **state)
{
    (void)state;
    struct try *t = fake_try();
    for (int i = 0; i < 30; i++) {
        char name[16], line[32];
        snprintf(name, sizeof(name), "%02d", i);
        snprintf(line, sizeof(line), "%s\n", i % 4 == 1 ? "killed" : name);
        try_file(t, name, line, strlen(line));
    }
    assert_int_equal(fake_run(t, t->folder), 0);
    assert_int_equal(t->n, 30);
    for (size_t i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%02zu", i);
        if (i % 4 == 1)
            assert_failed(t, i, ERR_IO, "signal 9");
        else
            assert_text(t, i, name);
        assert_string_equal(strrchr(t->docs[i]->source, '/') + 1, name);
    }
    try_free(t);
}

static void a_file_that_cannot_be_opened_is_named(void **state)
{
    (void)state;
    struct try *t = fake_try();
    char path[128];
    snprintf(path, sizeof(path), "%s/gone", t->folder);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    assert_int_equal(fake_run(t, t->folder), 0);
    assert_int_equal(t->n, 1);
    assert_failed(t, 0, ERR_IO, "No such file");
    try_free(t);
}

/* ---- from outside ---- */

/* The child of pid, or its child; 0 when there is none. */
static pid_t child_of(pid_t pid)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%d", &child) != 1)
            child = 0;
        fclose(f);
    }
    return child;
}

struct meddler {
    struct try *t;
    struct keeper *k;
    bool kill_keeper;
};

/* Waits until the reader is at work on the second document, and then does something. */
static void *meddle(void *arg)
{
    struct meddler *m = arg;
    while (board_turn(keeper_board(m->k)) < 4)
        usleep(1000);
    if (m->kill_keeper)
        kill(child_of(getpid()), SIGKILL);
    else
        atomic_store(&m->t->cancel, true);
    return NULL;
}

static int meddled(struct try *t, bool kill_keeper)
{
    struct meddler m = {.t = t, .kill_keeper = kill_keeper};
    pthread_t thread;
    try_option(t, "timeout", "1h");
    try_option(t, "from", try_file(t, "x", "a\nwait\nb\n", 9));
    assert_int_equal(keeper_open(&m.k, &t->cfg, fake_file, &t->e), 0);
    assert_int_equal(pthread_create(&thread, NULL, meddle, &m), 0);
    int rc = try_once(t, m.k);
    pthread_join(thread, NULL);
    keeper_close(m.k);
    return rc;
}

static void a_run_that_is_told_to_stop_leaves_the_document_pending(void **state)
{
    (void)state;
    struct try *t = fake_try();
    int64_t from = clock_us();
    assert_int_equal(meddled(t, false), 0);
    assert_true(clock_us() - from < 60000000); /* the timeout is an hour */
    assert_int_equal(t->n, 1);
    assert_text(t, 0, "a");
    try_free(t);
}

static void without_its_keeper_the_run_stops(void **state)
{
    (void)state;
    struct try *t = fake_try();
    int rc = meddled(t, true);
    assert_int_equal(rc, -ERR_IO);
    assert_int_equal(t->e.reach, REACH_JOB);
    assert_non_null(strstr(t->e.msg, "has ended: signal 9"));
    try_free(t);
}

static void nothing_is_left_running(void **state)
{
    (void)state;
    assert_int_equal(child_of(getpid()), 0);
}

/* While the run is busy with what it has, nobody waits for the reader; it may not compute for ever. */
static void sleep_until_dead(pid_t reader)
{
    char path[64], state = 'R';
    snprintf(path, sizeof(path), "/proc/%d/stat", reader);
    for (int i = 0; i < 6000 && state != 'Z'; i++) {
        FILE *f = fopen(path, "r");
        if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            state = 'Z';
        if (f)
            fclose(f);
        usleep(10000);
    }
}

static int slow_emit(void *to, struct rec *r)
{
    struct try *t = to;
    if (t->n == 0)
        sleep_until_dead(child_of(child_of(getpid())));
    return try_emit(to, r);
}

static void a_reader_that_nobody_waits_for_ends_at_its_cpu_time(void **state)
{
    (void)state;
    struct try *t = fake_try();
    struct keeper *k;
    try_option(t, "from", try_file(t, "x", "a\nloop\nb\n", 9));
    assert_int_equal(keeper_open(&k, &t->cfg, fake_file, &t->e), 0);
    struct stage_env env = {.ingest = &t->cfg, .keeper = k, .kv = &t->kv, .write = &t->write};
    struct stage s = {.ops = &ingest_stage, .env = &env, .emit = slow_emit, .runner = t};
    assert_int_equal(s.ops->source(&s, &t->e), 0);
    keeper_close(k);
    assert_int_equal(t->n, 3);
    assert_failed(t, 1, ERR_LIMIT, "CPU time");
    assert_text(t, 2, "b");
    try_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_costs_one_document),
        cmocka_unit_test(a_hang_costs_one_document_and_bounded_time),
        cmocka_unit_test(memory_over_the_limit_costs_one_document),
        cmocka_unit_test(a_reader_that_is_killed_costs_one_document),
        cmocka_unit_test(what_makes_no_sense_costs_one_document),
        cmocka_unit_test(connections_and_processes_are_stopped),
        cmocka_unit_test(files_cannot_be_opened_or_made),
        cmocka_unit_test(a_death_on_the_way_to_an_entry_ends_the_archive),
        cmocka_unit_test(a_file_that_kills_again_and_again_is_given_up),
        cmocka_unit_test(files_sent_ahead_survive_the_reader),
        cmocka_unit_test(a_file_that_cannot_be_opened_is_named),
        cmocka_unit_test(a_run_that_is_told_to_stop_leaves_the_document_pending),
        cmocka_unit_test(without_its_keeper_the_run_stops),
        cmocka_unit_test(a_reader_that_nobody_waits_for_ends_at_its_cpu_time),
        cmocka_unit_test(nothing_is_left_running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

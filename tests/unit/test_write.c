/* The write stage: records, their order, the output folder before, during and after a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/stage.h"
#include "stages/stats.h"
#include "stages/task.h"
#include "stages/write/manifest.h"
#include "stages/write/markdown.h"
#include "stages/write/output.h"
#include "stages/write/result.h"
#include "stages/write/tally.h"
#include "stages/write/write_opts.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a stage with an environment of its own, in a folder of its own ---- */

struct fixture {
    char folder[64];
    struct write_config write;
    struct task_config task;
    struct run_facts facts;
    struct run_stats stats;
    struct tally tally;
    struct stage_env env;
    struct stage stage;
    int64_t emitted[128];
    int n_emitted;
};

static int note_emit(void *runner, struct rec *r)
{
    struct fixture *f = runner;
    f->emitted[f->n_emitted++] = r->doc->ordinal;
    rec_free(r);
    return 0;
}

static struct fixture *fixture_new(bool markdown)
{
    static char jsonl[] = "jsonl", pages[] = "markdown", *formats[] = {jsonl, pages};
    struct fixture *f = mem_need(sizeof(*f));
    struct err e = {0};
    snprintf(f->folder, sizeof(f->folder), "/tmp/quire-write-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->write = (struct write_config){.to = f->folder, .formats = {formats, markdown ? 2 : 1}};
    snprintf(f->facts.model_name, sizeof(f->facts.model_name), "null");
    f->env = (struct stage_env){.write = &f->write,
                                .task = &f->task,
                                .job_name = "test",
                                .facts = &f->facts,
                                .stats = &f->stats,
                                .tally = &f->tally};
    assert_int_equal(output_open(&f->env.output, f->folder, &e), 0);
    f->stage =
        (struct stage){.ops = &write_stage, .env = &f->env, .emit = note_emit, .runner = f};
    assert_int_equal(write_stage.open(&f->stage, &e), 0);
    return f;
}

static void fixture_free(struct fixture *f)
{
    char command[128];
    write_stage.close(&f->stage);
    output_close(f->env.output);
    tally_release(&f->tally);
    snprintf(command, sizeof(command), "rm -r %s", f->folder);
    assert_int_equal(system(command), 0);
    free(f);
}

static char *contents(const struct fixture *f, const char *name)
{
    struct err e = {0};
    struct buf b;
    char *path = file_join(f->folder, name);
    buf_init(&b, 1 << 24);
    int rc = file_read(path, &b, &e);
    free(path);
    if (rc) {
        buf_release(&b);
        return NULL;
    }
    return b.data ? buf_take(&b) : mem_strdup("");
}

static void put(const struct fixture *f, const char *name, const char *text)
{
    struct err e = {0};
    char *path = file_join(f->folder, name), *parent = file_parent(path);
    assert_int_equal(file_make_dirs(parent, &e), 0);
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), 0);
    free(path);
    free(parent);
}

static bool there(const struct fixture *f, const char *name)
{
    char *path = file_join(f->folder, name);
    bool yes = access(path, F_OK) == 0;
    free(path);
    return yes;
}

static struct doc *document(int64_t ordinal)
{
    struct doc *d = doc_new();
    d->ordinal = ordinal;
    snprintf(d->id, sizeof(d->id), "%032llx", (long long)ordinal + 0xabc);
    d->source = mem_strdup("mail.zip");
    d->chain = mem_need(2 * sizeof(char *));
    d->chain[0] = mem_strdup("31.txt");
    d->media_type = mem_strdup("text/plain");
    d->text = mem_strdup("Some text.");
    d->text_len = 10;
    return d;
}

static struct rec *answer(struct doc *d, const char *text)
{
    struct rec *r = rec_new(REC_ANSWER, d);
    r->answer.text = mem_strdup(text);
    r->answer.len = strlen(text);
    r->answer.n_tokens = 4;
    r->answer.stopped_by = STOP_EOS;
    if (!*text)
        r->answer.flags = ANSWER_EMPTY;
    r->req.n_tokens = 30;
    r->info = mem_need(sizeof(*r->info));
    *r->info = (struct summary_info){.n_finals = 1,
                                     .n_chunks = 1,
                                     .covered = d->text_len,
                                     .account = {.document = 3, .fed = 3}};
    doc_unref(d);
    return r;
}

static void push(struct fixture *f, struct rec *r)
{
    struct err e = {0};
    assert_int_equal(write_stage.push(&f->stage, r, &e), 0);
}

static json_t *line(const char *text, int n)
{
    for (; n > 0; n--)
        text = strchr(text, '\n') + 1;
    return json_loadb(text, strcspn(text, "\n"), 0, NULL);
}

static void finish(struct fixture *f, bool finished)
{
    struct err e = {0};
    assert_int_equal(write_stage.finish(&f->stage, &e), 0);
    assert_int_equal(output_publish(f->env.output, finished, &e), 0);
}

/* ---- records ---- */

static void records_come_out_in_input_order_whatever_the_order_of_answers(void **state)
{
    (void)state;
    static const int order[] = {3, 1, 0, 2, 70, 4};
    struct fixture *f = fixture_new(false);
    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        push(f, answer(document(order[i]), "words"));
    assert_int_equal(f->n_emitted, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(f->emitted[i], i);
    for (int i = 5; i < 70; i++)
        push(f, answer(document(i), "words"));
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    for (int i = 0; i < 71; i++) {
        json_t *o = line(text, i);
        assert_int_equal(json_integer_value(json_object_get(o, "ordinal")), i);
        json_decref(o);
    }
    free(text);
    fixture_free(f);
}

static void a_record_says_everything_that_is_promised(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "schema", "job",        "ordinal",    "id",    "source",        "chain",
        "title",  "media_type", "encoding",   "bytes", "sha256",        "status",
        "error",  "answer",     "stopped_by", "flags", "tokens",        "coverage",
        "chunks", "levels",     "warnings",   "model", "prompt_digest", "timings"};
    struct fixture *f = fixture_new(false);
    push(f, answer(document(0), "Line one.\n\"Two\" \xe2\x80\xa8 \x01"));
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 0);
    assert_int_equal(json_object_size(o), ARRAY_LEN(keys));
    size_t i = 0;
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value) assert_string_equal(key, keys[i++]);
    assert_string_equal(json_string_value(json_object_get(o, "answer")),
                        "Line one.\n\"Two\" \xe2\x80\xa8 \x01");
    assert_non_null(strstr(text, "\"coverage\":1.0,"));
    assert_non_null(strstr(
        text,
        "\"tokens\":{\"document\":3,\"fed\":3,\"dropped\":0,\"prompt\":30,\"generated\":4}"));
    json_decref(o);
    free(text);
    fixture_free(f);
}

static const char *status_of(json_t *o)
{
    return json_string_value(json_object_get(o, "status"));
}

static const char *code_of(json_t *o)
{
    return json_string_value(json_object_get(json_object_get(o, "error"), "code"));
}

static void an_empty_answer_is_a_failure_with_a_name(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    push(f, answer(document(0), ""));
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 0);
    assert_string_equal(status_of(o), "failed");
    assert_string_equal(code_of(o), "empty-answer");
    assert_int_equal(f->tally.by_status[DOC_FAILED], 1);
    assert_int_equal(atomic_load(&f->stats.docs_failed), 1);
    json_decref(o);
    free(text);
    fixture_free(f);
}

static void text_that_the_model_did_not_see_makes_a_record_partial(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct rec *r = answer(document(0), "words");
    r->info->covered = 7;
    r->info->account.fed = 2;
    push(f, r);
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 0);
    assert_string_equal(status_of(o), "partial");
    assert_non_null(strstr(text, "\"dropped\":1"));
    assert_non_null(strstr(text, "\"coverage\":0.7,"));
    assert_non_null(strstr(text, "1 of 3 tokens of the text were not given to the model"));
    json_decref(o);
    free(text);
    fixture_free(f);
}

static void a_document_fails_once_and_later_answers_are_dropped(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct doc *d = document(1);
    for (int i = 0; i < 3; i++) {
        struct rec *r = answer(doc_ref(d), "words");
        r->info->n_finals = 3;
        r->req.question = i;
        if (i == 1)
            err_set(&r->fail, REACH_DOC, ERR_DEVICE, "not finite");
        push(f, r);
    }
    doc_unref(d);
    push(f, answer(document(0), "words"));
    assert_int_equal(f->n_emitted, 2);
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 1);
    assert_string_equal(code_of(o), "device");
    assert_true(json_is_null(json_object_get(o, "answer")));
    assert_null(strchr(strchr(text, '\n') + 1, '\n')[1] ? "more" : NULL);
    json_decref(o);
    free(text);
    fixture_free(f);
}

static void the_first_question_that_failed_is_the_reason_whichever_came_first(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct doc *d = document(0);
    for (int q = 2; q >= 0; q--) {
        struct rec *r = answer(doc_ref(d), "words");
        r->info->n_finals = 3;
        r->req.question = q;
        if (q > 0)
            err_set(&r->fail, REACH_DOC, ERR_DEVICE, "question %d", q);
        push(f, r);
        assert_int_equal(f->n_emitted, q == 0);
    }
    doc_unref(d);
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    assert_non_null(strstr(text, "\"message\":\"question 1\""));
    free(text);
    fixture_free(f);
}

static void the_answers_to_all_questions_make_one_record(void **state)
{
    (void)state;
    static char who[] = "Who?", when[] = "When?", *questions[] = {who, when};
    struct fixture *f = fixture_new(true);
    f->task = (struct task_config){.kind = TASK_ASK, .questions = {questions, 2}};
    struct doc *d = document(0);
    for (int q = 1; q >= 0; q--) {
        struct rec *r = answer(doc_ref(d), q ? "in May" : "nobody");
        r->info->n_finals = 2;
        r->req.question = q;
        push(f, r);
    }
    doc_unref(d);
    finish(f, true);
    char *text = contents(f, "results.jsonl"),
         *page = contents(f, "summaries/000000-31-txt-00000000.md");
    json_t *o = line(text, 0), *list = json_object_get(o, "answers");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "answer")),
                        "nobody");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "question")),
                        "When?");
    assert_non_null(strstr(page, "## Who?\n\nnobody\n\n## When?\n\nin May\n"));
    json_decref(o);
    free(page);
    free(text);
    fixture_free(f);
}

static void an_unread_document_has_a_record_with_nulls(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(true);
    struct doc *d = document(0);
    d->status = DOC_FAILED;
    free(d->source);
    d->source = mem_strdup("bad\xff\xfename");
    err_set(&d->fail, REACH_DOC, ERR_ENCRYPTED, "needs a password");
    struct rec *r = rec_new(REC_DOC, d);
    doc_unref(d);
    push(f, r);
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 0);
    assert_non_null(o);
    assert_string_equal(code_of(o), "encrypted");
    assert_string_equal(json_string_value(json_object_get(o, "source")),
                        "bad\xef\xbf\xbd\xef\xbf\xbdname");
    assert_true(json_is_null(json_object_get(o, "tokens")));
    assert_false(there(f, "summaries"));
    json_decref(o);
    free(text);
    fixture_free(f);
}

static void a_run_that_ends_early_keeps_what_is_settled_in_order(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    push(f, answer(document(0), "words"));
    push(f, answer(document(3), "words"));
    struct rec *half = answer(document(2), "words");
    half->info->n_finals = 2;
    push(f, half);
    finish(f, false);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 1);
    assert_int_equal(json_integer_value(json_object_get(o, "ordinal")), 3);
    assert_true(there(f, "INCOMPLETE.sha256"));
    assert_false(there(f, "MANIFEST.sha256"));
    json_decref(o);
    free(text);
    fixture_free(f);
}

/* ---- names and manifests ---- */

static void names_of_summaries_are_never_paths(void **state)
{
    (void)state;
    static const char *const titles[] = {"../../etc/passwd",     "a/b\\c",    ".hidden",
                                         "\xc3\xa9t\xc3\xa9",    "",          "-rf",
                                         "  Minutes of 3 May  ", "con\n.md\0"};
    for (size_t i = 0; i < ARRAY_LEN(titles); i++) {
        char name[128];
        struct doc *d = document((int64_t)i);
        d->title = mem_strdup(titles[i]);
        markdown_name(d, name, sizeof(name));
        assert_true(manifest_name_ok(name));
        doc_unref(d);
    }
}

static void a_title_is_one_line_of_text_in_a_page(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(true);
    struct doc *d = document(0);
    d->title = mem_strdup("<b>A</b> & [x](y) *_`#!| \\ B\n# C\xe2\x80\xae"
                          "D\xe2\x81\xa6"
                          "E\xe2\x80\xa8"
                          "F\x1b\xc2\x85\xff \xc3\xa9");
    char name[128];
    markdown_name(d, name, sizeof(name));
    push(f, answer(d, "It agreed."));
    finish(f, true);
    char *text = contents(f, name);
    const char *want[] = {
        "\n# \\<b\\>A\\</b\\> \\& \\[x\\]\\(y\\) \\*\\_\\`\\#\\!\\| \\\\ B \\# C D E F  "
        "\xef\xbf\xbd \xc3\xa9\n\nIt agreed.\n",
        "\ntitle: \"<b>A</b> & [x](y) *_`#!| \\\\ B # C D E F  \xef\xbf\xbd \xc3\xa9\"\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        if (!strstr(text, want[i]))
            fail_msg("wanted %s in %s", want[i], text);
    free(text);
    fixture_free(f);
}

static void a_manifest_lists_only_files_of_this_program(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "../x",           "/etc/passwd",           "summaries/../../x.md", "summaries/.md",
        "summaries/A.md", "results.jsonl.partial", "summaries/a.md/b",     ""};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(manifest_name_ok(bad[i]));
    struct manifest m = {0};
    struct err e = {0};
    char text[200];
    snprintf(text, sizeof(text), "%064d  results.jsonl\n%064d  ../../home\n", 0, 0);
    assert_int_equal(manifest_parse(&m, text, strlen(text), &e), -ERR_FORMAT);
    assert_non_null(strstr(e.msg, "line 2"));
    manifest_release(&m);
}

/* ---- the folder ---- */

static void a_new_run_replaces_the_old_one_only_at_its_end(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(true);
    char old[300];
    snprintf(old, sizeof(old), "%064d  results.jsonl\n%064d  summaries/000009-old-1.md\n", 0,
             0);
    put(f, "results.jsonl", "old\n");
    put(f, "summaries/000009-old-1.md", "old");
    put(f, "summaries/mine.md", "not of quire");
    put(f, "MANIFEST.sha256", old);
    push(f, answer(document(0), "words"));
    char *text = contents(f, "results.jsonl");
    assert_string_equal(text, "old\n");
    free(text);
    assert_true(there(f, "summaries/000009-old-1.md"));
    finish(f, true);
    assert_false(there(f, "summaries/000009-old-1.md"));
    assert_true(there(f, "summaries/000000-31-txt-00000000.md"));
    assert_true(there(f, "summaries/mine.md"));
    assert_false(there(f, "results.jsonl.partial"));
    char command[200];
    snprintf(command, sizeof(command), "cd %s && sha256sum --quiet -c MANIFEST.sha256",
             f->folder);
    assert_int_equal(system(command), 0);
    fixture_free(f);
}

static void a_run_that_ends_early_never_replaces_a_finished_one(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct err e = {0};
    char old[300];
    snprintf(old, sizeof(old), "%064d  results.jsonl\n", 0);
    put(f, "results.jsonl", "old\n");
    put(f, "MANIFEST.sha256", old);
    push(f, answer(document(0), "words"));
    assert_int_equal(output_publish(f->env.output, false, &e), 1);
    char *text = contents(f, "results.jsonl"), *kept = contents(f, "results.jsonl.partial");
    assert_string_equal(text, "old\n");
    assert_non_null(strstr(kept, "quire.result/1"));
    assert_true(there(f, "MANIFEST.sha256"));
    free(text);
    free(kept);
    fixture_free(f);
}

static void what_an_unfinished_run_left_is_removed_at_the_start(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct err e = {0};
    put(f, "results.jsonl.partial", "torn");
    put(f, "summaries/000001-x-1.md.partial", "torn");
    put(f, "notes.partial", "not of quire");
    put(f, "summaries/x.md.partial", "not of quire");
    put(f, "summaries/00001-x.md.partial", "not of quire");
    put(f, "summaries/a.tmp", "not of quire");
    output_close(f->env.output);
    assert_int_equal(output_open(&f->env.output, f->folder, &e), 0);
    char *text = contents(f, "results.jsonl.partial");
    assert_string_equal(text, "");
    assert_false(there(f, "summaries/000001-x-1.md.partial"));
    assert_true(there(f, "notes.partial"));
    assert_true(there(f, "summaries/x.md.partial"));
    assert_true(there(f, "summaries/00001-x.md.partial"));
    assert_true(there(f, "summaries/a.tmp"));
    free(text);
    fixture_free(f);
}

static void a_full_disk_leaves_whole_lines_and_the_old_results(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct err e = {0};
    struct rlimit was, small;
    put(f, "results.jsonl", "old\n");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    small = was;
    small.rlim_cur = 1500; /* two records fit, a third does not */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = 0, n = 0;
    while (!rc && n < 10)
        rc = write_stage.push(&f->stage, answer(document(n++), "words"), &e);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(rc, -ERR_IO);
    assert_int_equal(e.reach, REACH_JOB);
    assert_non_null(strstr(e.msg, "results.jsonl.partial"));
    char *kept = contents(f, "results.jsonl.partial"), *old = contents(f, "results.jsonl");
    assert_true(strlen(kept) > 0 && kept[strlen(kept) - 1] == '\n');
    assert_string_equal(old, "old\n");
    free(kept);
    free(old);
    fixture_free(f);
}

/* ---- tally ---- */

static void the_slowest_are_kept_in_order(void **state)
{
    (void)state;
    struct tally t = {0};
    for (int i = 0; i < 30; i++) {
        struct doc *d = document(i);
        tally_add(&t, d, DOC_OK, NULL, NULL, 0, i * 7 % 30 + 1);
        doc_unref(d);
    }
    assert_int_equal(t.n_slowest, TALLY_SLOWEST);
    for (int i = 0; i < TALLY_SLOWEST; i++)
        assert_int_equal(t.slowest[i].compute_us, 30 - i);
    tally_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_out_in_input_order_whatever_the_order_of_answers),
        cmocka_unit_test(a_record_says_everything_that_is_promised),
        cmocka_unit_test(an_empty_answer_is_a_failure_with_a_name),
        cmocka_unit_test(text_that_the_model_did_not_see_makes_a_record_partial),
        cmocka_unit_test(a_document_fails_once_and_later_answers_are_dropped),
        cmocka_unit_test(the_first_question_that_failed_is_the_reason_whichever_came_first),
        cmocka_unit_test(the_answers_to_all_questions_make_one_record),
        cmocka_unit_test(an_unread_document_has_a_record_with_nulls),
        cmocka_unit_test(a_run_that_ends_early_keeps_what_is_settled_in_order),
        cmocka_unit_test(names_of_summaries_are_never_paths),
        cmocka_unit_test(a_title_is_one_line_of_text_in_a_page),
        cmocka_unit_test(a_manifest_lists_only_files_of_this_program),
        cmocka_unit_test(a_new_run_replaces_the_old_one_only_at_its_end),
        cmocka_unit_test(a_run_that_ends_early_never_replaces_a_finished_one),
        cmocka_unit_test(what_an_unfinished_run_left_is_removed_at_the_start),
        cmocka_unit_test(a_full_disk_leaves_whole_lines_and_the_old_results),
        cmocka_unit_test(the_slowest_are_kept_in_order),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

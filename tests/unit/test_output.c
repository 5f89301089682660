/* The output folder before, during and after a run; lines and pages in it. */
#include "tests/unit/write_rig.h"

#include <signal.h>
#include <sys/resource.h>

/* ---- names and manifests ---- */

/* The record that a document with this title would have. */
static struct result_line record_of(struct fixture *f, struct doc *d)
{
    struct err e = {0};
    struct result_line l;
    struct result r = {.doc = d};
    result_judge(&r);
    char *text = result_json(&r, &f->env, &e);
    assert_int_equal(result_line_parse(&l, text, strlen(text), &e), 0);
    free(text);
    return l;
}

static void nothing_of_a_document_is_in_the_name_of_its_page(void **state)
{
    (void)state;
    static const char *const titles[] = {"../../etc/passwd",     "a/b\\c",    ".hidden",
                                         "\xc3\xa9t\xc3\xa9",    "",          "-rf",
                                         "  Minutes of 3 May  ", "con\n.md\0"};
    struct fixture *f = fixture_new(false);
    for (size_t i = 0; i < ARRAY_LEN(titles); i++) {
        char name[128];
        struct doc *d = document(12);
        d->title = mem_strdup(titles[i]);
        struct result_line l = record_of(f, d);
        markdown_name(&l, name, sizeof(name));
        assert_string_equal(name, "summaries/000012-00000000.md");
        assert_true(manifest_name_ok(name));
        result_line_release(&l);
        doc_unref(d);
    }
    fixture_free(f);
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
    struct result_line l = record_of(f, d);
    markdown_name(&l, name, sizeof(name));
    result_line_release(&l);
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
    assert_true(there(f, "summaries/000000-00000000.md"));
    assert_true(there(f, "summaries/mine.md"));
    assert_false(there(f, "results.jsonl.partial"));
    char command[200];
    snprintf(command, sizeof(command), "cd %s && sha256sum --quiet -c MANIFEST.sha256",
             f->folder);
    assert_int_equal(system(command), 0);
    fixture_free(f);
}

static void what_an_unfinished_run_left_is_removed_but_for_its_records(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct err e = {0};
    put(f, "results.jsonl.partial", "{\"a\":1}\n{\"b\":2}\n{\"torn");
    put(f, "run.json.partial", "{}");
    put(f, "summaries/000001-x-1.md.partial", "torn");
    put(f, "notes.partial", "not of quire");
    put(f, "summaries/x.md.partial", "not of quire");
    put(f, "summaries/00001-x.md.partial", "not of quire");
    put(f, "summaries/a.tmp", "not of quire");
    output_close(f->env.output);
    assert_int_equal(output_open(&f->env.output, f->folder, &e), 0);
    char *text = contents(f, "results.jsonl.partial");
    assert_string_equal(text, "{\"a\":1}\n{\"b\":2}\n");
    assert_false(there(f, "run.json.partial"));
    assert_false(there(f, "summaries/000001-x-1.md.partial"));
    assert_true(there(f, "notes.partial"));
    assert_true(there(f, "summaries/x.md.partial"));
    assert_true(there(f, "summaries/00001-x.md.partial"));
    assert_true(there(f, "summaries/a.tmp"));
    free(text);
    fixture_free(f);
}

static void lines_that_are_there_already_are_kept_up_to_the_first_that_differs(void **state)
{
    (void)state;
    static const char *const old[] = {"one", "two", "three", "four"};
    struct err e = {0};
    for (int same = 0; same <= 4; same++) {
        struct fixture *f = fixture_new(false);
        for (int i = 0; i < 4; i++)
            assert_int_equal(output_line(f->env.output, old[i], strlen(old[i]), &e), 0);
        output_close(f->env.output);
        assert_int_equal(output_open(&f->env.output, f->folder, &e), 0);
        for (int i = 0; i < same; i++)
            assert_int_equal(output_line(f->env.output, old[i], strlen(old[i]), &e), 0);
        char *text = contents(f, "results.jsonl.partial");
        assert_string_equal(text, "one\ntwo\nthree\nfour\n");
        free(text);
        assert_int_equal(output_line(f->env.output, "new", 3, &e), 0);
        assert_int_equal(output_publish(f->env.output, &e), 0);
        text = contents(f, "results.jsonl");
        char want[64] = "";
        for (int i = 0; i < same; i++)
            strcat(strcat(want, old[i]), "\n");
        strcat(want, "new\n");
        assert_string_equal(text, want);
        free(text);
        fixture_free(f);
    }
}

static void a_record_is_printed_again_as_it_was(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct err e = {0};
    struct doc *d = document(3);
    d->title = mem_strdup("\xc3\xa9 \"x\" \xe2\x80\xa8 \\ / \x01");
    struct result r = {.doc = d, .has_account = true, .coverage = 0.123457, .n_chunks = 4};
    char *text = result_json(&r, &f->env, &e);
    struct result_line l;
    assert_int_equal(result_line_parse(&l, text, strlen(text), &e), 0);
    char *again = result_line_print(&l, 3, "mail.zip");
    assert_string_equal(text, again);
    free(again);
    again = result_line_print(&l, 99, "other.zip");
    assert_non_null(strstr(again, "\"ordinal\":99,"));
    assert_non_null(strstr(again, "\"source\":\"other.zip\","));
    free(again);
    result_line_release(&l);
    free(text);
    doc_unref(d);
    fixture_free(f);
}

static void what_is_no_record_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "null",
                                      "[]",
                                      "{}",
                                      "{\"schema\":\"quire.result/1\"}",
                                      "{\"schema\":1}",
                                      "{\"a\":1,\"a\":2}",
                                      "{"};
    struct err e = {0};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct result_line l;
        assert_int_equal(result_line_parse(&l, bad[i], strlen(bad[i]), &e), -ERR_FORMAT);
        err_clear(&e);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_a_document_is_in_the_name_of_its_page),
        cmocka_unit_test(a_title_is_one_line_of_text_in_a_page),
        cmocka_unit_test(a_manifest_lists_only_files_of_this_program),
        cmocka_unit_test(a_new_run_replaces_the_old_one_only_at_its_end),
        cmocka_unit_test(what_an_unfinished_run_left_is_removed_but_for_its_records),
        cmocka_unit_test(lines_that_are_there_already_are_kept_up_to_the_first_that_differs),
        cmocka_unit_test(a_record_is_printed_again_as_it_was),
        cmocka_unit_test(what_is_no_record_is_refused),
        cmocka_unit_test(a_full_disk_leaves_whole_lines_and_the_old_results),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

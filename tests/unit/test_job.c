/* A job file becomes a job, and a job a job file. tests/golden/run_check.py has the messages of broken files. */
#include "pipeline/job.h"
#include "pipeline/job_docs.h"
#include "pipeline/job_file.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NOT_A_LIST                                                                             \
    "--set decode.stop: not a list with items: write [a, \"b, c\"], or repeat --set "          \
    "decode.stop=VALUE"
#define LEAST "model: {kind: null}\ningest: {from: docs}\nwrite: {to: out}\n"

static void parse(struct job *j, const char *text, const char *path)
{
    struct err e = {0};
    int rc = job_parse(j, text, strlen(text), path, &e);
    if (rc)
        print_error("%s\n", e.msg);
    assert_int_equal(rc, 0);
}

static void refuse(const char *text, const char *message)
{
    struct job j;
    struct err e = {0};
    assert_int_equal(job_parse(&j, text, strlen(text), "/w/job.yaml", &e), -ERR_CONFIG);
    assert_string_equal(e.msg, message);
    assert_int_equal(e.reach, REACH_JOB);
    assert_null(j.name);
}

static char *print(const struct job *j)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, 16 << 20);
    assert_int_equal(job_print(j, &b, &e), 0);
    return buf_take(&b);
}

static void names_a_job_after_its_file(void **state)
{
    (void)state;
    const char *const pairs[][2] = {{"/w/minutes.nightly.yaml", "minutes.nightly"},
                                    {"/w/my job.yaml", "my_job"},
                                    {"/w/.hidden", "jhidden"},
                                    {"/w/\xc3\xa9.yml", "j_"},
                                    {"/w/plain", "plain"}};
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        struct job j;
        parse(&j, LEAST, pairs[i][0]);
        assert_string_equal(j.name, pairs[i][1]);
        job_release(&j);
    }
}

static void makes_paths_absolute_from_the_folder_of_the_file(void **state)
{
    (void)state;
    struct job j;
    char cwd[4096], want[5000];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    parse(&j, LEAST, "/w/jobs/a.yaml");
    assert_string_equal(j.write.to, "/w/jobs/out");
    assert_string_equal(j.ingest.from.items[0], "/w/jobs/docs");
    job_release(&j);
    parse(&j, LEAST, "jobs/a.yaml");
    snprintf(want, sizeof(want), "%s/jobs/out", cwd);
    assert_string_equal(j.write.to, want);
    job_release(&j);
}

static void a_list_in_the_file_replaces_and_a_single_text_is_a_list(void **state)
{
    (void)state;
    struct job j;
    parse(&j, LEAST "decode:\n  stop: END\n", "/w/a.yaml");
    assert_int_equal(j.decode.stop.n, 1);
    assert_string_equal(j.decode.stop.items[0], "END");
    job_release(&j);
}

static void what_is_printed_loads_to_the_same_job(void **state)
{
    (void)state;
    /* Texts that a careless printer would lose: quotes, escapes, blanks at the ends, breaks, what YAML reads. */
    const char *const texts[] = {
        "",         " ",         "a\\nb",   "\\\"",     "null",    "yes",         "- x",
        "a: b # c", "\\t",       "\\u0001", "\\u0085",  "\\u2028", "a\\n\\n",     "\\na",
        " a\\n b",  "a\\n b\\n", "a\\n ",   "a\\r\\nb", "\\ufeff", "\\U0001f600", "x\\n\\ty",
        "%",        "@",         "`",       "---",      "...",     "a\\n---\\nb", "!x",
        "&x",       "*x",        "'",       "a\\n#b",   "\\e",     "\\x7f"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char yaml[512];
        struct job a, b;
        snprintf(yaml, sizeof(yaml),
                 LEAST "prompt:\n  system: \"%s\"\ndecode:\n  stop: [\"s%s\"]\n", texts[i],
                 texts[i]);
        parse(&a, yaml, "/w/a.yaml");
        char *first = print(&a);
        parse(&b, first, "/other/b.yaml");
        char *second = print(&b);
        assert_string_equal(first, second);
        assert_string_equal(a.prompt.system, b.prompt.system);
        assert_string_equal(a.decode.stop.items[0], b.decode.stop.items[0]);
        free(first);
        free(second);
        job_release(&a);
        job_release(&b);
    }
}

static void refuses_a_file_over_one_mebibyte(void **state)
{
    (void)state;
    size_t n = (1 << 20) + 1;
    char *text = malloc(n);
    struct job j;
    struct err e = {0};
    memset(text, '#', n);
    assert_int_equal(job_parse(&j, text, n, "/w/a.yaml", &e), -ERR_CONFIG);
    assert_non_null(strstr(e.msg, "at most 1048576"));
    free(text);
}

static void a_megabyte_of_prompt_comes_back(void **state)
{
    (void)state;
    size_t n = 900 * 1000;
    char *text = calloc(n + 1000, 1);
    size_t len = (size_t)sprintf(text, LEAST "prompt:\n  system: \"");
    for (size_t i = 0; i < n / 10; i++)
        len += (size_t)sprintf(text + len, "word%05zu ", i);
    strcpy(text + len, "\"\n");
    struct job a, b;
    parse(&a, text, "/w/a.yaml");
    char *first = print(&a);
    parse(&b, first, "/w/b.yaml");
    assert_string_equal(a.prompt.system, b.prompt.system);
    free(first);
    free(text);
    job_release(&a);
    job_release(&b);
}

static void deep_nesting_ends_at_once(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH + 1);
    memset(text, '[', DEPTH);
    text[DEPTH] = '\0';
    refuse(text, "/w/job.yaml:1:1: a job file is a mapping of sections, such as \"model:\"");
    memcpy(text, "a: ", 3);
    refuse(text, "/w/job.yaml:1:5: a list inside a list");
    memset(text, '{', DEPTH);
    refuse(text, "/w/job.yaml:1:2: a mapping where a key is expected");
    free(text);
}

static void keys_have_an_upper_bound(void **state)
{
    (void)state;
    char *text = calloc(1, 64 * JOB_FILE_KEYS);
    size_t n = 0;
    for (int i = 0; i <= JOB_FILE_KEYS; i++)
        n += (size_t)sprintf(text + n, "k%d: 1\n", i);
    refuse(text, "/w/job.yaml:513:1: more than 512 keys");
    free(text);
}

static void settings_replace_the_file_and_add_up_in_lists(void **state)
{
    (void)state;
    const char *const settings[] = {"decode.max_tokens=7", "ingest.from=x", "ingest.from=/y",
                                    "job=other", "prompt.system=a=b"};
    char path[] = "/tmp/quire-test-job-XXXXXX", want[5000], cwd[4096];
    struct job j;
    struct err e = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, LEAST, strlen(LEAST)) == (ssize_t)strlen(LEAST));
    close(fd);
    assert_int_equal(job_load_with(&j, path, settings, ARRAY_LEN(settings), &e), 0);
    assert_int_equal(j.decode.max_tokens, 7);
    assert_int_equal(j.ingest.from.n, 2);
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    snprintf(want, sizeof(want), "%s/x", cwd);
    assert_string_equal(j.ingest.from.items[0], want);
    assert_string_equal(j.ingest.from.items[1], "/y");
    assert_string_equal(j.name, "other");
    assert_string_equal(j.prompt.system, "a=b");
    job_release(&j);

    const char *const lists[] = {"decode.stop=[a, \"b, c\", '[END]']", "decode.stop=d",
                                 "prompt.system=[x, y]"};
    assert_int_equal(job_load_with(&j, path, lists, ARRAY_LEN(lists), &e), 0);
    assert_int_equal(j.decode.stop.n, 4);
    assert_string_equal(j.decode.stop.items[0], "a");
    assert_string_equal(j.decode.stop.items[1], "b, c");
    assert_string_equal(j.decode.stop.items[2], "[END]");
    assert_string_equal(j.decode.stop.items[3], "d");
    assert_string_equal(j.prompt.system, "[x, y]");
    job_release(&j);

    const char *const bad[][2] = {
        {"decode.stop=[]", NOT_A_LIST},
        {"decode.stop=[a, [b]]", NOT_A_LIST},
        {"decode.stop=[a]\n  seed: [5]", NOT_A_LIST},
        {"decode.stop=[a: b]", NOT_A_LIST},
        {"decode.max_tokens",
         "--set decode.max_tokens: write section.key=value, such as decode.max_tokens=100"},
        {"decode.max_token=5",
         "--set: unknown key \"max_token\" in decode: did you mean \"max_tokens\"?"},
        {"decode.max_tokens=0",
         "--set: decode.max_tokens: 0 is too small: 1 to 1048576 tokens"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        err_clear(&e);
        assert_int_equal(job_load_with(&j, path, &bad[i][0], 1, &e), -ERR_CONFIG);
        assert_string_equal(e.msg, bad[i][1]);
    }
    unlink(path);
}

static void every_default_is_inside_its_own_range(void **state)
{
    (void)state;
    struct job j = {0};
    struct err e = {0};
    assert_int_equal(job_defaults(&j, &e), 0);
    job_release(&j);
}

static void the_schema_is_json_and_knows_every_key(void **state)
{
    (void)state;
    struct buf b;
    struct err e = {0};
    json_error_t why;
    buf_init(&b, 1 << 20);
    assert_int_equal(job_docs_schema(&b, &e), 0);
    json_t *root = json_loads(b.data, 0, &why), *sections = json_object_get(root, "properties");
    for (size_t i = 0; i < n_job_sections; i++)
        for (size_t k = 0; k < *job_sections[i].n_opts; k++) {
            json_t *keys =
                json_object_get(json_object_get(sections, job_sections[i].name), "properties");
            assert_non_null(json_object_get(keys, job_sections[i].opts[k].name));
        }
    json_decref(root);
    buf_release(&b);
}

static void wraps_at_spaces_and_keeps_long_words(void **state)
{
    (void)state;
    struct buf b;
    struct err e = {0};
    buf_init(&b, 10000);
    assert_int_equal(job_docs_wrap(&b, 70, "one two three a-word-that-is-too-long x", &e), 0);
    assert_string_equal(
        b.data + 70,
        "one two\n"
        "                                                                      three\n"
        "                                                                      "
        "a-word-that-is-too-long\n"
        "                                                                      x\n");
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_a_job_after_its_file),
        cmocka_unit_test(makes_paths_absolute_from_the_folder_of_the_file),
        cmocka_unit_test(a_list_in_the_file_replaces_and_a_single_text_is_a_list),
        cmocka_unit_test(what_is_printed_loads_to_the_same_job),
        cmocka_unit_test(refuses_a_file_over_one_mebibyte),
        cmocka_unit_test(a_megabyte_of_prompt_comes_back),
        cmocka_unit_test(deep_nesting_ends_at_once),
        cmocka_unit_test(keys_have_an_upper_bound),
        cmocka_unit_test(settings_replace_the_file_and_add_up_in_lists),
        cmocka_unit_test(every_default_is_inside_its_own_range),
        cmocka_unit_test(the_schema_is_json_and_knows_every_key),
        cmocka_unit_test(wraps_at_spaces_and_keeps_long_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

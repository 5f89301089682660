/* Files, folders, patterns: what is read, in which order. */
#include "tests/unit/ingest_maker.h"

#include <sys/stat.h>

static void make_tree(struct try *t)
{
    char path[200];
    static const char *const folders[] = {"in", "in/b", "in/.hidden"};
    static const char *const files[] = {"in/c.txt",   "in/a.md",     "in/B.txt",
                                        "in/b/x.txt", "in/.dot.txt", "in/.hidden/y.txt"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", t->folder, folders[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        try_file(t, files[i], files[i], strlen(files[i]));
    snprintf(path, sizeof(path), "%s/in/b/loop", t->folder);
    assert_int_equal(symlink("..", path), 0);
    snprintf(path, sizeof(path), "%s/in/dangling", t->folder);
    assert_int_equal(symlink("nowhere", path), 0);
}

static void from_folder(struct try *t, const char *what)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", t->folder, what);
    try_option(t, "from", path);
}

static void expect_sources(struct try *t, const char *const *want)
{
    size_t skip = strlen(t->folder) + 1, n = 0;
    for (; want[n]; n++) {
        assert_true(n < t->n);
        assert_string_equal(t->docs[n]->source + skip, want[n]);
    }
    assert_int_equal(t->n, n);
}

static void folders_are_read_in_byte_order(void **state)
{
    (void)state;
    struct try *t = try_new();
    make_tree(t);
    from_folder(t, "in/");
    assert_int_equal(try_run(t), 0);
    expect_sources(t, (const char *const[]){"in/B.txt", "in/a.md", "in/b/x.txt", "in/c.txt",
                                            "in/dangling", NULL});
    assert_int_equal(t->docs[4]->fail.code, ERR_IO);
    assert_int_equal(t->stats.bytes_read, t->stats.bytes_planned);
    assert_int_equal(t->stats.docs_found, 5);
    try_free(t);
}

static void a_file_named_twice_is_read_once(void **state)
{
    (void)state;
    struct try *t = try_new();
    make_tree(t);
    from_folder(t, "in/c.txt");
    from_folder(t, "in/*.txt");
    from_folder(t, "in/.dot.txt");
    from_folder(t, "in");
    assert_int_equal(try_run(t), 0);
    expect_sources(t, (const char *const[]){"in/c.txt", "in/B.txt", "in/.dot.txt", "in/a.md",
                                            "in/b/x.txt", "in/dangling", NULL});
    try_free(t);
}

static void the_folder_of_results_is_left_out(void **state)
{
    (void)state;
    struct try *t = try_new();
    char to[200];
    make_tree(t);
    /* the folder counts, not its spelling */
    snprintf(to, sizeof(to), "%s/in/../in/b", t->folder);
    t->write.to = to;
    from_folder(t, "in");
    assert_int_equal(try_run(t), 0);
    expect_sources(
        t, (const char *const[]){"in/B.txt", "in/a.md", "in/c.txt", "in/dangling", NULL});
    assert_int_equal(t->stats.bytes_read, t->stats.bytes_planned);
    try_free(t);
    t = try_new();
    make_tree(t);
    snprintf(to, sizeof(to), "%s/in/absent", t->folder);
    t->write.to = to;
    from_folder(t, "in");
    assert_int_equal(try_run(t), 0);
    assert_int_equal(t->n, 5);
    try_free(t);
    t = try_new();
    make_tree(t);
    snprintf(to, sizeof(to), "%s/in/b", t->folder);
    t->write.to = to;
    from_folder(t, "in/*"); /* an item of its own */
    assert_int_equal(try_run(t), 0);
    assert_int_equal(t->n, 4);
    try_free(t);
}

static void the_folder_of_kv_pages_is_left_out(void **state)
{
    (void)state;
    struct try *t = try_new();
    char disk[200];
    make_tree(t);
    snprintf(disk, sizeof(disk), "%s/in/b", t->folder);
    t->kv.disk = disk;
    from_folder(t, "in");
    assert_int_equal(try_run(t), 0);
    assert_int_equal(t->n, 4);
    assert_int_equal(t->stats.bytes_read, t->stats.bytes_planned);
    try_free(t);
}

/* Two folders in two places: what is read is the same, and so is its identity. */
static void an_archive_that_moves_keeps_its_ids(void **state)
{
    (void)state;
    struct try *t = try_new(), *u = try_new();
    make_tree(t);
    make_tree(u);
    from_folder(t, "in");
    from_folder(u, "in");
    assert_int_equal(try_run(t), 0);
    assert_int_equal(try_run(u), 0);
    assert_string_not_equal(t->docs[0]->source, u->docs[0]->source);
    assert_int_equal(t->n, u->n);
    for (size_t i = 0; i < t->n; i++)
        assert_string_equal(t->docs[i]->id, u->docs[i]->id);
    assert_string_not_equal(t->docs[0]->id, t->docs[1]->id);
    try_free(t);
    try_free(u);
}

static void patterns_choose_files_and_entries(void **state)
{
    (void)state;
    struct try *t = try_new();
    make_tree(t);
    struct maker m;
    make_usual(&m, "zip", ARCHIVE_FILTER_NONE);
    try_file(t, "in/z.zip", m.bytes, m.n);
    try_file(t, "in/no.zip", m.bytes, m.n);
    try_option(t, "include", "*.txt");
    try_option(t, "exclude", "B*");
    try_option(t, "exclude", "no.*");
    from_folder(t, "in");
    assert_int_equal(try_run(t), 0);
    expect_sources(t, (const char *const[]){"in/b/x.txt", "in/c.txt", "in/z.zip", NULL});
    assert_string_equal(t->docs[2]->chain[0], "a.txt");
    maker_free(&m);
    try_free(t);
}

static void a_missing_path_stops_the_job_and_is_named(void **state)
{
    (void)state;
    static const char *const paths[] = {"/nowhere/at/all.txt", "/nowhere/*.zip"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct try *t = try_new();
        try_option(t, "from", paths[i]);
        assert_int_equal(try_run(t), -ERR_CONFIG);
        assert_int_equal(t->e.reach, REACH_JOB);
        assert_non_null(strstr(t->e.msg, paths[i]));
        assert_int_equal(t->n, 0);
        try_free(t);
    }
}

static void cancel_ends_between_documents(void **state)
{
    (void)state;
    struct maker m;
    maker_open(&m, "ustar", ARCHIVE_FILTER_NONE, NULL);
    for (int i = 0; i < 5; i++)
        maker_text(&m, "a.txt", "text");
    maker_close(&m);
    struct try *t = try_new();
    t->cancel_after = 2;
    from_folder(t, ".");
    try_file(t, "x.tar", m.bytes, m.n);
    try_file(t, "y.txt", "text", 4);
    assert_int_equal(try_run(t), 0);
    assert_int_equal(t->n, 2);
    maker_free(&m);
    try_free(t);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_read_in_byte_order),
        cmocka_unit_test(a_file_named_twice_is_read_once),
        cmocka_unit_test(the_folder_of_results_is_left_out),
        cmocka_unit_test(the_folder_of_kv_pages_is_left_out),
        cmocka_unit_test(an_archive_that_moves_keeps_its_ids),
        cmocka_unit_test(patterns_choose_files_and_entries),
        cmocka_unit_test(a_missing_path_stops_the_job_and_is_named),
        cmocka_unit_test(cancel_ends_between_documents),
    };
    return cmocka_run_group_tests_name("ingest_walk", tests, NULL, NULL);
}

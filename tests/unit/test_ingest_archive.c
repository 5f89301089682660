/* Archives and compression: what is found in them. */
#include "tests/unit/ingest_maker.h"

#include "stages/base/utf8.h"

static void every_format_and_filter_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        int filter;
        const char *name;
    } kinds[] = {
        {"zip", ARCHIVE_FILTER_NONE, "zip"},
        {"7zip", ARCHIVE_FILTER_NONE, "7z"},
        {"ustar", ARCHIVE_FILTER_NONE, "tar"},
        {"gnutar", ARCHIVE_FILTER_GZIP, "gnu tar, gzip"},
        {"pax", ARCHIVE_FILTER_BZIP2, "pax, bzip2"},
        {"ustar", ARCHIVE_FILTER_XZ, "tar, xz"},
        {"ustar", ARCHIVE_FILTER_ZSTD, "tar, zstd"},
        {"ustar", ARCHIVE_FILTER_LZ4, "tar, lz4"},
        {"ustar", ARCHIVE_FILTER_COMPRESS, "tar, compress"},
        {"odc", ARCHIVE_FILTER_NONE, "cpio odc"},
        {"newc", ARCHIVE_FILTER_GZIP, "cpio newc, gzip"},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct maker m, outer;
        make_usual(&m, kinds[i].format, kinds[i].filter);
        struct try *t = try_new();
        try_bytes(t, "whatever.dat", m.bytes, m.n);
        if (t->n != 2)
            fail_msg("%s: %zu documents, %s", kinds[i].name, t->n,
                     t->n ? t->docs[0]->fail.msg : "");
        check_usual(t, 0, NULL);
        try_free(t);
        /* the same inside another archive, which cannot seek */
        maker_open(&outer, "ustar", ARCHIVE_FILTER_GZIP, NULL);
        maker_text(&outer, "first.txt", "first");
        maker_add(&outer, "inner", AE_IFREG, m.bytes, m.n);
        maker_text(&outer, "last.txt", "last");
        maker_close(&outer);
        t = try_new();
        try_bytes(t, "outer.tgz", outer.bytes, outer.n);
        if (t->n != 4)
            fail_msg("%s inside: %zu documents, %s", kinds[i].name, t->n,
                     t->n > 1 ? t->docs[1]->fail.msg : "");
        check_usual(t, 1, "inner");
        assert_string_equal(t->docs[3]->text, "last");
        try_free(t);
        maker_free(&m);
        maker_free(&outer);
    }
}

static void ids_differ_for_namesakes_and_repeat_between_runs(void **state)
{
    (void)state;
    struct maker m;
    maker_open(&m, "ustar", ARCHIVE_FILTER_NONE, NULL);
    maker_text(&m, "a.txt", "same");
    maker_text(&m, "a.txt", "same");
    maker_close(&m);
    struct try *t = try_new(), *again = try_new();
    try_bytes(t, "x.tar", m.bytes, m.n);
    assert_int_equal(t->n, 2);
    assert_string_not_equal(t->docs[0]->id, t->docs[1]->id);
    char path[100];
    snprintf(path, sizeof(path), "%s/x.tar", t->folder);
    try_path(again, path);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(strlen(t->docs[i]->id), 32);
        assert_string_equal(t->docs[i]->id, again->docs[i]->id);
    }
    maker_free(&m);
    try_free(again);
    try_free(t);
}

static void concatenated_tars_are_read_to_the_end(void **state)
{
    (void)state;
    struct maker a, b;
    make_usual(&a, "ustar", ARCHIVE_FILTER_NONE);
    maker_open(&b, "ustar", ARCHIVE_FILTER_NONE, NULL);
    maker_text(&b, "second.txt", "second tar");
    maker_close(&b);
    char *both = malloc(a.n + b.n);
    memcpy(both, a.bytes, a.n);
    memcpy(both + a.n, b.bytes, b.n);
    struct try *t = try_new();
    try_bytes(t, "x.tar", both, a.n + b.n);
    assert_int_equal(t->n, 3);
    assert_string_equal(t->docs[2]->text, "second tar");
    free(both);
    maker_free(&a);
    maker_free(&b);
    try_free(t);
}

static void a_zip_behind_a_stub_is_found(void **state)
{
    (void)state;
    struct maker m;
    make_usual(&m, "zip", ARCHIVE_FILTER_NONE);
    char *both = malloc(m.n + 40000);
    memset(both, '\n', 40000);
    memcpy(both, "#!/bin/sh\n", 10);
    memcpy(both + 40000, m.bytes, m.n);
    struct try *t = try_new();
    try_bytes(t, "setup.sh", both, m.n + 40000);
    assert_int_equal(t->n, 2);
    check_usual(t, 0, NULL);
    free(both);
    maker_free(&m);
    try_free(t);
}

static void encrypted_entries_fail_alone(void **state)
{
    (void)state;
    struct maker m;
    maker_open(&m, "zip", ARCHIVE_FILTER_NONE, "zip:encryption=zipcrypt");
    maker_text(&m, "a.txt", "text a");
    maker_text(&m, "b.txt", "text b");
    maker_close(&m);
    struct try *t = try_new();
    try_bytes(t, "x.zip", m.bytes, m.n);
    assert_int_equal(t->n, 2);
    assert_int_equal(t->docs[0]->fail.code, ERR_ENCRYPTED);
    assert_string_equal(t->docs[1]->chain[0], "b.txt");
    maker_free(&m);
    try_free(t);
}

/* Offset of the only place where `what` is. */
static char *place_of(struct maker *m, const char *what, size_t len)
{
    for (size_t i = 0; i + len <= m->n; i++)
        if (memcmp(m->bytes + i, what, len) == 0)
            return m->bytes + i;
    fail_msg("not found");
    return NULL;
}

static void a_damaged_entry_fails_and_the_archive_goes_on(void **state)
{
    (void)state;
    struct maker m;
    maker_open(&m, "zip", ARCHIVE_FILTER_NONE, "zip:compression=store");
    maker_text(&m, "a.txt", "text a");
    maker_text(&m, "b.txt", "text b");
    maker_text(&m, "c.txt", "text c");
    maker_close(&m);
    *place_of(&m, "text b", 6) = 'T';
    struct try *t = try_new();
    try_bytes(t, "x.zip", m.bytes, m.n);
    assert_int_equal(t->n, 3);
    assert_string_equal(t->docs[0]->text, "text a");
    assert_int_equal(t->docs[1]->fail.code, ERR_CORRUPT);
    assert_non_null(strstr(t->docs[1]->fail.msg, "CRC"));
    assert_string_equal(t->docs[2]->text, "text c");
    maker_free(&m);
    try_free(t);
}

static void a_cut_tar_gives_what_is_there(void **state)
{
    (void)state;
    struct maker m;
    char long_text[5000];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    maker_open(&m, "ustar", ARCHIVE_FILTER_NONE, NULL);
    maker_text(&m, "a.txt", "text a");
    maker_text(&m, "b.txt", long_text);
    maker_close(&m);
    struct try *t = try_new();
    try_bytes(t, "x.tar", m.bytes, 512 * 3 + 2000);
    assert_int_equal(t->docs[0]->status, DOC_OK);
    assert_int_equal(t->docs[1]->status, DOC_PARTIAL);
    assert_int_equal(t->docs[1]->text_len, 2000);
    assert_int_equal(t->n, 3); /* and the archive itself, cut short */
    assert_int_equal(t->docs[2]->status, DOC_FAILED);
    maker_free(&m);
    try_free(t);
}

/* Entries a.txt, sub, sub/b.html and link: blocks of header and text, then the end. */
static void a_tar_that_was_cut_between_entries_is_not_whole(void **state)
{
    (void)state;
    static const size_t documents[] = {0, 0, 1, 1, 1, 2, 2, 2, 2}; /* before block i is cut */
    struct maker m;
    char packed[8192];
    make_usual(&m, "ustar", ARCHIVE_FILTER_NONE);
    for (size_t i = 2; i < ARRAY_LEN(documents); i++) {
        if (i == 4)
            continue; /* inside of an entry: another test */
        bool whole = i > 6;
        size_t n = gzip(m.bytes, 512 * i, packed, sizeof(packed));
        for (int zipped = 0; zipped < 2; zipped++) {
            struct try *t = try_new();
            try_bytes(t, zipped ? "x.tar.gz" : "x.tar", zipped ? packed : m.bytes,
                      zipped ? n : 512 * i);
            assert_int_equal(t->n, documents[i] + !whole);
            for (size_t k = 0; k < documents[i]; k++)
                assert_int_equal(t->docs[k]->status, DOC_OK);
            if (!whole) {
                assert_int_equal(t->docs[t->n - 1]->status, DOC_FAILED);
                assert_non_null(strstr(t->docs[t->n - 1]->fail.msg, "ends without"));
            }
            try_free(t);
        }
    }
    maker_free(&m);
}

static void a_zip_without_all_of_its_directory_is_not_whole(void **state)
{
    (void)state;
    struct maker m;
    make_usual(&m, "zip", ARCHIVE_FILTER_NONE);
    size_t directory = 0;
    for (size_t i = 0; i + 4 < m.n && !directory; i++)
        directory = memcmp(m.bytes + i, "PK\1\2", 4) == 0 ? i : 0;
    for (size_t n = directory; n < m.n; n++) {
        struct try *t = try_new();
        try_bytes(t, "x.zip", m.bytes, n);
        assert_int_equal(t->n, 3);
        assert_int_equal(t->docs[2]->status, DOC_FAILED);
        assert_int_equal(t->docs[2]->fail.code, ERR_CORRUPT);
        if (n >= directory + 8) /* libarchive looks for an entry a few bytes behind the last */
            check_usual(t, 0, NULL);
        else
            assert_string_equal(t->docs[0]->text, "text a");
        try_free(t);
    }
    maker_free(&m);
}

static void gzip_members_are_joined_and_checked(void **state)
{
    (void)state;
    unsigned char packed[4096];
    size_t a = gzip("hello ", 6, packed, sizeof(packed));
    size_t n = a + gzip("world\n", 6, packed + a, sizeof(packed) - a);
    struct try *t = try_new();
    struct doc *d = try_bytes(t, "x.html.gz", packed, n);
    assert_string_equal(d->text, "hello world");
    assert_string_equal(d->media_type, "text/html"); /* by the name inside */
    assert_null(d->chain[0]);
    try_free(t);
    packed[n - 6] ^= 1; /* the checksum */
    t = try_new();
    d = try_bytes(t, "x.txt.gz", packed, n);
    assert_int_equal(d->fail.code, ERR_CORRUPT);
    try_free(t);
}

static void entry_names_become_printable_labels(void **state)
{
    (void)state;
    struct maker m;
    maker_open(&m, "zip", ARCHIVE_FILTER_NONE, NULL);
    maker_text(&m, "a\x1b[31m\n\xff.txt", "text");
    maker_close(&m);
    struct try *t = try_new();
    struct doc *d = try_bytes(t, "x.zip", m.bytes, m.n);
    assert_non_null(d);
    assert_true(utf8_valid_prefix(d->chain[0], strlen(d->chain[0])) == strlen(d->chain[0]));
    for (const char *p = d->chain[0]; *p; p++)
        assert_true((unsigned char)*p >= ' ');
    maker_free(&m);
    try_free(t);
}

static void legacy_names_are_read_by_option(void **state)
{
    (void)state;
    struct maker m;
    maker_open(&m, "ustar", ARCHIVE_FILTER_NONE, NULL);
    maker_text(&m, "\x8f\x90\x88.txt", "text");
    maker_close(&m);
    struct try *t = try_new();
    struct doc *d = try_bytes(t, "x.tar", m.bytes, m.n);
    assert_string_equal(d->chain[0], "\\x8f\\x90\\x88.txt");
    try_free(t);
    t = try_new();
    try_option(t, "name_encoding", "cp866");
    d = try_bytes(t, "x.tar", m.bytes, m.n);
    assert_string_equal(d->chain[0], "ПРИ.txt");
    maker_free(&m);
    try_free(t);
}

static void jsonl_inside_an_archive_gives_its_lines(void **state)
{
    (void)state;
    struct maker m;
    maker_open(&m, "ustar", ARCHIVE_FILTER_NONE, NULL);
    maker_text(&m, "a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n");
    maker_close(&m);
    struct try *t = try_new();
    try_bytes(t, "x.tar", m.bytes, m.n);
    assert_int_equal(t->n, 2);
    char *name = doc_name(t->docs[1]);
    assert_non_null(strstr(name, "x.tar/a.jsonl/line 2"));
    free(name);
    maker_free(&m);
    try_free(t);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_filter_is_read),
        cmocka_unit_test(ids_differ_for_namesakes_and_repeat_between_runs),
        cmocka_unit_test(concatenated_tars_are_read_to_the_end),
        cmocka_unit_test(a_zip_behind_a_stub_is_found),
        cmocka_unit_test(encrypted_entries_fail_alone),
        cmocka_unit_test(a_damaged_entry_fails_and_the_archive_goes_on),
        cmocka_unit_test(a_cut_tar_gives_what_is_there),
        cmocka_unit_test(a_tar_that_was_cut_between_entries_is_not_whole),
        cmocka_unit_test(a_zip_without_all_of_its_directory_is_not_whole),
        cmocka_unit_test(gzip_members_are_joined_and_checked),
        cmocka_unit_test(entry_names_become_printable_labels),
        cmocka_unit_test(legacy_names_are_read_by_option),
        cmocka_unit_test(jsonl_inside_an_archive_gives_its_lines),
    };
    return cmocka_run_group_tests_name("ingest_archive", tests, NULL, NULL);
}

/* Bombs, deep nests, garbage: the limits of archives. */
#include "tests/unit/ingest_maker.h"

#define BYTES(s) (s), sizeof(s) - 1

static void nesting_stops_at_its_limit(void **state)
{
    (void)state;
    struct maker m[4];
    make_usual(&m[0], "ustar", ARCHIVE_FILTER_NONE);
    for (int i = 1; i < 4; i++) {
        maker_open(&m[i], i == 2 ? "zip" : "ustar", ARCHIVE_FILTER_NONE, NULL);
        maker_add(&m[i], "in", AE_IFREG, m[i - 1].bytes, m[i - 1].n);
        maker_text(&m[i], "z.txt", "after");
        maker_close(&m[i]);
    }
    struct try *t = try_new();
    try_option(t, "max_depth", "3");
    try_bytes(t, "x", m[3].bytes, m[3].n);
    assert_int_equal(t->n, 4);
    assert_int_equal(t->docs[0]->fail.code, ERR_LIMIT);
    assert_non_null(strstr(t->docs[0]->fail.msg, "ingest.max_depth"));
    assert_string_equal(t->docs[0]->chain[2], "in");
    assert_string_equal(t->docs[3]->text, "after");
    try_free(t);
    t = try_new();
    try_option(t, "max_depth", "4");
    try_bytes(t, "x", m[3].bytes, m[3].n);
    assert_int_equal(t->n, 5);
    try_free(t);
    for (int i = 0; i < 4; i++)
        maker_free(&m[i]);
}

static void entries_stop_at_their_limit(void **state)
{
    (void)state;
    struct maker m;
    maker_open(&m, "ustar", ARCHIVE_FILTER_NONE, NULL);
    for (int i = 0; i < 5; i++)
        maker_text(&m, "a.txt", "text");
    maker_close(&m);
    struct try *t = try_new();
    try_option(t, "max_entries", "3");
    try_bytes(t, "x.tar", m.bytes, m.n);
    assert_int_equal(t->n, 4);
    assert_int_equal(t->docs[2]->status, DOC_OK);
    assert_int_equal(t->docs[3]->fail.code, ERR_LIMIT);
    assert_non_null(strstr(t->docs[3]->fail.msg, "ingest.max_entries"));
    assert_null(t->docs[3]->chain[0]);
    try_free(t);
    maker_free(&m);
}

static void a_bomb_is_stopped_by_its_ratio(void **state)
{
    (void)state;
    char *zeros = malloc(5 << 20);
    memset(zeros, 'a', 5 << 20);
    struct maker m;
    maker_open(&m, "zip", ARCHIVE_FILTER_NONE, NULL);
    maker_add(&m, "bomb.txt", AE_IFREG, zeros, 5 << 20);
    maker_text(&m, "z.txt", "after");
    maker_close(&m);
    struct try *t = try_new();
    try_bytes(t, "x.zip", m.bytes, m.n);
    assert_int_equal(t->n, 2);
    assert_int_equal(t->docs[0]->fail.code, ERR_LIMIT);
    assert_non_null(strstr(t->docs[0]->fail.msg, "ingest.max_ratio"));
    assert_string_equal(t->docs[1]->text, "after");
    try_free(t);
    unsigned char *packed = malloc(5 << 20);
    size_t n = gzip(zeros, 5 << 20, packed, 5 << 20);
    t = try_new();
    struct doc *d = try_bytes(t, "x.txt.gz", packed, n);
    assert_int_equal(d->fail.code, ERR_LIMIT);
    try_free(t);
    t = try_new();
    try_option(t, "max_ratio", "2000");
    d = try_bytes(t, "x.txt.gz", packed, n);
    assert_int_equal(d->status, DOC_OK);
    assert_int_equal(d->text_len, 5 << 20);
    try_free(t);
    free(packed);
    free(zeros);
    maker_free(&m);
}

/* Text of n bytes that no compression makes much smaller. */
static char *various_words(size_t n)
{
    char *text = malloc(n);
    unsigned x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = i % 7 == 6 ? ' ' : (char)('a' + (x >> 16) % 26);
    }
    return text;
}

static void compress_text(struct maker *m, int filter, const void *text, size_t n)
{
    maker_open(m, "raw", filter, NULL);
    maker_add(m, "text", AE_IFREG, text, n);
    maker_close(m);
}

/* An lz4 block may hold 4 MiB: all of it is read before any of it is delivered. */
static void the_ratio_of_lz4_counts_its_first_block(void **state)
{
    (void)state;
    enum { N = 3 << 19, BOMB = 5 << 20 };
    char *text = various_words(N);
    struct maker m;
    compress_text(&m, ARCHIVE_FILTER_LZ4, text, N);
    struct try *t = try_new();
    struct doc *d = try_bytes(t, "x.txt.lz4", m.bytes, m.n);
    assert_non_null(d);
    if (d->status != DOC_OK)
        fail_msg("%s", d->fail.msg);
    assert_int_equal(d->bytes, N);
    try_free(t);
    maker_free(&m);
    free(text);
    text = malloc(BOMB);
    memset(text, 'a', BOMB);
    compress_text(&m, ARCHIVE_FILTER_LZ4, text, BOMB);
    t = try_new();
    d = try_bytes(t, "x.txt.lz4", m.bytes, m.n);
    assert_non_null(d);
    assert_int_equal(d->fail.code, ERR_LIMIT);
    assert_non_null(strstr(d->fail.msg, "ingest.max_ratio"));
    try_free(t);
    maker_free(&m);
    free(text);
}

static void expect_failure(const void *bytes, size_t n, enum err_code code, const char *words)
{
    struct try *t = try_new();
    struct doc *d = try_bytes(t, "x.txt", bytes, n);
    assert_non_null(d);
    assert_int_equal(d->status, DOC_FAILED);
    if (d->fail.code != code || !strstr(d->fail.msg, words))
        fail_msg("%s: not %s", d->fail.msg, words);
    try_free(t);
}

static void a_compression_cut_before_its_first_bytes_is_not_empty(void **state)
{
    (void)state;
    enum { N = 100000 };
    static const struct {
        int filter;
        size_t cut;
        const char *words;
    } all[] = {{ARCHIVE_FILTER_ZSTD, 300, "runcated"},
               {ARCHIVE_FILTER_LZ4, N / 2, "runcated"},
               {ARCHIVE_FILTER_BZIP2, N / 4, "runcated"},
               {ARCHIVE_FILTER_XZ, 300, "damaged"}};
    char *text = various_words(N);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct maker m;
        compress_text(&m, all[i].filter, text, N);
        assert_true(all[i].cut < m.n);
        expect_failure(m.bytes, all[i].cut, ERR_CORRUPT, all[i].words);
        maker_free(&m);
    }
    free(text);
}

static void nothing_compressed_is_empty(void **state)
{
    (void)state;
    static const char zstd[] = "\x28\xb5\x2f\xfd\x24\0\1\0\0\x99\xe9\xd8\x51";
    static const char lz4[] = "\x04\x22\x4d\x18\x64\x40\xa7\0\0\0\0\5\x5d\xcc\2";
    static const char bzip2[] = "BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0";
    expect_failure(BYTES(zstd), ERR_FORMAT, "empty");
    expect_failure(BYTES(lz4), ERR_FORMAT, "empty");
    expect_failure(BYTES(bzip2), ERR_FORMAT, "empty");
}

static void a_zstd_window_that_is_too_large_is_named(void **state)
{
    (void)state;
    /* no flags, a window of 256 MiB, one raw block of 5 bytes */
    static const char frame[] = "\x28\xb5\x2f\xfd\0\x90\x29\0\0hello";
    expect_failure(BYTES(frame), ERR_UNSUPPORTED, "window over 128 MiB");
}

static void a_container_stops_at_its_bytes(void **state)
{
    (void)state;
    char text[1000];
    memset(text, 'a', sizeof(text));
    struct maker m;
    maker_open(&m, "ustar", ARCHIVE_FILTER_NONE, NULL);
    for (int i = 0; i < 5; i++)
        maker_add(&m, "a.txt", AE_IFREG, text, sizeof(text));
    maker_close(&m);
    struct try *t = try_new();
    try_option(t, "max_container", "2500");
    try_bytes(t, "x.tar", m.bytes, m.n);
    assert_int_equal(t->n, 4); /* two read, one over the limit, and the archive */
    assert_int_equal(t->docs[1]->status, DOC_OK);
    assert_int_equal(t->docs[2]->fail.code, ERR_LIMIT);
    assert_non_null(strstr(t->docs[3]->fail.msg, "ingest.max_container"));
    try_free(t);
    maker_free(&m);
}

static void compression_of_compression_ends(void **state)
{
    (void)state;
    unsigned char a[4096], b[4096];
    size_t n = gzip("text", 4, a, sizeof(a));
    for (int i = 1; i < 5; i++) {
        n = gzip(a, n, b, sizeof(b));
        memcpy(a, b, n);
        struct try *t = try_new();
        struct doc *d = try_bytes(t, "x.gz", a, n);
        if (i < 3)
            assert_string_equal(d->text, "text");
        else
            assert_int_equal(d->fail.code, ERR_LIMIT);
        try_free(t);
    }
}

static void garbage_that_begins_like_an_archive_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } heads[] = {
        {BYTES("\x1f\x8b\x08\0\0\0\0\0\0\3garbage garbage")},
        {BYTES("BZh9\x31\x41\x59\x26\x53\x59garbage garbage")},
        {BYTES("\xfd"
               "7zXZ\0garbage garbage")},
        {BYTES("\x28\xb5\x2f\xfdgarbage garbage")},
        {BYTES("\x04\x22\x4d\x18garbage garbage")},
        {BYTES(
            "PK\3\4\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0\x10\0\0\0\x10\0\0\0\5\0\0\0a.txtgarbage")},
        {BYTES("7z\xbc\xaf\x27\x1cgarbage garbage garbage garbage")},
    };
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        struct try *t = try_new();
        try_bytes(t, "x.txt", heads[i].bytes, heads[i].n);
        assert_true(t->n >= 1);
        assert_int_equal(t->docs[0]->status, DOC_FAILED);
        assert_true(t->docs[0]->fail.msg[0]);
        try_free(t);
    }
}

static void words_that_are_magic_elsewhere_stay_text(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "hello\n",          "name key=value\n",     "begin 644 x\n#0V%T\n`\nend\n",
        "!<arch>\nwords\n", "070707 is a number\n", "PK is short for peacekeeper\n",
        "BZh9 is a code\n", "7z is a program\n"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct try *t = try_new();
        struct doc *d = try_text(t, "x", texts[i]);
        assert_non_null(d);
        assert_int_equal(d->status, DOC_OK);
        assert_string_equal(d->text, texts[i]);
        try_free(t);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nesting_stops_at_its_limit),
        cmocka_unit_test(entries_stop_at_their_limit),
        cmocka_unit_test(a_bomb_is_stopped_by_its_ratio),
        cmocka_unit_test(the_ratio_of_lz4_counts_its_first_block),
        cmocka_unit_test(a_compression_cut_before_its_first_bytes_is_not_empty),
        cmocka_unit_test(nothing_compressed_is_empty),
        cmocka_unit_test(a_zstd_window_that_is_too_large_is_named),
        cmocka_unit_test(a_container_stops_at_its_bytes),
        cmocka_unit_test(compression_of_compression_ends),
        cmocka_unit_test(garbage_that_begins_like_an_archive_is_named),
        cmocka_unit_test(words_that_are_magic_elsewhere_stay_text),
    };
    return cmocka_run_group_tests_name("ingest_limits", tests, NULL, NULL);
}

/* Archives, compression, folders: what is found, and the limits. */
#include "tests/unit/ingest_try.h"

#include "stages/base/utf8.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>
#include <zlib.h>

#define BYTES(s) (s), sizeof(s) - 1

enum { SPACE = 8 << 20 };

/* ---- making archives ---- */

struct maker {
    struct archive *a;
    char *bytes; /* [SPACE] */
    size_t n;
};

static void maker_open(struct maker *m, const char *format, int filter, const char *options)
{
    m->bytes = malloc(SPACE);
    m->a = archive_write_new();
    assert_int_equal(archive_write_set_format_by_name(m->a, format), ARCHIVE_OK);
    assert_int_equal(archive_write_add_filter(m->a, filter), ARCHIVE_OK);
    if (options)
        assert_int_equal(archive_write_set_options(m->a, options), ARCHIVE_OK);
    archive_write_set_passphrase(m->a, "secret"); /* for "zip:encryption=..." */
    archive_write_set_bytes_in_last_block(m->a, 1);
    assert_int_equal(archive_write_open_memory(m->a, m->bytes, SPACE, &m->n), ARCHIVE_OK);
}

static void maker_add(struct maker *m, const char *name, int type, const void *bytes, size_t n)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_filetype(e, (unsigned)type);
    archive_entry_set_perm(e, 0644);
    if (type == AE_IFLNK)
        archive_entry_set_symlink(e, "/etc/passwd");
    archive_entry_set_size(e, (la_int64_t)n);
    assert_int_equal(archive_write_header(m->a, e), ARCHIVE_OK);
    if (type == AE_IFREG)
        assert_int_equal(archive_write_data(m->a, bytes, n), n);
    archive_entry_free(e);
}

static void maker_text(struct maker *m, const char *name, const char *text)
{
    maker_add(m, name, AE_IFREG, text, strlen(text));
}

static void maker_close(struct maker *m)
{
    assert_int_equal(archive_write_free(m->a), ARCHIVE_OK);
}

static void maker_free(struct maker *m)
{
    free(m->bytes);
}

/* An archive with a.txt, a folder, sub/b.html and a link. */
static void make_usual(struct maker *m, const char *format, int filter)
{
    maker_open(m, format, filter, NULL);
    maker_text(m, "a.txt", "text a");
    maker_add(m, "sub", AE_IFDIR, NULL, 0);
    maker_text(m, "sub/b.html", "<title>B</title><p>text b");
    if (strcmp(format, "zip") != 0)
        maker_add(m, "link", AE_IFLNK, NULL, 0);
    maker_close(m);
}

static void check_usual(const struct try *t, size_t from, const char *outer)
{
    const struct doc *a = t->docs[from], *b = t->docs[from + 1];
    size_t depth = outer ? 1 : 0;
    if (a->status == DOC_FAILED)
        fail_msg("%s", a->fail.msg);
    if (outer)
        assert_string_equal(a->chain[0], outer);
    assert_string_equal(a->chain[depth], "a.txt");
    assert_null(a->chain[depth + 1]);
    assert_string_equal(a->text, "text a");
    assert_string_equal(b->chain[depth], "sub/b.html");
    assert_string_equal(b->text, "text b");
    assert_string_equal(b->title, "B");
    assert_int_equal(b->bytes, strlen("<title>B</title><p>text b"));
}

/* ---- reading ---- */

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

static size_t gzip(const void *bytes, size_t n, void *out, size_t cap)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY),
                     Z_OK);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
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

/* ---- limits ---- */

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

/* ---- files and folders ---- */

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
        cmocka_unit_test(every_format_and_filter_is_read),
        cmocka_unit_test(ids_differ_for_namesakes_and_repeat_between_runs),
        cmocka_unit_test(concatenated_tars_are_read_to_the_end),
        cmocka_unit_test(a_zip_behind_a_stub_is_found),
        cmocka_unit_test(encrypted_entries_fail_alone),
        cmocka_unit_test(a_damaged_entry_fails_and_the_archive_goes_on),
        cmocka_unit_test(a_cut_tar_gives_what_is_there),
        cmocka_unit_test(gzip_members_are_joined_and_checked),
        cmocka_unit_test(entry_names_become_printable_labels),
        cmocka_unit_test(legacy_names_are_read_by_option),
        cmocka_unit_test(jsonl_inside_an_archive_gives_its_lines),
        cmocka_unit_test(nesting_stops_at_its_limit),
        cmocka_unit_test(entries_stop_at_their_limit),
        cmocka_unit_test(a_bomb_is_stopped_by_its_ratio),
        cmocka_unit_test(a_container_stops_at_its_bytes),
        cmocka_unit_test(compression_of_compression_ends),
        cmocka_unit_test(garbage_that_begins_like_an_archive_is_named),
        cmocka_unit_test(words_that_are_magic_elsewhere_stay_text),
        cmocka_unit_test(folders_are_read_in_byte_order),
        cmocka_unit_test(a_file_named_twice_is_read_once),
        cmocka_unit_test(patterns_choose_files_and_entries),
        cmocka_unit_test(a_missing_path_stops_the_job_and_is_named),
        cmocka_unit_test(cancel_ends_between_documents),
    };
    return cmocka_run_group_tests_name("ingest_archive", tests, NULL, NULL);
}

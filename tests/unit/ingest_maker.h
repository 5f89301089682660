/* tests/unit/ingest_maker.h - archives made in memory, by libarchive and zlib. */
#ifndef QUIRE_TESTS_INGEST_MAKER_H
#define QUIRE_TESTS_INGEST_MAKER_H

#include "tests/unit/ingest_try.h"

#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>

enum { SPACE = 8 << 20 };

struct maker {
    struct archive *a;
    char *bytes; /* [SPACE] */
    size_t n;
};

static inline void maker_open(struct maker *m, const char *format, int filter,
                              const char *options)
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

static inline void maker_add(struct maker *m, const char *name, int type, const void *bytes,
                             size_t n)
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

static inline void maker_text(struct maker *m, const char *name, const char *text)
{
    maker_add(m, name, AE_IFREG, text, strlen(text));
}

static inline void maker_close(struct maker *m)
{
    assert_int_equal(archive_write_free(m->a), ARCHIVE_OK);
}

static inline void maker_free(struct maker *m)
{
    free(m->bytes);
}

/* An archive with a.txt, a folder, sub/b.html and a link. */
static inline void make_usual(struct maker *m, const char *format, int filter)
{
    maker_open(m, format, filter, NULL);
    maker_text(m, "a.txt", "text a");
    maker_add(m, "sub", AE_IFDIR, NULL, 0);
    maker_text(m, "sub/b.html", "<title>B</title><p>text b");
    if (strcmp(format, "zip") != 0)
        maker_add(m, "link", AE_IFLNK, NULL, 0);
    maker_close(m);
}

static inline void check_usual(const struct try *t, size_t from, const char *outer)
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

static inline size_t gzip(const void *bytes, size_t n, void *out, size_t cap)
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

#endif

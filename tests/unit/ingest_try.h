/* tests/unit/ingest_try.h - run the ingest stage over something and keep what it emits. */
#ifndef QUIRE_TESTS_INGEST_TRY_H
#define QUIRE_TESTS_INGEST_TRY_H

#include "stages/base/file.h"
#include "stages/ingest/keeper.h"
#include "stages/kv/kv_opts.h"
#include "stages/stage.h"
#include "stages/stats.h"
#include "stages/write/write_opts.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TRY_MAX = 512 };

struct
try {
    struct ingest_config cfg;
    struct kv_config kv;
    struct write_config write; /* only `to`, for the folder that is left out; NULL: none */
    char folder[64];           /* temporary; holds what try_file() writes */
    struct doc *docs[TRY_MAX];
    size_t n;
    struct run_stats stats;
    atomic_bool cancel;
    size_t cancel_after; /* documents; 0: never */
    struct err e;
};

static inline void try_option(struct try *t, const char *name, const char *value)
{
    const struct opt *o = opt_find(ingest_opts, n_ingest_opts, name);
    assert_non_null(o);
    if (opt_set(o, &t->cfg, value, ".", &t->e) != 0)
        fail_msg("%s", t->e.msg);
}

static inline struct try *try_new(void)
{
    struct try *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    assert_int_equal(opt_defaults(ingest_opts, n_ingest_opts, &t->cfg, &t->e), 0);
    strcpy(t->folder, "/tmp/quire-test-XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    return t;
}

/* Writes a file into the folder and returns its path (valid until the next call). */
static inline const char *try_file(struct try *t, const char *name, const void *bytes, size_t n)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", t->folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline int try_emit(void *to, struct rec *r)
{
    struct try *t = to;
    assert_true(t->n < TRY_MAX);
    assert_int_equal(r->kind, REC_DOC);
    assert_int_equal(r->doc->ordinal, t->n);
    t->docs[t->n++] = doc_ref(r->doc);
    rec_free(r);
    if (t->n == t->cancel_after)
        t->cancel = true;
    return 0;
}

/* The stage over cfg.from, by a reader in this thread or by one in a process of its own. */
static inline int try_once(struct try *t, struct keeper *keeper)
{
    struct stage_env env = {.ingest = &t->cfg,
                            .keeper = keeper,
                            .kv = &t->kv,
                            .write = &t->write,
                            .stats = &t->stats,
                            .cancel = &t->cancel};
    struct stage s = {.ops = &ingest_stage, .env = &env, .emit = try_emit, .runner = t};
    int rc = s.ops->open(&s, &t->e);
    return rc == 0 ? s.ops->source(&s, &t->e) : rc;
}

static inline void try_same_strings(char *const *a, char *const *b)
{
    assert_true(!a == !b);
    for (size_t i = 0; a && (a[i] || b[i]); i++)
        assert_string_equal(a[i], b[i]);
}

static inline void try_same_string(const char *a, const char *b)
{
    assert_true(!a == !b);
    if (a)
        assert_string_equal(a, b);
}

static inline void try_same_doc(const struct doc *a, const struct doc *b)
{
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->source, b->source);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->fail.code, b->fail.code);
    assert_string_equal(a->fail.msg, b->fail.msg);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->sha256, b->sha256, HASH_BYTES);
    try_same_string(a->title, b->title);
    try_same_string(a->media_type, b->media_type);
    try_same_string(a->encoding, b->encoding);
    try_same_strings(a->chain, b->chain);
    try_same_strings(a->parts, b->parts);
    try_same_strings(a->warnings, b->warnings);
    try_same_string(a->text, b->text);
    assert_int_equal(a->text_len, b->text_len);
    assert_int_equal(a->n_blocks, b->n_blocks);
    for (size_t i = 0; i < a->n_blocks; i++) {
        assert_int_equal(a->blocks[i].kind, b->blocks[i].kind);
        assert_int_equal(a->blocks[i].level, b->blocks[i].level);
        assert_int_equal(a->blocks[i].page, b->blocks[i].page);
        assert_int_equal(a->blocks[i].part, b->blocks[i].part);
        assert_int_equal(a->blocks[i].begin, b->blocks[i].begin);
        assert_int_equal(a->blocks[i].end, b->blocks[i].end);
    }
}

/* Runs the stage over cfg.from both ways, which must give the same; returns what it returned. */
static inline int try_run(struct try *t)
{
    struct try *other = calloc(1, sizeof(*other));
    struct keeper *keeper;
    assert_non_null(other);
    *other = *t;
    other->e = (struct err){0};
    size_t before = t->n;
    assert_int_equal(keeper_open(&keeper, &other->cfg, reader_file, &other->e), 0);
    int rc = try_once(t, NULL), isolated = try_once(other, keeper);
    keeper_close(keeper);
    assert_int_equal(isolated, rc);
    assert_int_equal(other->n, t->n);
    assert_string_equal(other->e.msg, t->e.msg);
    assert_int_equal(other->stats.docs_found, t->stats.docs_found);
    assert_int_equal(other->stats.bytes_read, t->stats.bytes_read);
    for (size_t i = before; i < t->n; i++) {
        try_same_doc(t->docs[i], other->docs[i]);
        doc_unref(other->docs[i]);
    }
    free(other);
    return rc;
}

static inline void try_path(struct try *t, const char *path)
{
    try_option(t, "from", path);
    if (try_run(t) != 0)
        fail_msg("%s: %s", path, t->e.msg);
}

/* One file with these bytes; the document that comes out when it is one. */
static inline struct doc *try_bytes(struct try *t, const char *name, const void *bytes,
                                    size_t n)
{
    try_path(t, try_file(t, name, bytes, n));
    return t->n == 1 ? t->docs[0] : NULL;
}

static inline struct doc *try_text(struct try *t, const char *name, const char *text)
{
    return try_bytes(t, name, text, strlen(text));
}

static inline void try_free(struct try *t)
{
    char command[128];
    for (size_t i = 0; i < t->n; i++)
        doc_unref(t->docs[i]);
    opt_release(ingest_opts, n_ingest_opts, &t->cfg);
    snprintf(command, sizeof(command), "rm -rf %s", t->folder);
    assert_int_equal(system(command), 0);
    free(t);
}

/* "kind/level:text" of a block, in a static buffer. */
static inline const char *try_block(const struct doc *d, size_t i)
{
    static const char *const kinds[] = {"p", "h", "li", "row", "code", "quote"};
    static char out[4096];
    assert_true(i < d->n_blocks);
    const struct block *b = &d->blocks[i];
    snprintf(out, sizeof(out), "%s/%d:%.*s", kinds[b->kind], b->level, (int)(b->end - b->begin),
             d->text + b->begin);
    return out;
}

/* Every block in range, disjoint, rising, and nothing but white space between them. */
static inline void try_check_blocks(const struct doc *d)
{
    size_t at = 0;
    assert_int_equal(strlen(d->text), d->text_len);
    for (size_t i = 0; i <= d->n_blocks; i++) {
        size_t begin = i < d->n_blocks ? d->blocks[i].begin : d->text_len;
        assert_true(begin >= at && begin <= d->text_len);
        for (; at < begin; at++)
            assert_true(strchr(" \t\n\f\v\r", d->text[at]) != NULL);
        if (i < d->n_blocks) {
            assert_true(d->blocks[i].end > begin);
            at = d->blocks[i].end;
        }
    }
}

#endif

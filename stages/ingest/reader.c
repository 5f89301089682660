#include "stages/ingest/reader.h"

#include "stages/base/mem.h"
#include "stages/ingest/inflate.h"
#include "stages/ingest/names.h"
#include "stages/ingest/zip_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_FILTERS = 3 };

static const uint64_t QUOTA_FROM = 16ull << 20; /* a whole archive may always expand to this */

static int read_item(struct reader *r, const struct item *it);

/* ---- archives ---- */

static int read_entry(struct reader *r, const struct item *it, struct unpack *u,
                      const struct entry *en, int64_t index, const struct charset *legacy)
{
    char numbered[32];
    snprintf(numbered, sizeof(numbered), "entry %lld", (long long)index);
    const char *raw = en->name && *en->name ? en->name : numbered;
    char *label = label_new(raw, strlen(raw), legacy);
    int rc = 0;
    if (!label_excluded(r->cfg, label)) {
        struct place place = {it->place, label, index};
        const struct err *spoilt = reader_at(r, &place, false);
        struct stream s;
        unpack_data(u, &s);
        struct item inner = {.s = &s,
                             .place = &place,
                             .name = label,
                             .full_name = label,
                             .depth = it->depth + 1};
        if (spoilt) {
            rc = reader_fail(r, &place, spoilt);
        } else if (!en->encrypted) {
            rc = read_item(r, &inner);
        } else if (label_included(r->cfg, label)) {
            struct err e = {0};
            err_set(&e, REACH_DOC, ERR_ENCRYPTED, "encrypted: needs a password");
            rc = reader_fail(r, &place, &e);
        }
        stream_close(&s);
    }
    free(label);
    return rc;
}

/* A limit that ends the whole file: one failed document says so, and all levels are left. */
static bool spent(struct reader *r, struct err *e)
{
    if (r->entries > r->cfg->max_entries)
        err_set(e, REACH_DOC, ERR_LIMIT,
                "more than %d entries (ingest.max_entries); the rest is not read",
                r->cfg->max_entries);
    else if (r->quota.used > r->quota.cap)
        err_set(e, REACH_DOC, ERR_LIMIT,
                "expands to more than %llu bytes in all (%s); the rest is not read",
                (unsigned long long)r->quota.cap, r->quota.option);
    return e->code != ERR_NONE;
}

enum { TRY_IN_ORDER = 1 };

/* Looks for entry n + 1, as unpack_next(). */
static int next_entry(struct reader *r, const struct item *it, struct unpack *u, int64_t n,
                      struct entry *en, struct err *e)
{
    struct place next = {it->place, NULL, n + 1};
    const struct err *spoilt = reader_at(r, &next, true);
    deadline_start(&r->deadline, r->cfg->timeout);
    if (!spoilt)
        return unpack_next(u, en, e);
    *e = *spoilt;
    return -(int)e->code;
}

/* All entries. Returns 0, TRY_IN_ORDER when a zip should be read from front to back instead, or
 * what emit returned. */
static int read_entries(struct reader *r, const struct item *it, struct unpack *u,
                        bool may_retry, const struct charset *legacy)
{
    struct err e = {0};
    int64_t n = 0;
    int rc = 0;
    while (rc == 0 && !r->spent && !reader_cancelled(r)) {
        struct entry en;
        int got = next_entry(r, it, u, n, &en, &e);
        if (got == 0)
            break;
        if (got < 0 && n == 0 && may_retry && e.code == ERR_CORRUPT)
            return TRY_IN_ORDER;
        if (got < 0) {
            if (n > 0)
                err_wrap(&e, "the archive stops after %lld entries", (long long)n);
            return reader_fail(r, it->place, &e);
        }
        n++;
        r->entries++;
        if (got == 2) {
            rc = reader_fail(r, it->place, &e);
            err_clear(&e);
        } else if (en.is_file && r->entries <= r->cfg->max_entries) {
            rc = read_entry(r, it, u, &en, n, legacy);
        }
        if (rc == 0 && !r->spent && spent(r, &e)) {
            r->spent = true;
            return reader_fail(r, NULL, &e);
        }
    }
    if (rc == 0 && it->s->torn && !r->spent) {
        err_set(&e, REACH_DOC, ERR_CORRUPT, "the archive is not whole: %s", it->s->torn);
        rc = reader_fail(r, it->place, &e);
    }
    return rc;
}

static bool any_name(void *to, const char *name, size_t len, bool utf8_flag)
{
    (void)to, (void)name, (void)len, (void)utf8_flag;
    return false; /* one is enough */
}

/* A zip that begins with an entry and does not end with its list of them was cut, or the list is damaged: libarchive then
 * reads the entries one after the other, and says nothing. */
static bool lost_directory(const struct item *it, struct err *e)
{
    const unsigned char *p;
    size_t n;
    return it->s->fd >= 0 && stream_look(it->s, &p, &n, e) == 0 && n > 4 &&
           memcmp(p, "PK\3\4", 4) == 0 && zip_dir_names(it->s->fd, 1, any_name, NULL, e) == 0;
}

static int read_archive(struct reader *r, const struct item *it, enum layer layer)
{
    struct err e = {0};
    const struct charset *legacy = NULL;
    if (r->cfg->name_encoding)
        legacy = charset_find(r->cfg->name_encoding, strlen(r->cfg->name_encoding));
    else if (layer == LAYER_ZIP && it->s->fd >= 0)
        legacy = zip_names_charset(it->s->fd, r->cfg->max_entries, &e);
    struct unpack_limits limits = {r->cfg->max_ratio, &r->quota};
    int rc = TRY_IN_ORDER;
    for (int in_order = 0; rc == TRY_IN_ORDER && in_order < 2; in_order++) {
        struct unpack *u;
        if (in_order)
            stream_rewind(it->s);
        if (layer == LAYER_ZIP && !it->s->torn && (in_order || lost_directory(it, &e)))
            it->s->torn =
                "its directory is cut off or damaged; what was found without it is read";
        if (e.code || unpack_open(&u, it->s, layer, in_order, limits, &e) != 0)
            return reader_fail(r, it->place, &e);
        bool may_retry = layer == LAYER_ZIP && it->s->fd >= 0 && !in_order;
        rc = read_entries(r, it, u, may_retry, legacy);
        unpack_close(u);
    }
    return rc;
}

/* zip and 7z keep their list at the end: inside another archive they go through a file first. */
static int read_spooled(struct reader *r, const struct item *it)
{
    struct err e = {0};
    int fd = spool_take(&r->spool, &e);
    if (fd < 0)
        return reader_fail(r, it->place, &e);
    struct stream s;
    int rc = stream_spool(it->s, fd, SPOOL_CAP, &e);
    if (rc != 0)
        close(fd);
    else
        rc = stream_open_fd(&s, fd, NULL, &e);
    if (rc != 0) {
        rc = reader_fail(r, it->place, &e);
    } else {
        s.deadline = &r->deadline;
        s.torn = it->s->torn;
        struct item inner = *it;
        inner.s = &s;
        rc = read_item(r, &inner);
        stream_close(&s);
    }
    spool_put(&r->spool);
    return rc;
}

/* ---- layers ---- */

static int read_filter(struct reader *r, const struct item *it, enum layer layer)
{
    struct err e = {0};
    struct stream s;
    if (it->filters == MAX_FILTERS) {
        err_set(&e, REACH_DOC, ERR_LIMIT, "compressed more than %d times over", MAX_FILTERS);
        return reader_fail(r, it->place, &e);
    }
    int rc = layer == LAYER_GZIP ? inflate_open(&s, it->s, r->cfg->max_ratio, &e)
                                 : unfilter_open(&s, it->s, layer, r->cfg->max_ratio, &e);
    if (rc != 0)
        return reader_fail(r, it->place, &e);
    char *name = label_unpacked(it->name);
    struct item inner = *it;
    inner.s = &s;
    inner.name = name;
    inner.filters++;
    rc = read_item(r, &inner);
    stream_close(&s);
    free(name);
    return rc;
}

/* A program or script with a zip behind it unpacks itself; the zip is what we want. */
static bool is_self_extractor(const struct stream *s, const unsigned char *p, size_t n,
                              struct err *e)
{
    bool stub = n > 4 && (memcmp(p, "MZ", 2) == 0 || memcmp(p, "\x7f\x45LF", 4) == 0 ||
                          memcmp(p, "#!", 2) == 0);
    return stub && s->fd >= 0 && zip_dir_names(s->fd, 1, any_name, NULL, e) > 0;
}

static bool is_jsonl(const struct reader *r, const struct item *it)
{
    const char *dot = strrchr(it->name, '.');
    bool named = dot && (strcasecmp(dot, ".jsonl") == 0 || strcasecmp(dot, ".ndjson") == 0);
    return r->cfg->as == AS_JSONL || (r->cfg->as == AS_AUTO && named);
}

static bool wanted(const struct reader *r, const struct item *it)
{
    return label_included(r->cfg, it->full_name) || label_included(r->cfg, it->name);
}

/* A file of a kind that is not wanted may be what it likes; one that was named, and an archive, may not. */
static int unreadable(struct reader *r, const struct item *it, struct err *e)
{
    return wanted(r, it) || it->depth == 0 ? reader_fail(r, it->place, e) : 0;
}

static int read_item(struct reader *r, const struct item *it)
{
    struct err e = {0};
    const unsigned char *p;
    size_t n;
    if (stream_look(it->s, &p, &n, &e) != 0)
        return unreadable(r, it, &e);
    enum layer layer = sniff_layer(p, n);
    if (layer == LAYER_NONE && is_self_extractor(it->s, p, n, &e))
        layer = LAYER_ZIP;
    if (e.code)
        return unreadable(r, it, &e);
    if (layer == LAYER_NONE && !wanted(r, it))
        return 0;
    if (layer == LAYER_NONE)
        return is_jsonl(r, it) ? reader_jsonl(r, it) : reader_document(r, it);
    if (!layer_is_archive(layer))
        return read_filter(r, it, layer);
    bool seeks = layer == LAYER_ZIP || layer == LAYER_7Z;
    if (seeks && it->s->fd < 0)
        return read_spooled(r, it);
    const char *kind =
        layer == LAYER_ZIP ? zip_dir_document(it->s->fd, r->cfg->max_entries, &e) : NULL;
    if (e.code)
        return unreadable(r, it, &e);
    if (kind) {
        err_set(&e, REACH_DOC, ERR_UNSUPPORTED,
                "%s documents are not read yet; convert them to text, Markdown or HTML", kind);
        return wanted(r, it) ? reader_fail(r, it->place, &e) : 0;
    }
    if (it->depth == r->cfg->max_depth) {
        err_set(&e, REACH_DOC, ERR_LIMIT,
                "an archive %d levels inside archives (ingest.max_depth)", it->depth);
        return reader_fail(r, it->place, &e);
    }
    return read_archive(r, it, layer);
}

static int read_open(struct reader *r, const char *base, int fd)
{
    struct err e = {0};
    struct stream s = {0};
    if (stream_open_fd(&s, fd, r->bytes_read, &e) != 0)
        return reader_fail(r, NULL, &e);
    s.deadline = &r->deadline;
    deadline_start(&r->deadline, r->cfg->timeout);
    uint64_t by_ratio = stream_size(&s) * (uint64_t)r->cfg->max_ratio;
    if (by_ratio < QUOTA_FROM)
        by_ratio = QUOTA_FROM;
    bool ratio = by_ratio < r->cfg->max_container;
    r->quota = (struct quota){0, ratio ? by_ratio : r->cfg->max_container,
                              ratio ? "ingest.max_ratio" : "ingest.max_container"};
    struct item it = {.s = &s, .name = base, .full_name = base};
    int rc = read_item(r, &it);
    stream_close(&s);
    return rc;
}

int reader_file(struct reader *r, const struct walk_file *f, int fd, const char *why)
{
    char *source = label_new(f->path, strlen(f->path), NULL);
    const char *base = label_base(source);
    struct err e = {0};
    r->source = source;
    r->name = f->name;
    r->docs = r->entries = 0;
    r->spent = false;
    int rc = 0;
    const struct err *spoilt = reader_at(r, NULL, false);
    if (spoilt) {
        r->docs = r->errand->known; /* they were given; this is the one after them */
        rc = reader_fail(r, NULL, spoilt);
    } else if (fd >= 0) {
        rc = read_open(r, base, fd);
        fd = -1;
    } else if (label_included(r->cfg, base)) {
        err_set(&e, REACH_DOC, ERR_IO, "cannot be opened: %s", why);
        rc = reader_fail(r, NULL, &e);
    }
    if (fd >= 0)
        close(fd);
    free(source);
    return rc;
}

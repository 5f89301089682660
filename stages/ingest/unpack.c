#include "stages/ingest/unpack.h"

#include "stages/base/mem.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    RATIO_FROM = 1 << 20,
    RATIO_SLACK =
        256 << 10, /* packed bytes a solid 7z may have taken in before this entry began */
    HOLE_PIECE = 16 << 10,
    TAR_BLOCK = 512,
};

struct unpack {
    struct archive *a;
    struct archive_entry
        *entry; /* ours: libarchive does not see that it got none for its own */
    struct stream *outer;
    enum layer layer;
    struct unpack_limits limits;
    int64_t at;    /* position of the seekable source */
    int64_t taken; /* bytes that were read in order */
    int64_t zeros; /* at the end of what was read so far */
    struct err in; /* what reading the outer stream failed with */
    /* of the current entry */
    int64_t packed_from; /* packed bytes used when it began */
    int64_t delivered;
    int64_t hole; /* zeros still to deliver before `held` */
    const void *held;
    size_t held_len;
    struct err held_err; /* to report after `held` */
};

/* ---- callbacks for libarchive ---- */

static void count_zeros(struct unpack *u, const void *data, size_t n)
{
    const char *p = data;
    size_t run = 0;
    while (run < n && p[n - 1 - run] == 0)
        run++;
    u->zeros = run == n ? u->zeros + (int64_t)n : (int64_t)run;
}

static la_ssize_t fail_read(struct unpack *u)
{
    archive_set_error(u->a, EIO, "%s", u->in.msg);
    return -1;
}

static la_ssize_t read_in_order(struct archive *a, void *data, const void **p)
{
    (void)a;
    struct unpack *u = data;
    size_t n;
    if (stream_next(u->outer, p, &n, &u->in) != 0)
        return fail_read(u);
    u->taken += (int64_t)n;
    count_zeros(u, *p, n);
    return (la_ssize_t)n;
}

static la_ssize_t read_anywhere(struct archive *a, void *data, const void **p)
{
    (void)a;
    struct unpack *u = data;
    size_t n;
    if (stream_read_at(u->outer, (uint64_t)u->at, p, &n, &u->in) != 0)
        return fail_read(u);
    u->at += (int64_t)n;
    count_zeros(u, *p, n);
    return (la_ssize_t)n;
}

static la_int64_t seek_to(struct archive *a, void *data, la_int64_t to, int whence)
{
    (void)a;
    struct unpack *u = data;
    int64_t size = (int64_t)stream_size(u->outer);
    int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? u->at : size;
    if (to > INT64_MAX / 2 || to < -INT64_MAX / 2 || base + to < 0)
        return ARCHIVE_FATAL;
    u->at = base + to;
    u->zeros = 0;
    return u->at;
}

static la_int64_t skip_ahead(struct archive *a, void *data, la_int64_t request)
{
    (void)a;
    struct unpack *u = data;
    int64_t left = (int64_t)stream_size(u->outer) - u->at;
    if (request > left)
        request = left > 0 ? left : 0;
    u->at += request;
    u->zeros = 0;
    return request;
}

/* ---- errors ---- */

/* libarchive's codes do not tell these apart; its messages do. */
static int report(struct unpack *u, const char *what, struct err *e)
{
    if (u->in.code)
        return err_set(e, REACH_DOC, u->in.code, "%s", u->in.msg);
    const char *msg = archive_error_string(u->a);
    /* Without memory it may not even say so. */
    if (!msg || !*msg)
        msg = errno == ENOMEM ? "cannot allocate memory" : "no reason given";
    enum err_code code = ERR_CORRUPT;
    if (strstr(msg, "ncrypt") || strstr(msg, "assphrase"))
        code = ERR_ENCRYPTED;
    else if (strstr(msg, "nsupported") || strstr(msg, "not supported"))
        code = ERR_UNSUPPORTED;
    else if (strstr(msg, "allocate") || strstr(msg, "No formats registered") ||
             archive_errno(u->a) == ENOMEM)
        code = ERR_NOMEM;
    if (u->layer == LAYER_ZSTD && strstr(msg, "too much memory"))
        return err_set(e, REACH_DOC, ERR_UNSUPPORTED, "zstd with a window over 128 MiB");
    return err_set(e, REACH_DOC, code, "%s: %s", what, msg);
}

/* ---- open ---- */

static void set_format(struct unpack *u)
{
    switch (u->layer) {
    case LAYER_ZIP:
        archive_read_support_format_zip(u->a);
        break;
    case LAYER_7Z:
        archive_read_support_format_7zip(u->a);
        break;
    case LAYER_CPIO:
        archive_read_support_format_cpio(u->a);
        break;
    case LAYER_TAR:
        archive_read_support_format_tar(u->a);
        archive_read_set_format_option(u->a, "tar", "read_concatenated_archives", "1");
        break;
    default:
        archive_read_support_format_raw(u->a);
        archive_read_support_format_empty(u->a);
        break;
    }
}

static void set_filter(struct unpack *u)
{
    static const int filters[] = {
        [LAYER_BZIP2] = ARCHIVE_FILTER_BZIP2,
        [LAYER_XZ] = ARCHIVE_FILTER_XZ,
        [LAYER_ZSTD] = ARCHIVE_FILTER_ZSTD,
        [LAYER_LZ4] = ARCHIVE_FILTER_LZ4,
    };
    /* libarchive 3.6 crashes when compress is appended: it reads before there is a source. */
    if (u->layer == LAYER_COMPRESS)
        archive_read_support_filter_compress(u->a);
    else if (u->layer < LAYER_ZIP)
        archive_read_append_filter(u->a, filters[u->layer]);
}

int unpack_open(struct unpack **out, struct stream *outer, enum layer layer, bool in_order,
                struct unpack_limits limits, struct err *e)
{
    struct unpack *u = mem_need(sizeof(*u));
    u->outer = outer;
    u->layer = layer;
    u->limits = limits;
    u->a = archive_read_new();
    u->entry = u->a ? archive_entry_new2(u->a) : NULL;
    if (!u->entry || archive_read_set_callback_data(u->a, u) != ARCHIVE_OK) {
        unpack_close(u);
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory to open an archive");
    }
    set_format(u);
    set_filter(u);
    if (outer->fd >= 0 && !in_order) {
        archive_read_set_read_callback(u->a, read_anywhere);
        archive_read_set_seek_callback(u->a, seek_to);
        archive_read_set_skip_callback(u->a, skip_ahead);
    } else {
        archive_read_set_read_callback(u->a, read_in_order);
    }
    errno = 0;
    bool opened = archive_read_open1(u->a) >= ARCHIVE_WARN;
    /* To find out the format, libarchive reads ahead. For a compression that fails there it
     * reports no error: it finds the format "empty". */
    bool failed = layer < LAYER_ZIP && (archive_error_string(u->a) || u->in.code);
    if (!opened || failed) {
        report(u, opened ? "damaged" : "cannot be opened", e);
        unpack_close(u);
        return -(int)e->code;
    }
    *out = u;
    return 0;
}

void unpack_close(struct unpack *u)
{
    if (!u)
        return;
    archive_entry_free(u->entry);
    archive_read_free(u->a);
    free(u);
}

/* ---- entries ---- */

/* Packed bytes used so far. libarchive counts an lz4 block, of up to 4 MiB, only after all of it
 * was delivered; what was read for it is counted instead. */
static int64_t packed(const struct unpack *u)
{
    return u->layer == LAYER_LZ4 ? u->taken : archive_filter_bytes(u->a, -1);
}

int unpack_next(struct unpack *u, struct entry *out, struct err *e)
{
    int rc = archive_read_next_header2(u->a, u->entry);
    if (rc == ARCHIVE_EOF) {
        /* libarchive takes a tar that was cut between two entries for a whole one. */
        if (u->layer == LAYER_TAR && u->zeros < TAR_BLOCK && !u->outer->torn)
            u->outer->torn = "it ends without the empty block that ends a tar file";
        return 0;
    }
    if (rc == ARCHIVE_FATAL) {
        if (archive_read_has_encrypted_entries(u->a) == 1 && !u->in.code)
            return err_set(e, REACH_DOC, ERR_ENCRYPTED, "the list of entries is encrypted");
        return report(u, "damaged", e);
    }
    if (rc == ARCHIVE_FAILED || rc == ARCHIVE_RETRY) {
        report(u, "damaged entry", e);
        return 2;
    }
    /* One compression has no header before its data: what was read to get here is data. */
    u->packed_from = u->layer < LAYER_ZIP ? 0 : packed(u);
    u->delivered = u->hole = 0;
    u->held_len = 0;
    err_clear(&u->held_err);
    out->name = archive_entry_pathname(u->entry);
    if (!out->name)
        out->name = archive_entry_pathname_utf8(u->entry);
    unsigned type = archive_entry_filetype(u->entry);
    out->is_file = (type == AE_IFREG || type == 0) && !archive_entry_hardlink(u->entry);
    out->encrypted = archive_entry_is_encrypted(u->entry) > 0;
    return 1;
}

/* Counts what is about to be delivered, against the packed bytes that were used for it. */
static int count(struct unpack *u, size_t n, struct err *e)
{
    u->delivered += (int64_t)n;
    int64_t used = packed(u) - u->packed_from + (u->layer == LAYER_7Z ? RATIO_SLACK : 0);
    int ratio = u->limits.max_ratio;
    if (u->delivered > RATIO_FROM && u->delivered / ratio > used)
        return err_set(e, REACH_DOC, ERR_LIMIT, "expands more than %d to 1 (ingest.max_ratio)",
                       ratio);
    struct quota *q = u->limits.quota;
    if (q && (q->used += n) > q->cap)
        return err_set(e, REACH_DOC, ERR_LIMIT,
                       "the archive expands to more than %llu bytes in all (%s)",
                       (unsigned long long)q->cap, q->option);
    return 0;
}

static int deliver_hole(struct unpack *u, const void **p, size_t *n, struct err *e)
{
    static const char zeros[HOLE_PIECE];
    *p = zeros;
    *n = u->hole < HOLE_PIECE ? (size_t)u->hole : HOLE_PIECE;
    u->hole -= (int64_t)*n;
    return count(u, *n, e);
}

static int deliver_held(struct unpack *u, const void **p, size_t *n, struct err *e)
{
    *p = u->held;
    *n = u->held_len;
    u->held_len = 0;
    return count(u, *n, e);
}

/* The next block from libarchive goes to `held`, what was wrong with it to `held_err` or torn. */
static bool fetch(struct unpack *u, struct stream *s)
{
    la_int64_t offset = 0;
    u->held_len = 0;
    int rc = archive_read_data_block(u->a, &u->held, &u->held_len, &offset);
    if (rc == ARCHIVE_EOF)
        return false;
    const char *msg = archive_error_string(u->a);
    if (rc == ARCHIVE_WARN && msg && strstr(msg, "wrong size")) {
        s->torn = "its size is not the one that the archive declares";
    } else if (rc < ARCHIVE_WARN && msg && strstr(msg, "runcated")) {
        s->torn = "the archive ends inside of it";
        return false;
    } else if (rc != ARCHIVE_OK) {
        report(u, "damaged", &u->held_err);
        if (rc < ARCHIVE_WARN)
            u->held_len = 0;
    }
    if (u->held_len > 0 && offset > u->delivered)
        u->hole = offset - u->delivered; /* a sparse file: the gap reads as zeros */
    return true;
}

static int entry_read(struct stream *s, const void **p, size_t *n, struct err *e)
{
    struct unpack *u = s->state;
    for (;;) {
        if (u->hole > 0)
            return deliver_hole(u, p, n, e);
        if (u->held_len > 0)
            return deliver_held(u, p, n, e);
        if (u->held_err.code)
            return err_set(e, REACH_DOC, u->held_err.code, "%s", u->held_err.msg);
        if (!fetch(u, s)) {
            if (!s->torn && u->layer < LAYER_ZIP)
                s->torn = u->outer->torn;
            *n = 0;
            return 0;
        }
        int rc = deadline_check(s->deadline, e);
        if (rc != 0)
            return rc;
    }
}

static void entry_close(struct stream *s)
{
    (void)s;
}

void unpack_data(struct unpack *u, struct stream *s)
{
    static const struct stream_ops ops = {entry_read, entry_close};
    stream_init(s, &ops, u);
    s->deadline = u->outer->deadline;
}

/* ---- one compression ---- */

static void unfilter_close(struct stream *s)
{
    unpack_close(s->state);
}

int unfilter_open(struct stream *s, struct stream *outer, enum layer layer, int max_ratio,
                  struct err *e)
{
    static const struct stream_ops ops = {entry_read, unfilter_close};
    struct unpack *u;
    int rc =
        unpack_open(&u, outer, layer, true, (struct unpack_limits){.max_ratio = max_ratio}, e);
    if (rc != 0)
        return rc;
    struct entry ignored;
    rc = unpack_next(u, &ignored, e);
    if (rc < 0 || rc == 2) {
        unpack_close(u);
        return -(int)e->code;
    }
    stream_init(s, &ops, u);
    s->end = rc == 0; /* nothing inside */
    s->deadline = outer->deadline;
    return 0;
}

#include "stages/ingest/zip_dir.h"

#include "stages/base/err.h"
#include "stages/base/le.h"
#include "stages/base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EOCD = 22,           /* end of central directory record, without its comment */
    TAIL = EOCD + 65535, /* the comment is at most 64 KiB */
    ENTRY = 46,
    LOCATOR = 20,
    EOCD64 = 56,
    MAX_NAME = 4096,
};

/* False at the end of the file, and with an error, which the caller's caller looks at. */
static bool read_at(int fd, void *to, size_t n, uint64_t at, struct err *e)
{
    unsigned char *p = to;
    while (n > 0) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            err_set(e, REACH_DOC, ERR_IO, "cannot be read: %s", strerror(errno));
        if (got <= 0)
            return false;
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return true;
}

static bool is_entry(int fd, uint64_t at, struct err *e)
{
    unsigned char sig[4];
    return read_at(fd, sig, 4, at, e) && memcmp(sig, "PK\1\2", 4) == 0;
}

/* Where the directory begins, given the end record at `end`. A stub in front of the zip may not be
 * counted in its offsets, so the place right before the end record is tried as well. */
static bool directory_start(int fd, const unsigned char *eocd, uint64_t end, uint64_t *start,
                            struct err *e)
{
    uint64_t size = le32_get(eocd + 12), offset = le32_get(eocd + 16);
    unsigned char loc[LOCATOR], big[EOCD64];
    if (offset == UINT32_MAX && end >= LOCATOR && read_at(fd, loc, LOCATOR, end - LOCATOR, e) &&
        memcmp(loc, "PK\6\7", 4) == 0 && le64_get(loc + 8) < end &&
        read_at(fd, big, EOCD64, le64_get(loc + 8), e) && memcmp(big, "PK\6\6", 4) == 0) {
        size = le64_get(big + 40);
        offset = le64_get(big + 48);
    }
    if (size <= end && is_entry(fd, end - size, e)) {
        *start = end - size;
        return true;
    }
    if (offset < end && is_entry(fd, offset, e)) {
        *start = offset;
        return true;
    }
    return false;
}

static bool find_directory(int fd, uint64_t *start, uint64_t *end, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        err_set(e, REACH_DOC, ERR_IO, "cannot be read: %s", strerror(errno));
    if (e->code || st.st_size < EOCD)
        return false;
    uint64_t size = (uint64_t)st.st_size;
    size_t n = size < TAIL ? (size_t)size : (size_t)TAIL;
    unsigned char *tail = mem_alloc(n);
    if (!tail)
        err_set(e, REACH_DOC, ERR_NOMEM, "no memory to look for the directory of a zip");
    bool found = false;
    if (tail && read_at(fd, tail, n, size - n, e)) {
        for (size_t i = n - EOCD + 1; !found && i-- > 0;) {
            if (memcmp(tail + i, "PK\5\6", 4) != 0)
                continue;
            *end = size - n + i;
            found = directory_start(fd, tail + i, *end, start, e);
        }
    }
    free(tail);
    return found;
}

int64_t zip_dir_names(int fd, int64_t max, zip_name_fn *fn, void *to, struct err *e)
{
    uint64_t at, end;
    if (!find_directory(fd, &at, &end, e))
        return -(int)e->code;
    unsigned char piece[ENTRY + MAX_NAME];
    int64_t n = 0;
    while (n < max && at + ENTRY <= end) {
        size_t have = end - at < sizeof(piece) ? (size_t)(end - at) : sizeof(piece);
        if (!read_at(fd, piece, have, at, e) || memcmp(piece, "PK\1\2", 4) != 0)
            break;
        size_t name = le16_get(piece + 28);
        size_t whole = (size_t)ENTRY + name + le16_get(piece + 30) + le16_get(piece + 32);
        if (name > have - ENTRY)
            name = have - ENTRY;
        n++;
        if (!fn(to, (const char *)piece + ENTRY, name, (le16_get(piece + 8) & 0x800) != 0))
            break;
        at += whole;
    }
    return e->code ? -(int)e->code : n;
}

/* ---- is it a document? ---- */

struct parts {
    bool types, rels, word, xl, ppt, container, manifest, content, mimetype;
};

static bool is(const char *name, size_t len, const char *what)
{
    return len == strlen(what) && strncmp(name, what, len) == 0;
}

static bool under(const char *name, size_t len, const char *folder)
{
    return len > strlen(folder) && strncmp(name, folder, strlen(folder)) == 0;
}

static bool see_part(void *to, const char *name, size_t len, bool utf8_flag)
{
    (void)utf8_flag;
    struct parts *p = to;
    p->types |= is(name, len, "[Content_Types].xml");
    p->rels |= is(name, len, "_rels/.rels");
    p->word |= under(name, len, "word/");
    p->xl |= under(name, len, "xl/");
    p->ppt |= under(name, len, "ppt/");
    p->container |= is(name, len, "META-INF/container.xml");
    p->manifest |= is(name, len, "META-INF/manifest.xml");
    p->content |= is(name, len, "content.xml");
    p->mimetype |= is(name, len, "mimetype");
    return true;
}

/* The formats with a mimetype entry store it first and uncompressed, at a fixed place. */
static const char *by_mimetype(int fd, struct err *e)
{
    static const struct {
        const char *type, *name;
    } known[] = {
        {"application/epub+zip", "EPUB"},
        {"application/vnd.oasis.opendocument.text", "ODT"},
        {"application/vnd.oasis.opendocument.spreadsheet", "ODS"},
        {"application/vnd.oasis.opendocument.presentation", "ODP"},
        {"application/vnd.oasis.opendocument.", "OpenDocument"},
    };
    char head[38 + 64] = {0};
    for (size_t n = sizeof(head) - 1; n > 38 && !e->code && !read_at(fd, head, n, 0, e); n--)
        continue;
    if (memcmp(head, "PK\3\4", 4) != 0 || memcmp(head + 30, "mimetype", 8) != 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strncmp(head + 38, known[i].type, strlen(known[i].type)) == 0)
            return known[i].name;
    return NULL;
}

const char *zip_dir_document(int fd, int64_t max, struct err *e)
{
    const char *name = by_mimetype(fd, e);
    if (name)
        return name;
    struct parts p = {0};
    if (e->code || zip_dir_names(fd, max, see_part, &p, e) < 0)
        return NULL;
    if (p.types && (p.word || p.xl || p.ppt))
        return p.word ? "DOCX" : p.xl ? "XLSX" : "PPTX";
    if (p.types && p.rels)
        return "Office Open XML";
    if (p.container && p.mimetype)
        return "EPUB";
    if (p.content && (p.manifest || p.mimetype))
        return "OpenDocument";
    return NULL;
}

/* stages/ingest/unpack.h - libarchive behind two streams: entries of an archive, one compression.
 *
 * What:   unpack_* walks the entries of one archive; unfilter_open() undoes one compression.
 * Rules:  1. libarchive is told the one format (or the one filter) that sniff.h found; it never
 *            bids, so a file cannot send it through filters or formats that are not meant.
 *         2. Sizes in headers are not looked at: delivered bytes are counted and bounded.
 *         3. An error in an entry leaves the archive usable: call unpack_next() again.
 *         4. The calling thread's LC_CTYPE must be a UTF-8 locale, or names come out empty.
 * Thread: one struct unpack belongs to one thread.
 */
#ifndef QUIRE_INGEST_UNPACK_H
#define QUIRE_INGEST_UNPACK_H

#include "stages/ingest/sniff.h"
#include "stages/ingest/stream.h"

struct entry {
    const char
        *name; /* raw bytes as stored, or NULL when there is none; valid until the next entry */
    bool is_file; /* not a folder, link or device */
    bool encrypted;
};

/* Bytes that all entries of the outermost archive, inner archives included, may deliver. */
struct quota {
    uint64_t used, cap;
    const char *option; /* the one that cap comes from */
};

struct unpack_limits {
    int max_ratio;
    struct quota *quota; /* may be NULL */
};

struct unpack;

/* Opens the archive in `outer`, which must outlive it. in_order: read it from front to back even
 * where it could seek (some zip files are only right that way).
 * Returns 0 and *u, or -ERR_CORRUPT and the like with reach DOC. */
int unpack_open(struct unpack **u, struct stream *outer, enum layer layer, bool in_order,
                struct unpack_limits limits, struct err *e) MUST_CHECK;

/* The next entry. Returns 1 with *out, 0 at the end, 2 when this entry's header is damaged (e says
 * how) but others may follow, or an error: nothing more can be read. */
int unpack_next(struct unpack *u, struct entry *out, struct err *e) MUST_CHECK;

/* The bytes of the entry that unpack_next() gave, until it is called again. */
void unpack_data(struct unpack *u, struct stream *s);

void unpack_close(struct unpack *u); /* safe on NULL */

/* bzip2, xz, zstd, lz4 or compress: the bytes inside. */
int unfilter_open(struct stream *s, struct stream *outer, enum layer layer, int max_ratio,
                  struct err *e) MUST_CHECK;

#endif

/* stages/ingest/sniff.h - what are these bytes? Decided by looking, one layer at a time.
 *
 * What:   sniff_layer() names the container or compression that the first bytes belong to, and
 *         sniff_refused() the document formats that are known but not read.
 * Not:    which text format a document has (extract.h).
 * Rules:  1. Checks go beyond the magic (checksum of a tar header, fields of a zip header), so that
 *            a text that happens to begin like an archive stays a text.
 *         2. Text formats that other tools take for archives (mtree, uuencode, ar) are no layers.
 * Thread: pure functions.
 * Source: APPNOTE.TXT 6.3.10 section 4.3.7 (zip), POSIX.1-2017 pax (tar, cpio), RFC 1952 (gzip),
 *         RFC 8878 (zstd), the xz and LZ4 frame format descriptions, 7zFormat.txt.
 */
#ifndef QUIRE_INGEST_SNIFF_H
#define QUIRE_INGEST_SNIFF_H

#include <stdbool.h>
#include <stddef.h>

enum layer {
    LAYER_NONE,
    /* compression: one stream of bytes inside */
    LAYER_GZIP,
    LAYER_BZIP2,
    LAYER_XZ,
    LAYER_ZSTD,
    LAYER_LZ4,
    LAYER_COMPRESS,
    /* archives: entries inside */
    LAYER_ZIP,
    LAYER_TAR,
    LAYER_7Z,
    LAYER_CPIO,
};

/* p: the first n bytes; 1,024 are enough. */
enum layer sniff_layer(const unsigned char *p, size_t n);

static inline bool layer_is_archive(enum layer l)
{
    return l >= LAYER_ZIP;
}
const char *layer_name(enum layer l);

/* Why a format that is recognised is not read ("PDF documents are not read yet"), or NULL. */
const char *sniff_refused(const unsigned char *p, size_t n);

/* The same for mail, whose magic is ordinary words. */
const char *sniff_mail(const unsigned char *p, size_t n, const char *name);

#endif

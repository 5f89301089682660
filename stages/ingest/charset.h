/* stages/ingest/charset.h - which character encoding bytes are in, and those bytes as UTF-8.
 *
 * What:   charset_choose() decides: byte order mark > the job's `encoding` > what the document
 *         declares > strict UTF-8 of the whole > UTF-16 without a mark (by its NULs) > a detector >
 *         windows-1252. charset_decode() converts and normalises line ends.
 * Rules:  1. Labels mean what they mean on the web: iso-8859-1 is windows-1252, gb2312 is GB18030.
 *         2. A bad sequence becomes U+FFFD and is counted; nothing is dropped but U+0000 and the mark.
 *         3. A document that declares UTF-8 and mostly is not is detected like one that declares nothing.
 * Thread: pure but for iconv and the detector, which keep their state on the heap.
 * Source: WHATWG Encoding Standard, section 4.2 (labels).
 */
#ifndef QUIRE_INGEST_CHARSET_H
#define QUIRE_INGEST_CHARSET_H

#include "stages/base/buf.h"
#include "stages/ingest/deadline.h"

struct charset {
    const char *name;  /* as reports show it: "UTF-8", "windows-1252" */
    const char *iconv; /* NULL for UTF-8, which is decoded here */
    int unit;          /* bytes to step over after a bad sequence */
};

/* The charset with this label (any case, blanks around it ignored), or NULL. */
const struct charset *charset_find(const char *label, size_t n);

/* All charsets, one after the other; NULL past the last. */
const struct charset *charset_at(size_t i);

/* How charset_choose() came to its answer. */
enum charset_by {
    BY_MARK,
    BY_OPTION,
    BY_DECLARATION,
    BY_VALIDITY,
    BY_NULS,
    BY_DETECTOR,
    BY_DEFAULT
};

/* declared: the label in the document, or NULL. option: the job's, or NULL. Never NULL. */
const struct charset *charset_choose(const unsigned char *p, size_t n,
                                     const struct charset *option,
                                     const struct charset *declared, enum charset_by *by);

struct decode_report {
    size_t bad;  /* sequences replaced by U+FFFD */
    size_t nuls; /* U+0000 dropped */
};

/* Appends p[0, n) as UTF-8 without mark, with LF line ends. */
int charset_decode(const struct charset *c, const unsigned char *p, size_t n,
                   const struct deadline *d, struct buf *out, struct decode_report *report,
                   struct err *e) MUST_CHECK;

/* What a detector makes of bytes that are not UTF-8; NULL when it has no idea. */
const struct charset *charset_detect(const unsigned char *p, size_t n);

/* The first bytes as ASCII, whatever their width, to look for marks of a format: bytes of UTF-16 and
 * UTF-32 are thinned out. Returns the number written to out[cap]. */
size_t charset_peek(const unsigned char *p, size_t n, char *out, size_t cap);

#endif

/* stages/ingest/extract.h - from the bytes of one document to its text.
 *
 *     bytes -> which format (bids) -> which charset -> UTF-8 -> extractor -> text_out -> struct doc
 *
 * What:   every text format is one struct extractor. Each bids on the first bytes and the name; the
 *         highest bid reads the document.
 * Rules:  1. An extractor sees valid UTF-8 with LF line ends, no mark, no NUL.
 *         2. It checks its deadline in every loop that input can make long, and does not recurse.
 *         3. What it could not keep goes to warnings; the document is then partial.
 * Thread: pure but for the libraries behind; any thread, one document each.
 */
#ifndef QUIRE_INGEST_EXTRACT_H
#define QUIRE_INGEST_EXTRACT_H

#include "stages/ingest/charset.h"
#include "stages/ingest/ingest_opts.h"
#include "stages/ingest/text_out.h"

enum { MAX_WARNINGS = 8 };

struct extraction {
    const struct deadline *deadline;
    const char *in; /* UTF-8 */
    size_t n;
    struct text_out out;
    char *title; /* heap, or NULL */
    char *warnings[MAX_WARNINGS];
    size_t n_warnings;
};

/* The first bytes, thinned to ASCII where they are wider (charset_peek), and the lower-case end of
 * the name (".html"), never NULL. */
struct doc_head {
    const char *text;
    size_t n;
    const char *suffix;
};

struct extractor {
    const char *name;
    const char *media_type;
    int (*bid)(const struct doc_head *h); /* 0: not mine; 10: by name; more: by content */
    /* The charset that the document declares, or NULL; the member may be NULL. */
    const struct charset *(*declared)(const struct doc_head *h);
    int (*run)(struct extraction *x, struct err *e);
    bool markup; /* control characters are errors in it: they become blanks */
};

extern const struct extractor extract_text, extract_markdown, extract_html, extract_xml;

/* encoding="..." of an XML declaration, or NULL. */
const struct charset *xml_declared_charset(const struct doc_head *h);

/* Warn once with a sentence; past MAX_WARNINGS it is dropped. */
void extract_warn(struct extraction *x, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The extractor for these bytes; as: what the job demands, or AS_AUTO. */
const struct extractor *extractor_choose(int as, const unsigned char *p, size_t n,
                                         const char *name);

struct extract_input {
    struct buf
        *bytes; /* released as soon as they are decoded: two copies of a document at a time */
    const char *name; /* label, for its suffix */
    const char *torn; /* why the bytes are not all there, or NULL */
    const struct ingest_config *cfg;
    const struct deadline *deadline;
};

/* Fills text, blocks, title, encoding, media_type, warnings and status of d from the bytes. On
 * failure returns -ERR_x (reach DOC) and leaves d without text. */
int extract_document(const struct extract_input *in, struct doc *d, struct err *e) MUST_CHECK;

/* The same for text that is UTF-8 already (a field of a JSON line). */
int extract_plain(const char *text, size_t n, const struct ingest_config *cfg,
                  const struct deadline *deadline, struct doc *d, struct err *e) MUST_CHECK;

#endif

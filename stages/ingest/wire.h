/* stages/ingest/wire.h - the messages between a reader in a process of its own and the run.
 *
 *     run -> reader     a file: its number and name, what is known of it, with its descriptor
 *     reader -> run     documents, and the end of the file
 *
 *     message to the run, integers little-endian:
 *     offset  bytes
 *          0      4  kind: 1 document, 2 end of the file
 *          4      4  0
 *          8      8  bytes of the file read so far
 *         16      8  h, bytes of the head          (0 at the end of the file, as the next two)
 *         24      8  t, bytes of the text
 *         32      8  b, number of blocks
 *         40      h  head: id 16, sha256 32, source bytes 8, status 1, code 1; then strings: message, title,
 *                    media type, encoding; then lists: chain, parts, warnings
 *                 t  text
 *                 b  x 32 blocks: kind 4, level 4, page 4, part 4, begin 8, end 8
 *     string: length + 1 in 4 bytes (0: absent) and its bytes; list: count + 1 in 4 bytes (0: absent), strings
 *
 * What:   puts these messages into bytes and takes them apart. Pure: no descriptor is touched.
 * Rules:  1. The reader may be in the hands of the document it reads, so what comes from it is hostile:
 *            every size is bounded before anything is allocated, text is valid UTF-8 without NUL, blocks
 *            are disjoint and rising, a failure has a code and nothing else.
 *         2. A document that was put and taken is the same in every field, but for source and ordinal,
 *            which the run knows itself.
 * Thread: pure.
 */
#ifndef QUIRE_INGEST_WIRE_H
#define QUIRE_INGEST_WIRE_H

#include "stages/base/buf.h"
#include "stages/ingest/errand.h"
#include "stages/rec.h"

#include <stdint.h>

enum wire_kind { WIRE_DOC = 1, WIRE_END = 2 };
enum { WIRE_HEADER = 40, WIRE_BLOCK = 32, WIRE_REQUEST_MAX = 256 << 10, WIRE_BLAMES = 9 };

struct wire_header {
    enum wire_kind kind;
    uint64_t bytes_read, head_bytes, text_bytes, n_blocks;
};

/* Bounds of a document, from ingest.max_document. */
struct wire_limits {
    uint64_t head, text, blocks;
};
struct wire_limits wire_limits(uint64_t max_document);

/* ---- to the run ---- */

void wire_put_header(uint8_t out[WIRE_HEADER], const struct wire_header *h);
/* The head of d, appended; d->text and d->blocks follow it on the wire. */
int wire_put_head(struct buf *out, const struct doc *d, struct err *e) MUST_CHECK;
void wire_put_block(uint8_t out[WIRE_BLOCK], const struct block *b);

/* -ERR_CORRUPT for what no reader of ours sends. */
int wire_get_header(struct wire_header *h, const uint8_t in[WIRE_HEADER],
                    const struct wire_limits *l, struct err *e) MUST_CHECK;
/* Fills d, a new document, from its head in[0, n). Also -ERR_NOMEM. */
int wire_get_head(struct doc *d, const uint8_t *in, size_t n, struct err *e) MUST_CHECK;
/* The last check: is d, with text and blocks as they came, a document? */
int wire_check_doc(const struct doc *d, struct err *e) MUST_CHECK;
void wire_get_block(struct block *b, const uint8_t in[WIRE_BLOCK]);

/* ---- to the reader ---- */

struct wire_request {
    uint64_t file;    /* its number, from 1 */
    uint64_t known;   /* documents of it that came already */
    const char *path; /* for labels; `name` begins at name_at in it */
    size_t name_at;
    const char *why; /* it cannot be opened; NULL: its descriptor comes along */
    const struct blame *blames;
    int n_blames; /* WIRE_BLAMES at most */
};

/* At most WIRE_REQUEST_MAX bytes; a longer path is -ERR_LIMIT. */
int wire_put_request(struct buf *out, const struct wire_request *q, struct err *e) MUST_CHECK;
/* The strings point into in; blames[WIRE_BLAMES] are filled. in[n - 1] is 0. -ERR_BUG, -ERR_NOMEM. */
int wire_get_request(struct wire_request *q, struct blame *blames, const uint8_t *in, size_t n,
                     struct err *e) MUST_CHECK;

#endif

/* stages/ingest/keep.h - documents that earlier runs have finished: kept, not done again.
 *
 * What:   a file that is as it was, and of which all documents are finished, is not opened: its records are kept. Of a
 *         file that is as it was, the documents up to the first that is not finished are kept by their number. Any
 *         other document is known by its id, which comes from its content, once it is read.
 * Rules:  1. A kept document has no text, and origin.row set: it passes through to write.
 *         2. A document that could not be read is never kept by its id: reading it says what is wrong today.
 *         3. A few files may be on their way at once (isolate.h); they end in the order in which they began.
 * Thread: ingest's.
 */
#ifndef QUIRE_INGEST_KEEP_H
#define QUIRE_INGEST_KEEP_H

#include "stages/ingest/isolate.h"
#include "stages/ledger/ledger.h"

/* A file that is being read. */
struct keep_file {
    int64_t source;     /* of the ledger */
    int64_t occurrence; /* of its next document */
    int64_t skip;       /* documents before this one were kept already */
};

struct keep {
    struct ledger *ledger;      /* NULL: nothing is kept */
    uint8_t choice[HASH_BYTES]; /* digest of what chooses documents */
    struct keep_file files[ISOLATE_AHEAD + 1];
    int first, n;
};

void keep_init(struct keep *k, struct ledger *ledger, const struct ingest_config *cfg);

/* What of a file is finished; release it with ledger_source_release(). -ERR_x, reach JOB. */
int keep_look(struct keep *k, const struct walk_file *f, struct ledger_source *out,
              struct err *e) MUST_CHECK;
/* The document of a finished record; label: of its file. */
struct doc *keep_made(const struct ledger_source *s, size_t i, const char *label);

/* A file is kept whole; or it will be read, by a reader that gives its documents from number `from` on. */
void keep_whole(struct keep *k, const struct ledger_source *known);
void keep_begin(struct keep *k, const struct walk_file *f, const struct ledger_source *known,
                int64_t from);
/* The next document of the first of those files was read; its number is set, and its record if one is kept. 1: it was
 * kept already, from what is known of the file. */
int keep_doc(struct keep *k, struct doc *d, struct err *e) MUST_CHECK;
/* The first of those files was read to its end. */
void keep_end(struct keep *k);

#endif

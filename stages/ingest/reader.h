/* stages/ingest/reader.h - from one file to the documents in it.
 *
 *     file -> sniff -+-> compression -> sniff ...
 *                    +-> archive -> each entry -> sniff ...
 *                    +-> JSONL -> each line -> document
 *                    +-> known but not read -> failed document
 *                    +-> anything else -> extract -> document
 *
 * What:   undoes one layer at a time, within the limits of the job, and hands over each document,
 *         read or failed.
 * Rules:  1. One document is in memory at a time; archives are streamed. What must seek inside an
 *            archive (zip, 7z) goes through a temporary file.
 *         2. Everything found becomes a document, read or failed with a reason; folders, links and
 *            devices in archives are no documents, nor is what include and exclude leave out.
 *         3. Depth of layers is bounded by the job, so recursion over them is too.
 *         4. A reader with an errand says where it is before it touches anything (errand.h), and leaves
 *            alone what ended the readers before it. It does not give documents that are known.
 * Thread: a reader belongs to one thread, whose LC_CTYPE must be a UTF-8 locale.
 */
#ifndef QUIRE_INGEST_READER_H
#define QUIRE_INGEST_READER_H

#include "stages/ingest/deadline.h"
#include "stages/ingest/errand.h"
#include "stages/ingest/ingest_opts.h"
#include "stages/ingest/spool.h"
#include "stages/ingest/unpack.h"
#include "stages/ingest/walk.h"
#include "stages/rec.h"

/* Takes the document. Returns 0, or a negative code that stops the reading at once. */
typedef int reader_emit_fn(void *to, struct doc *d);

/* Where something is: entry inside entry inside the file. */
struct place {
    const struct place *outer; /* NULL: the file itself */
    const char *name;          /* label */
    int64_t index;             /* of the entry in its archive, which tells namesakes apart */
};

struct reader {
    const struct ingest_config *cfg;
    atomic_llong *bytes_read;  /* grows by the size of each file; may be NULL */
    const atomic_bool *cancel; /* may be NULL */
    reader_emit_fn *emit;
    void *to;
    const struct errand *errand; /* NULL: no other process watches */
    struct spool spool;          /* the owner releases it */
    /* of the file being read */
    int64_t docs;             /* given so far */
    const char *source;       /* label of the path */
    const char *name;         /* of the file, for its identity: struct walk_file */
    struct deadline deadline; /* of the document being read */
    int64_t entries;
    struct quota quota;
    bool spent; /* a limit of the whole file was reached and reported */
};

/* Reads a file from fd and closes it; fd < 0: reports that it cannot be opened, and why. Returns 0 or what
 * emit returned. */
typedef int read_file_fn(struct reader *r, const struct walk_file *f, int fd, const char *why);
read_file_fn reader_file;

/* ---- for the parts of the reader ---- */

/* What is read at one step. */
struct item {
    struct stream *s;
    const struct place *place; /* NULL: the file itself */
    const char *name;          /* without the suffixes of undone compressions */
    const char *full_name;     /* with them */
    int depth;                 /* archives around it */
    int filters;               /* compressions undone in a row */
};

static inline bool reader_cancelled(const struct reader *r)
{
    return r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed);
}

/* Does nobody need the next document? It is passed over, and need not be made. */
static inline bool reader_knows(const struct reader *r)
{
    return r->errand && r->docs < r->errand->known;
}

/* Work at p begins; head: on the way to that entry of an archive, before its name is known. Returns why p
 * must be left alone, or NULL. */
const struct err *reader_at(const struct reader *r, const struct place *p, bool head);

/* A document with place, ids and counts set: content is hashed into its id when bytes is given. */
struct doc *reader_doc(const struct reader *r, const struct place *p, const void *bytes,
                       size_t n);
/* Gives d away: read when e is NULL or not set, failed with e otherwise. */
int reader_give(struct reader *r, struct doc *d, const struct err *e) MUST_CHECK;
/* A failed document at p. */
int reader_fail(struct reader *r, const struct place *p, const struct err *e) MUST_CHECK;

/* The whole of a stream is one document (read_document.c). */
int reader_document(struct reader *r, const struct item *it) MUST_CHECK;
/* One document per line (jsonl.c). */
int reader_jsonl(struct reader *r, const struct item *it) MUST_CHECK;

#endif

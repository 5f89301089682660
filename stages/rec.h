/* stages/rec.h - what flows through the pipeline.
 *
 *     ingest     chunk       tokenize     prefill      decode       write
 *       doc  ->  chunk(s) ->  request  ->  sequence ->  answer  ->  record
 *                               ^                          |
 *                               +---- answer (REDUCE) <----+
 *
 * What:   one envelope, struct rec, travels from stage to stage; each stage fills its part. The
 *         document behind it is shared by all of its records and counted.
 * Rules:  1. push takes the envelope; a stage emits it again, emits others, or frees it.
 *         2. A struct doc is immutable once ingest has pushed it, but for the fields marked "task",
 *            which belong to the tokenize stage alone, and "compute", of the thread of prefill and decode.
 *         3. An envelope whose `fail` is set passes through every stage untouched and becomes the
 *            failure record of its document. So does a document that ingest could not read, and one
 *            whose record an earlier run has written: rec_passes().
 *         4. Text is valid UTF-8 without NUL; spans are byte offsets into the document's text.
 * Thread: envelopes have one owner; doc_ref() and doc_unref() are safe from any thread.
 */
#ifndef QUIRE_REC_H
#define QUIRE_REC_H

#include "stages/base/buf.h"
#include "stages/base/hash.h"

#include <stdatomic.h>
#include <stdint.h>

/* ---- document ---- */

enum block_kind {
    BLOCK_PARAGRAPH,
    BLOCK_HEADING,
    BLOCK_LIST_ITEM,
    BLOCK_TABLE_ROW,
    BLOCK_CODE,
    BLOCK_QUOTE
};

struct block {
    enum block_kind kind;
    int level; /* heading level 1..9, list depth 1.., else 0 */
    size_t begin,
        end; /* text[begin, end): blocks are disjoint, rising, and may have gaps of white space */
    int page; /* 1-based page or slide, 0 when the format has none */
    int part; /* index into doc.parts, -1 when there is one source part only */
};

/* How a document's record ends; `failed` has a code and a message in doc.fail or rec.fail. */
enum doc_status {
    DOC_OK,
    DOC_PARTIAL, /* read with losses that warnings[] names: a torn archive member, replaced bytes */
    DOC_FAILED,
    DOC_STATUS_COUNT
};

/* How the ledger knows a document. */
struct origin {
    int64_t row;        /* of the finished record that is kept for it; 0: it is to be done */
    int64_t source;     /* the file */
    int64_t occurrence; /* number in it, from 0 */
};

struct doc {
    atomic_int refs;
    int64_t ordinal; /* 0, 1, 2 ... in input order, without gaps */
    char id
        [33]; /* stable: first 128 bits of SHA-256 over source, entry chain and content, hex */
    char *source; /* path of the file as found */
    char **
        chain; /* entry names from the outermost archive inwards; NULL-terminated; may be empty */
    char *title;      /* NULL when unknown */
    char *media_type; /* "text/plain", "text/html", ...; never NULL */
    char *encoding;   /* of the source bytes, e.g. "UTF-8"; NULL for failed documents */
    char **parts;     /* names of source parts; NULL-terminated, may be NULL */
    uint64_t bytes;   /* source bytes of this document */
    uint8_t sha256[HASH_BYTES]; /* of those bytes */
    struct origin origin;
    enum doc_status status;
    struct err fail; /* DOC_FAILED: why */
    char **warnings; /* NULL-terminated short sentences; NULL when none */
    char *text;      /* canonical UTF-8, text_len bytes and a NUL; NULL for failed documents */
    size_t text_len;
    struct block *blocks; /* [n_blocks] */
    size_t n_blocks;
    void *task;       /* task: per-document state of the tokenize stage */
    int64_t begun_us; /* compute: clock_us() when its first request was begun; 0: not yet */
};

struct doc *doc_new(void); /* refs = 1, everything else zero */
struct doc *doc_ref(struct doc *d);
void doc_unref(struct doc *d);
/* Bytes of memory that the document holds, for queues that are bounded by bytes. */
size_t doc_memory(const struct doc *d);
/* "mail.zip/31.txt" style name for messages: source and chain joined by '/'. Heap; free() it. */
char *doc_name(const struct doc *d);

/* ---- chunk ---- */

struct chunk {
    int index, count;   /* 0-based; count is the same in all chunks of a document */
    size_t begin, end;  /* span of doc->text; the chunks of a document cover it exactly once */
    int tokens;         /* of that span, encoded alone and without specials */
    char *heading_path; /* "Part > Section" in force at begin, or NULL; heap */
    int page_first, page_last;
};

/* ---- request ---- */

enum answer_use {
    ANSWER_FINAL,  /* goes to the record */
    ANSWER_REDUCE, /* goes back to tokenize, feeds the next level */
};

struct token_account {
    int64_t document; /* tokens of the document's text */
    int64_t fed;      /* of those, given to the model at level 0 */
    int64_t dropped;  /* of those, never given (document - fed) */
    int64_t
        prompt; /* prompt tokens over all requests, templates and partial answers included */
    int64_t reused;    /* of those, found in the KV cache */
    int64_t generated; /* over all requests, thinking included */
};

struct request {
    int32_t *tokens; /* [n_tokens] whole prompt; heap */
    int n_tokens;
    int n_shared;   /* leading tokens that every request of this kind has */
    int max_tokens; /* of the answer */
    uint64_t
        seed; /* from job seed, document id, question, level and index: never from timing */
    uint8_t key[HASH_BYTES]; /* of all that its answer depends on, for the ledger */
    int n_answered; /* the last ones of tokens are the beginning of the answer, which an earlier run wrote;
                       max_tokens counts what may follow. 0 from the moment that decode has taken them over */
    enum answer_use use;
    int question;     /* index into the job's questions; 0 for summarize and complete */
    int level, index; /* reduce level (0 = over chunks) and position in it */
    int n_level;      /* requests of that level; 0 where it is one alone */
};

/* ---- sequence ---- */

struct store_prompt; /* stages/kv/store.h */

struct sequence {
    struct store_prompt
        *prompt;   /* its pages; dropped with the envelope, on the compute thread */
    float *logits; /* [n_vocab] after the last prompt token; heap; NULL once decode took it */
};

/* ---- answer ---- */

enum stopped_by {
    STOP_NONE,
    STOP_EOS,
    STOP_MAX_TOKENS,
    STOP_STRING,
    STOP_REPETITION,
    STOP_CANCELLED,
    STOP_COUNT
};
const char *stopped_by_name(enum stopped_by s);

enum answer_flags {
    ANSWER_TRUNCATED = 1,  /* stopped by max_tokens */
    ANSWER_EMPTY = 2,      /* no text but white space */
    ANSWER_REPETITIVE = 4, /* a loop was detected and cut */
    ANSWER_THINKING = 8,   /* thinking text was dropped */
};

struct answer {
    char *text; /* valid UTF-8, trimmed; heap */
    size_t len;
    int n_tokens;   /* generated, thinking included */
    int n_thinking; /* of those, inside thinking marks */
    enum stopped_by stopped_by;
    unsigned flags;
};

struct timings {
    int64_t prefill_us, decode_us, wait_us;
};

/* ---- what the tokenize stage attaches to a final answer ---- */

struct part_answer { /* a level-0 answer kept for the record when write.chunks asks for it */
    int index;
    size_t begin, end;
    int page_first, page_last;
    char *heading_path;
    struct answer answer;
};

struct summary_info {
    int n_finals; /* final answers that make up this document's record (ask: one per question) */
    int n_chunks, n_levels;
    size_t covered;               /* bytes of text that level 0 was given */
    struct token_account account; /* of all requests but this final one; write adds its own */
    struct timings timings;
    unsigned flags;            /* of the partial answers, or-ed */
    struct part_answer *parts; /* [n_parts]; NULL unless kept */
    int n_parts;
};

/* ---- envelope ---- */

enum rec_kind { REC_DOC, REC_CHUNK, REC_REQUEST, REC_SEQUENCE, REC_ANSWER };

struct rec {
    struct rec *next; /* for queues */
    enum rec_kind kind;
    struct doc *doc; /* one reference held */
    struct err fail; /* set: the document failed here */
    struct chunk chunk;
    struct request req;
    struct sequence seq;
    struct answer answer;
    struct timings timings;
    int n_reused;              /* prompt tokens found in the KV cache */
    struct summary_info *info; /* ANSWER_FINAL only; heap, freed with the envelope */
};

/* Is there nothing to do for it before write? It failed, or its record is kept. */
static inline bool rec_passes(const struct rec *r)
{
    return r->fail.code || r->doc->status == DOC_FAILED || r->doc->origin.row;
}

/* An envelope for d: takes one reference of its own. */
struct rec *rec_new(enum rec_kind kind, struct doc *d);
/* Frees the envelope, all its parts and its reference; safe on NULL. */
void rec_free(struct rec *r);
/* Memory held by the envelope itself (not its document). */
size_t rec_memory(const struct rec *r);

#endif

/* stages/ledger/ledger.h - what a job has done so far, so that the next run of it goes on from there.
 *
 *     results.jsonl.partial   the truth for finished records: written and synced first
 *     .ledger/ledger.sqlite   finds them again: which document each belongs to, from which file in which state;
 *                             and what is not in a record yet: answers, and tokens of answers being written
 *
 * What:   one SQLite file per output folder. It knows generations, sources (files), documents, answers, tokens in
 *         flight, and actions. docs/resume.md has the tables.
 * Not:    no stage, no record: plain structs and bytes in, the same out.
 * Rules:  1. One generation at a time: what all records depend on. Another one begins only when asked for, and then
 *            nothing of the old one is left.
 *         2. A document is in here only after its record is on the disk; its answers are then forgotten.
 *         3. A ledger that is damaged is set aside and begun anew: what it knew comes back from the results, or is
 *            computed again. It never costs a result.
 *         4. Whoever changes something only queues it; one thread of the ledger writes. A killed process loses what
 *            is queued (moments of work), a machine that fails at most LEDGER_SYNC_MS of it.
 * Thread: safe from ledger_start() on; before, and after the stages have ended, one thread.
 */
#ifndef QUIRE_LEDGER_H
#define QUIRE_LEDGER_H

#include "stages/base/buf.h"
#include "stages/base/hash.h"

#include <stdint.h>

#define LEDGER_FOLDER ".ledger"

enum { LEDGER_SYNC_MS = 5000, LEDGER_ID = 33 };

struct ledger;

/* ---- life ---- */

/* Open or make the ledger of an output folder, which the caller holds the lock of. 1: it is new (there was none, or
 * one that could not be used and was set aside, with a warning). -ERR_IO, -ERR_NOMEM, reach JOB. */
int ledger_open(struct ledger **out, const char *folder, struct err *e) MUST_CHECK;
/* A run begins: gives it a number and starts the thread. */
int ledger_start(struct ledger *l, struct err *e) MUST_CHECK;
/* Writes what is queued, and closes. NULL is fine. */
void ledger_close(struct ledger *l);

/* Everything told so far is on the disk when this returns, the tokens in flight included. */
int ledger_sync(struct ledger *l, struct err *e) MUST_CHECK;
/* All documents of this run have their record and are published: forget what is not of it. */
int ledger_finish(struct ledger *l, struct err *e) MUST_CHECK;

/* Number of this run, from 1. */
int64_t ledger_run(const struct ledger *l);

/* Write into the journal of actions: "started", "signal", ... */
void ledger_note(struct ledger *l, const char *what, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* ---- generation ---- */

/* Something that records depend on. */
struct ledger_setting {
    char *key, *value;
    bool
        limit; /* only decides which documents can be read: a change makes those that failed be tried again */
};

struct ledger_settings {
    struct ledger_setting *at; /* heap */
    size_t n;
};

void ledger_settings_add(struct ledger_settings *s, const char *key, const char *value,
                         bool limit);
void ledger_settings_release(struct ledger_settings *s);

/* Compare with the generation of the ledger; a new ledger takes this one. 0: the same; 1: `differences` has a line
 * for each setting that another generation would have, and nothing was changed. */
int ledger_compare(struct ledger *l, const struct ledger_settings *s, struct buf *differences,
                   struct err *e) MUST_CHECK;
/* Forget everything and begin a generation. */
int ledger_restart(struct ledger *l, const struct ledger_settings *s, struct err *e) MUST_CHECK;

/* ---- sources ---- */

/* A file with documents in it, as it is now. */
struct ledger_stat {
    const char *path;
    uint64_t size, inode;
    int64_t mtime_ns;
    uint8_t how[HASH_BYTES]; /* digest of the settings that choose among its documents */
};

/* What is finished of it. */
struct ledger_source {
    int64_t id;
    bool whole; /* all of its documents: it need not be opened */
    int64_t *
        rows; /* [n] of its documents from the first on, up to one that is missing; 0 when the file has changed */
    size_t n;
};

int ledger_source(struct ledger *l, const struct ledger_stat *st, struct ledger_source *out,
                  struct err *e) MUST_CHECK;
void ledger_source_release(struct ledger_source *s);

/* It is being read; it was read to its end and holds n documents; or it was kept as it is. */
void ledger_reading(struct ledger *l, int64_t source, const struct ledger_stat *st);
void ledger_read(struct ledger *l, int64_t source, int64_t n);
void ledger_kept(struct ledger *l, int64_t source);

/* ---- documents ---- */

struct ledger_doc {
    int64_t row; /* 0: not in the ledger yet */
    int64_t source, occurrence;
    char id[LEDGER_ID];
    int64_t ordinal;
    int status;    /* as enum doc_status */
    char code[24]; /* of a failure */
    char message[512];
    unsigned flags;
    int64_t prefill_us, decode_us, wait_us, reused_tokens;
};

/* The finished document with this id that may be kept, or 0. */
int ledger_find(struct ledger *l, const char *id, int64_t *row, struct err *e) MUST_CHECK;
/* What is known of a row, and its record (line is cleared first). */
int ledger_get(struct ledger *l, int64_t row, struct ledger_doc *out, struct buf *line,
               struct err *e) MUST_CHECK;
/* Its record is on the disk: a new one (row 0) with its line, or a kept one. Waits while too much is queued.
 * An error is one that the thread has met. */
int ledger_done(struct ledger *l, const struct ledger_doc *d, const char *line, size_t n,
                struct err *e) MUST_CHECK;
/* Before ledger_start(): a record that was found in the results. 0: taken; 1: known already. */
int ledger_adopt(struct ledger *l, const struct ledger_doc *d, const char *line, size_t n,
                 struct err *e) MUST_CHECK;
/* Documents that failed are to be done again. Returns how many, or an error. Before ledger_start(). */
int64_t ledger_retry_failed(struct ledger *l, struct err *e) MUST_CHECK;

/* ---- answers ---- */

struct ledger_answer {
    char *text; /* heap */
    size_t len;
    int n_tokens, n_thinking, stopped_by;
    unsigned flags;
};

/* The answer of an earlier run to the request with this key. True: moved out. */
bool ledger_take_answer(struct ledger *l, const uint8_t key[HASH_BYTES],
                        struct ledger_answer *out);

/* An answer that is being written. */
struct ledger_flight;

/* Tokens that an earlier run had of the answer: a heap copy of *n, or NULL. */
int32_t *ledger_tokens(struct ledger *l, const uint8_t key[HASH_BYTES], int *n);
/* Begin one of document doc, with n tokens so far. NULL: no memory, or one with this key is being written. */
struct ledger_flight *ledger_flight(struct ledger *l, const uint8_t key[HASH_BYTES],
                                    const char *doc, const int32_t *tokens, int n);
/* One more token. Never waits for the disk. f may be NULL, as below. */
void ledger_token(struct ledger *l, struct ledger_flight *f, int32_t token);

enum ledger_landing {
    LEDGER_ANSWERED, /* keep the answer until its document is finished */
    LEDGER_FAILED,   /* forget it */
    LEDGER_STOPPED,  /* the run stops: keep the tokens */
};
/* The end of a flight; a is copied, and NULL unless ANSWERED. */
void ledger_land(struct ledger *l, struct ledger_flight *f, enum ledger_landing how,
                 const struct ledger_answer *a);

/* ---- looking ---- */

struct ledger_look {
    bool there; /* there is a ledger */
    int64_t generation, runs;
    int64_t begun_ms;  /* of the generation */
    int64_t active_ms; /* last time that something was written */
    bool finished;     /* the last run came to its end */
    int64_t by_status[3], again;
    int64_t sources, found; /* files read to their end, and the documents in them */
    int64_t answers, flights, flight_tokens;
    char last[32], last_detail[256]; /* action */
    int64_t last_ms;
};

/* Read a ledger that may be in use by a run. */
int ledger_look(const char *folder, struct ledger_look *out, struct err *e) MUST_CHECK;

#endif

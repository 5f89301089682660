/* stages/ledger/ledger_inner.h - what the files of the ledger share. Not for others.
 *
 * Thread: `db` belongs to the ledger's thread while it runs; `view` is read under view_lock; the queue and the table
 *         of answers and flights are under lock.
 */
#ifndef QUIRE_LEDGER_INNER_H
#define QUIRE_LEDGER_INNER_H

#include "stages/ledger/ledger.h"

#include <pthread.h>
#include <sqlite3.h>

/* ---- statements (ledger_db.c) ---- */

enum sql {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_GENERATION_GET,
    SQL_GENERATION_NEW,
    SQL_GENERATION_RUN,
    SQL_GENERATION_ALIVE,
    SQL_GENERATION_END,
    SQL_SETTING_ALL,
    SQL_SETTING_SET,
    SQL_SOURCE_GET,
    SQL_SOURCE_SET,

    SQL_SOURCE_KEPT,
    SQL_SOURCE_DOCS,
    SQL_DOC_FIND,
    SQL_DOC_ALL,
    SQL_DOC_DROP,
    SQL_DOC_KNOWN,

    SQL_DOC_GET,
    SQL_DOC_NEW,
    SQL_DOC_MOVE,
    SQL_DOC_AGAIN,
    SQL_DOC_OLD,
    SQL_RECORD_NEW,
    SQL_ANSWER_ALL,
    SQL_ANSWER_NEW,
    SQL_ANSWER_DONE,
    SQL_FLIGHT_ALL,
    SQL_FLIGHT_SET,
    SQL_FLIGHT_DROP,
    SQL_FLIGHT_DONE,
    SQL_ACTION_NEW,
    SQL_COUNT
};

struct db {
    sqlite3 *handle;
    sqlite3_stmt *stmts[SQL_COUNT]; /* prepared when first wanted */
};

/* The name of the way to files that the ledger takes, or NULL (ledger_vfs.c). */
const char *ledger_vfs(void);
/* Something new is asked of SQLite in this thread; and the errno of the first call on a file that failed for it, or 0. */
void ledger_vfs_begin(void);
int ledger_vfs_failed(void);
/* Open a file; make: with its tables when it is new. -ERR_CORRUPT when it is no ledger of this version, or damaged. */
int db_open(struct db *db, const char *path, bool make, struct err *e) MUST_CHECK;
void db_close(struct db *db);
/* Is the file whole? */
int db_check(struct db *db, struct err *e) MUST_CHECK;
/* A statement, ready to be bound; never NULL without e being set. */
sqlite3_stmt *db_sql(struct db *db, enum sql which, struct err *e) MUST_CHECK;
/* 1: a row is there; 0: done, and the statement is reset. */
int db_step(struct db *db, sqlite3_stmt *s, struct err *e) MUST_CHECK;
/* A statement without values or rows, for its effect. */
int db_do(struct db *db, enum sql which, struct err *e) MUST_CHECK;
int db_exec(struct db *db, const char *text, struct err *e) MUST_CHECK;
int db_fail(struct db *db, const char *what, struct err *e);

/* A bound value; text and bytes stay where they are until the statement has run. */
void db_bind_text(sqlite3_stmt *s, int i, const char *text);
void db_bind_blob(sqlite3_stmt *s, int i, const void *data, size_t n);

int64_t ledger_now_ms(void);

/* ---- check sums of rows (ledger_sum.c) ----
 * SQLite finds damage of its own structure. These find a changed byte in what a row says. */

/* What a source row says beside its number. */
struct source_row {
    const void *path;
    size_t path_len;
    struct ledger_stat st; /* path unused */
    int64_t since, docs;
};

int64_t sum_setting(const char *key, const char *value, bool limit);
int64_t sum_source(int64_t id, const struct source_row *r);
int64_t sum_doc(int64_t source, int64_t occurrence, int64_t run, const char *doc_id);
int64_t sum_record(const char *doc_id, const void *line, size_t n);
int64_t sum_answer(const uint8_t key[HASH_BYTES], const char *doc_id,
                   const struct ledger_answer *a);
int64_t sum_flight(const uint8_t key[HASH_BYTES], const void *tokens, size_t n);

/* Read a source row whose sum is right. 1: it is there; path points into the statement, which the caller resets. */
int source_get(struct db *db, int64_t id, struct source_row *r, sqlite3_stmt **s,
               struct err *e) MUST_CHECK;
/* Is it this file, unchanged? */
bool source_same(const struct source_row *r, const struct ledger_stat *st, const void *path,
                 size_t n);
/* A row of SQL_SOURCE_DOCS or SQL_DOC_FIND: is its sum right? */
bool doc_row_ok(sqlite3_stmt *s);
/* Drop the documents whose rows or records are damaged: they are done again. */
int drop_damaged(struct db *db, struct err *e) MUST_CHECK;

/* ---- what is queued (ledger_apply.c) ---- */

enum op_kind {
    OP_READING,
    OP_READ,
    OP_KEPT,
    OP_DONE,
    OP_ANSWER,
    OP_FORGET,
    OP_NOTE,
    OP_END,
};

struct op {
    struct op *next;
    enum op_kind kind;
    size_t bytes;
    int64_t source, n;
    struct ledger_stat st; /* path is owned */
    struct ledger_doc doc;
    char *text; /* line, path or detail; owned */
    size_t len;
    uint8_t key[HASH_BYTES];
    struct ledger_answer answer; /* text is owned */
    char what[32];
};

struct op *op_new(enum op_kind kind);
void op_free(struct op *op);

/* -ERR_CORRUPT where one is damaged. */
int settings_load(struct ledger *l, struct ledger_settings *s, struct err *e) MUST_CHECK;

/* ---- answers and flights (ledger_flight.c) ---- */

struct ledger_flight {
    struct ledger_flight *next;
    uint8_t key[HASH_BYTES];
    char doc[LEDGER_ID];
    bool answered; /* of an earlier run: answer is set */
    bool open;     /* being written now */
    bool lost;     /* no memory for a token: what is stored stays */
    struct ledger_answer answer;
    int32_t *tokens;
    int n, cap, stored;
};

struct flights {
    struct ledger_flight **slots; /* [n_slots], a power of two; chains by key */
    size_t n_slots, n;
};

int flights_load(struct ledger *l, struct err *e) MUST_CHECK;
void flights_free(struct flights *f);

/* ---- the ledger ---- */

struct ledger {
    char *path;
    struct db db, view;
    pthread_mutex_t view_lock;
    int64_t run;
    bool fresh;
    bool adopting; /* a transaction is open until ledger_start() */

    pthread_mutex_t lock;
    pthread_cond_t work, room; /* for the thread; for those that wait for it */
    pthread_t thread;
    bool started, stop;
    struct op *first, **last;
    size_t queued_bytes;
    uint64_t sync_wanted, sync_done; /* tickets */
    struct flights flights;
    struct err err; /* that the thread met: nothing is written after it */
    bool off;       /* nothing is written any more */
    bool
        damaged; /* it was found so while in use: the run goes on without, the next one begins it anew */
};

void ledger_queue(struct ledger *l, struct op *op);
/* Apply one operation inside a transaction. */
int ledger_apply(struct ledger *l, const struct op *op, struct err *e) MUST_CHECK;
/* Writes what flights have gained. Takes the lock for moments. */
int flights_store(struct ledger *l, struct err *e) MUST_CHECK;

#endif

/* SQLite behind a table of statements: the only file that knows how the ledger's tables look. */
#include "stages/base/mem.h"
#include "stages/ledger/ledger_inner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { APPLICATION = 0x51756972 /* "Quir" */, VERSION = 1, BUSY_MS = 5000 };

static const char schema[] =
    "CREATE TABLE generation(id INTEGER PRIMARY KEY, begun_ms INTEGER NOT NULL, runs INTEGER "
    "NOT NULL,"
    " alive_ms INTEGER NOT NULL, finished INTEGER NOT NULL);"
    "CREATE TABLE setting(key TEXT PRIMARY KEY, value TEXT NOT NULL, is_limit INTEGER NOT NULL,"
    " sum INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE source(id INTEGER PRIMARY KEY, path BLOB NOT NULL, size INTEGER NOT NULL,"
    " mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, how BLOB NOT NULL, since INTEGER NOT "
    "NULL,"
    " docs INTEGER NOT NULL, seen INTEGER NOT NULL, sum INTEGER NOT NULL);"
    "CREATE TABLE document(id INTEGER PRIMARY KEY, source INTEGER NOT NULL, occurrence INTEGER "
    "NOT NULL,"
    " run INTEGER NOT NULL, doc_id TEXT NOT NULL, ordinal INTEGER NOT NULL, status INTEGER NOT "
    "NULL,"
    " code TEXT NOT NULL, message TEXT NOT NULL, flags INTEGER NOT NULL, prefill_us INTEGER "
    "NOT NULL,"
    " decode_us INTEGER NOT NULL, wait_us INTEGER NOT NULL, reused_tokens INTEGER NOT NULL,"
    " again INTEGER NOT NULL, sum INTEGER NOT NULL);"
    "CREATE INDEX document_source ON document(source, occurrence);"
    "CREATE INDEX document_id ON document(doc_id);"
    "CREATE TABLE record(document INTEGER PRIMARY KEY, line BLOB NOT NULL, sum INTEGER NOT "
    "NULL);"
    "CREATE TABLE answer(key BLOB PRIMARY KEY, doc_id TEXT NOT NULL, text BLOB NOT NULL,"
    " n_tokens INTEGER NOT NULL, n_thinking INTEGER NOT NULL, stopped_by INTEGER NOT NULL,"
    " flags INTEGER NOT NULL, sum INTEGER NOT NULL);"
    "CREATE INDEX answer_id ON answer(doc_id);"
    "CREATE TABLE flight(key BLOB PRIMARY KEY, doc_id TEXT NOT NULL, tokens BLOB NOT NULL,"
    " sum INTEGER NOT NULL);"
    "CREATE INDEX flight_id ON flight(doc_id);"
    "CREATE TABLE action(id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, run INTEGER NOT NULL,"
    " what TEXT NOT NULL, detail TEXT NOT NULL);";

static const char *const texts[SQL_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_GENERATION_GET] = "SELECT id, begun_ms, runs, alive_ms, finished FROM generation"
                           " ORDER BY id DESC LIMIT 1",
    [SQL_GENERATION_NEW] = "INSERT INTO generation(begun_ms, runs, alive_ms, finished)"
                           " VALUES(?1, 0, ?1, 0)",
    [SQL_GENERATION_RUN] = "UPDATE generation SET finished = 0, runs = 1 + max(runs,"
                           " (SELECT ifnull(max(run), 0) FROM document), (SELECT "
                           "ifnull(max(seen), 0) FROM source))",
    [SQL_GENERATION_ALIVE] = "UPDATE generation SET alive_ms = ?1",
    [SQL_GENERATION_END] = "UPDATE generation SET finished = 1",
    [SQL_SETTING_ALL] = "SELECT key, value, is_limit, sum FROM setting ORDER BY key",
    [SQL_SETTING_SET] = "INSERT OR REPLACE INTO setting(key, value, is_limit, sum)"
                        " VALUES(?1, ?2, ?3, ?4)",
    [SQL_SOURCE_GET] = "SELECT path, size, mtime_ns, inode, how, since, docs, sum FROM source"
                       " WHERE id = ?1",
    [SQL_SOURCE_SET] =
        "INSERT OR REPLACE INTO source(id, path, size, mtime_ns, inode, how, since,"
        " docs, seen, sum) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [SQL_SOURCE_KEPT] = "UPDATE source SET seen = ?2 WHERE id = ?1",
    [SQL_SOURCE_DOCS] =
        "SELECT id, source, occurrence, run, doc_id, sum FROM document"
        " WHERE source = ?1 AND run >= ?2 AND again = 0 ORDER BY occurrence, id",
    [SQL_DOC_FIND] = "SELECT id, source, occurrence, run, doc_id, sum FROM document"
                     " WHERE doc_id = ?1 AND again = 0 ORDER BY id",
    [SQL_DOC_ALL] =
        "SELECT document.id, source, occurrence, run, doc_id, document.sum, line, record.sum"
        " FROM document LEFT JOIN record ON record.document = document.id",
    [SQL_DOC_DROP] = "DELETE FROM document WHERE id = ?1",
    [SQL_DOC_KNOWN] = "SELECT id FROM document WHERE doc_id = ?1 LIMIT 1",
    [SQL_DOC_GET] =
        "SELECT source, occurrence, doc_id, ordinal, status, code, message, flags,"
        " prefill_us, decode_us, wait_us, reused_tokens, line, record.sum FROM document"
        " JOIN record ON record.document = document.id WHERE document.id = ?1",
    [SQL_DOC_NEW] =
        "INSERT INTO document(source, occurrence, run, doc_id, ordinal, status, code,"
        " message, flags, prefill_us, decode_us, wait_us, reused_tokens, again, sum)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 0, ?14)",
    [SQL_DOC_MOVE] = "UPDATE document SET source = ?2, occurrence = ?3, run = ?4, ordinal = ?5,"
                     " sum = ?6 WHERE id = ?1",
    [SQL_DOC_AGAIN] = "UPDATE document SET again = 1 WHERE status = 2 AND again = 0",
    [SQL_DOC_OLD] = "DELETE FROM document WHERE source = ?1 AND occurrence = ?2 AND id <> ?3"
                    " AND (run = ?4 OR again = 1 OR doc_id = ?5)",
    [SQL_RECORD_NEW] = "INSERT OR REPLACE INTO record(document, line, sum) VALUES(?1, ?2, ?3)",
    [SQL_ANSWER_ALL] = "SELECT key, doc_id, text, n_tokens, n_thinking, stopped_by, flags, sum"
                       " FROM answer",
    [SQL_ANSWER_NEW] = "INSERT OR REPLACE INTO answer(key, doc_id, text, n_tokens, n_thinking,"
                       " stopped_by, flags, sum) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [SQL_ANSWER_DONE] = "DELETE FROM answer WHERE doc_id = ?1",
    [SQL_FLIGHT_ALL] = "SELECT key, doc_id, tokens, sum FROM flight",
    [SQL_FLIGHT_SET] = "INSERT OR REPLACE INTO flight(key, doc_id, tokens, sum)"
                       " VALUES(?1, ?2, ?3, ?4)",
    [SQL_FLIGHT_DROP] = "DELETE FROM flight WHERE key = ?1",
    [SQL_FLIGHT_DONE] = "DELETE FROM flight WHERE doc_id = ?1",
    [SQL_ACTION_NEW] = "INSERT INTO action(at_ms, run, what, detail) VALUES(?1, ?2, ?3, ?4)",
};

/* The errno behind what SQLite says, or 0. */
static int file_error(sqlite3 *handle, int code)
{
    int why = ledger_vfs_failed();
    switch (code) {
    case SQLITE_FULL:
        return ENOSPC;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        if (!why)
            why = sqlite3_system_errno(handle);
        return why || code == SQLITE_CANTOPEN ? why : EIO;
    case SQLITE_CORRUPT: /* that could not be read */
    case SQLITE_NOTADB:
        return why;
    default:
        return 0;
    }
}

int db_fail(struct db *db, const char *what, struct err *e)
{
    int code = db->handle ? sqlite3_errcode(db->handle) & 0xff : SQLITE_NOMEM;
    int why = db->handle ? file_error(db->handle, code) : 0;
    enum err_code as = ERR_IO;
    const char *said = why          ? strerror(why)
                       : db->handle ? sqlite3_errmsg(db->handle)
                                    : "no memory";
    if (code == SQLITE_NOMEM)
        as = ERR_NOMEM;
    else if (!why && (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR ||
                      code == SQLITE_CONSTRAINT || code == SQLITE_MISMATCH))
        as = ERR_CORRUPT;
    return err_set(e, REACH_JOB, as, "ledger: %s: %s", what, said);
}

int db_exec(struct db *db, const char *text, struct err *e)
{
    ledger_vfs_begin();
    return sqlite3_exec(db->handle, text, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : db_fail(db, "cannot be used", e);
}

/* The number that a pragma gives; -1 with an error. */
static int64_t pragma(struct db *db, const char *text, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int64_t v = -1;
    if (sqlite3_prepare_v2(db->handle, text, -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        v = sqlite3_column_int64(s, 0);
    else
        db_fail(db, "cannot be read", e);
    sqlite3_finalize(s);
    return v;
}

/* All of the tables or none: a process that is killed here leaves an empty file, which is new the next time. */
static int make_tables(struct db *db, struct err *e)
{
    char begin[128];
    snprintf(begin, sizeof(begin),
             "BEGIN IMMEDIATE; PRAGMA application_id = %d; PRAGMA user_version = %d;",
             APPLICATION, VERSION);
    int rc = db_exec(db, begin, e);
    if (!rc)
        rc = db_exec(db, schema, e);
    return rc ? rc : db_exec(db, "COMMIT", e);
}

int db_check(struct db *db, struct err *e)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db->handle, "PRAGMA quick_check(1)", -1, &s, NULL) != SQLITE_OK ||
        sqlite3_step(s) != SQLITE_ROW)
        db_fail(db, "cannot be checked",
                e); /* that it could not be read does not make it bad */
    else if (!sqlite3_column_text(s, 0) ||
             strcmp((const char *)sqlite3_column_text(s, 0), "ok") != 0)
        err_set(e, REACH_JOB, ERR_CORRUPT, "ledger: its check fails");
    sqlite3_finalize(s);
    return -(int)e->code;
}

/* A statement for every text: a table that is not as it should be shows here, not in the middle of a run. */
static int prepare_all(struct db *db, struct err *e)
{
    for (int i = 0; i < SQL_COUNT; i++)
        if (!db_sql(db, (enum sql)i, e))
            return -(int)e->code;
    return 0;
}

static int open_once(struct db *db, const char *path, bool make, struct err *e)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (make ? SQLITE_OPEN_CREATE : 0);
    *db = (struct db){0};
    ledger_vfs_begin();
    if (sqlite3_open_v2(path, &db->handle, flags, ledger_vfs()) != SQLITE_OK)
        return db_fail(db, path, e);
    sqlite3_busy_timeout(db->handle, BUSY_MS);
    /* Bytes of the file are not to be trusted. */
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    int rc = db_exec(db, "PRAGMA cell_size_check = 1; PRAGMA synchronous = NORMAL", e);
    if (!rc && make)
        rc = db_exec(db, "PRAGMA journal_mode = WAL", e);
    if (!rc && make && pragma(db, "PRAGMA schema_version", e) == 0)
        rc = make_tables(db, e);
    /* The error of a pragma is the first one, and stays. */
    if (!rc && pragma(db, "PRAGMA application_id", e) != APPLICATION)
        rc = err_set(e, REACH_JOB, ERR_CORRUPT, "ledger: no ledger of quire");
    if (!rc && pragma(db, "PRAGMA user_version", e) != VERSION)
        rc = err_set(e, REACH_JOB, ERR_CORRUPT, "ledger: of another version of quire");
    return rc ? rc : prepare_all(db, e);
}

/* Where the system had no descriptor for a moment a second try helps. */
int db_open(struct db *db, const char *path, bool make, struct err *e)
{
    int rc = open_once(db, path, make, e);
    if (rc != -ERR_IO)
        return rc;
    db_close(db);
    err_clear(e);
    return open_once(db, path, make, e);
}

void db_close(struct db *db)
{
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(db->stmts[i]);
    sqlite3_close(db->handle);
    *db = (struct db){0};
}

sqlite3_stmt *db_sql(struct db *db, enum sql which, struct err *e)
{
    sqlite3_stmt **s = &db->stmts[which];
    ledger_vfs_begin();
    if (!*s && sqlite3_prepare_v3(db->handle, texts[which], -1, SQLITE_PREPARE_PERSISTENT, s,
                                  NULL) != SQLITE_OK)
        db_fail(db, "its tables are not as they should be", e);
    if (*s) {
        sqlite3_reset(*s);
        sqlite3_clear_bindings(*s);
    }
    return *s;
}

int db_step(struct db *db, sqlite3_stmt *s, struct err *e)
{
    int got = sqlite3_step(s);
    if (got == SQLITE_ROW)
        return 1;
    int rc = got == SQLITE_DONE ? 0 : db_fail(db, "cannot be read or written", e);
    sqlite3_reset(s);
    return rc;
}

void db_bind_text(sqlite3_stmt *s, int i, const char *text)
{
    sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
}

void db_bind_blob(sqlite3_stmt *s, int i, const void *data, size_t n)
{
    sqlite3_bind_blob64(s, i, n ? data : "", n, SQLITE_STATIC);
}

int db_do(struct db *db, enum sql which, struct err *e)
{
    sqlite3_stmt *s = db_sql(db, which, e);
    return s ? db_step(db, s, e) : -(int)e->code;
}

/* What is queued, as changes of the tables. */
#include "stages/base/mem.h"
#include "stages/ledger/ledger_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct op *op_new(enum op_kind kind)
{
    struct op *op = mem_need(sizeof(*op));
    op->kind = kind;
    return op;
}

void op_free(struct op *op)
{
    if (!op)
        return;
    free(op->text);
    free(op->answer.text);
    free(op);
}

static void bind_blob(sqlite3_stmt *s, int i, const void *data, size_t n)
{
    sqlite3_bind_blob64(s, i, n ? data : "", n, SQLITE_STATIC);
}

static void bind_text(sqlite3_stmt *s, int i, const char *text)
{
    sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
}

static int reading(struct ledger *l, const struct op *op, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_SOURCE_READING, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, op->source);
    bind_blob(s, 2, op->text, op->len);
    sqlite3_bind_int64(s, 3, (int64_t)op->st.size);
    sqlite3_bind_int64(s, 4, op->st.mtime_ns);
    sqlite3_bind_int64(s, 5, (int64_t)op->st.inode);
    bind_blob(s, 6, op->st.how, HASH_BYTES);
    sqlite3_bind_int64(s, 7, l->run);
    return db_step(&l->db, s, e);
}

static int update_source(struct ledger *l, enum sql which, int64_t source, int64_t value,
                         struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, which, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, source);
    sqlite3_bind_int64(s, 2, value);
    return db_step(&l->db, s, e);
}

/* A statement whose only value is a document's id. */
static int by_doc_id(struct ledger *l, enum sql which, const char *id, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, which, e);
    if (!s)
        return -(int)e->code;
    bind_text(s, 1, id);
    return db_step(&l->db, s, e);
}

static int insert_doc(struct ledger *l, const struct ledger_doc *d, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_DOC_NEW, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, d->source);
    sqlite3_bind_int64(s, 2, d->occurrence);
    sqlite3_bind_int64(s, 3, l->run);
    bind_blob(s, 4, d->at, HASH_BYTES);
    sqlite3_bind_int64(s, 5, (int64_t)d->cost);
    bind_text(s, 6, d->id);
    sqlite3_bind_int64(s, 7, d->ordinal);
    sqlite3_bind_int(s, 8, d->status);
    bind_text(s, 9, d->code);
    bind_text(s, 10, d->message);
    sqlite3_bind_int64(s, 11, d->flags);
    sqlite3_bind_int64(s, 12, d->prefill_us);
    sqlite3_bind_int64(s, 13, d->decode_us);
    sqlite3_bind_int64(s, 14, d->wait_us);
    sqlite3_bind_int64(s, 15, d->reused_tokens);
    return db_step(&l->db, s, e);
}

static int insert_record(struct ledger *l, int64_t row, const char *line, size_t n,
                         struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_RECORD_NEW, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, row);
    bind_blob(s, 2, line, n);
    return db_step(&l->db, s, e);
}

static int move_doc(struct ledger *l, const struct ledger_doc *d, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_DOC_MOVE, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, d->row);
    sqlite3_bind_int64(s, 2, d->source);
    sqlite3_bind_int64(s, 3, d->occurrence);
    sqlite3_bind_int64(s, 4, l->run);
    bind_blob(s, 5, d->at, HASH_BYTES);
    sqlite3_bind_int64(s, 6, (int64_t)d->cost);
    sqlite3_bind_int64(s, 7, d->ordinal);
    return db_step(&l->db, s, e);
}

/* The document that stood in this place before, where it is the same one or cannot be asked for any more. Others stay
 * until the run has ended: their content may have moved to where it is found later. */
static int drop_old(struct ledger *l, const struct ledger_doc *d, int64_t row, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_DOC_OLD, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, d->source);
    sqlite3_bind_int64(s, 2, d->occurrence);
    sqlite3_bind_int64(s, 3, row);
    sqlite3_bind_int64(s, 4, l->run);
    bind_text(s, 5, d->id);
    return db_step(&l->db, s, e);
}

static int done(struct ledger *l, const struct op *op, struct err *e)
{
    const struct ledger_doc *d = &op->doc;
    int64_t row = d->row;
    int rc = row ? move_doc(l, d, e) : insert_doc(l, d, e);
    if (!rc && !row) {
        row = sqlite3_last_insert_rowid(l->db.handle);
        rc = insert_record(l, row, op->text, op->len, e);
    }
    if (!rc)
        rc = drop_old(l, d, row, e);
    if (!rc)
        rc = by_doc_id(l, SQL_ANSWER_DONE, d->id, e);
    return rc ? rc : by_doc_id(l, SQL_FLIGHT_DONE, d->id, e);
}

static int answer(struct ledger *l, const struct op *op, struct err *e)
{
    const struct ledger_answer *a = &op->answer;
    sqlite3_stmt *s = db_sql(&l->db, SQL_ANSWER_NEW, e);
    if (!s)
        return -(int)e->code;
    bind_blob(s, 1, op->key, HASH_BYTES);
    bind_text(s, 2, op->doc.id);
    bind_blob(s, 3, a->text, a->len);
    sqlite3_bind_int(s, 4, a->n_tokens);
    sqlite3_bind_int(s, 5, a->n_thinking);
    sqlite3_bind_int(s, 6, a->stopped_by);
    sqlite3_bind_int64(s, 7, a->flags);
    return db_step(&l->db, s, e);
}

static int forget_flight(struct ledger *l, const struct op *op, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_FLIGHT_DROP, e);
    if (!s)
        return -(int)e->code;
    bind_blob(s, 1, op->key, HASH_BYTES);
    return db_step(&l->db, s, e);
}

static int note(struct ledger *l, const struct op *op, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_ACTION_NEW, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, ledger_now_ms());
    sqlite3_bind_int64(s, 2, l->run);
    bind_text(s, 3, op->what);
    bind_text(s, 4, op->text);
    return db_step(&l->db, s, e);
}

/* What this run did not meet is no input any more, and nothing is half done. */
static int end(struct ledger *l, struct err *e)
{
    char text[512];
    snprintf(text, sizeof(text),
             "DELETE FROM source WHERE seen <> %lld;"
             "DELETE FROM document WHERE NOT EXISTS (SELECT 1 FROM source WHERE source.id = "
             "document.source"
             " AND source.walk = document.walk);"
             "DELETE FROM record WHERE document NOT IN (SELECT id FROM document);"
             "DELETE FROM answer; DELETE FROM flight;",
             (long long)l->run);
    int rc = db_exec(&l->db, text, e);
    return rc ? rc : db_do(&l->db, SQL_GENERATION_END, e);
}

int ledger_apply(struct ledger *l, const struct op *op, struct err *e)
{
    int rc = 0;
    switch (op->kind) {
    case OP_READING:
        return reading(l, op, e);
    case OP_READ:
        return update_source(l, SQL_SOURCE_READ, op->source, op->n, e);
    case OP_KEPT:
        return update_source(l, SQL_SOURCE_KEPT, op->source, l->run, e);
    case OP_DONE:
        return done(l, op, e);
    case OP_ANSWER:
        rc = answer(l, op, e);
        return rc ? rc : forget_flight(l, op, e);
    case OP_FORGET:
        return forget_flight(l, op, e);
    case OP_NOTE:
        return note(l, op, e);
    case OP_END:
        return end(l, e);
    }
    return err_set(e, REACH_JOB, ERR_BUG, "ledger: an operation of kind %d", (int)op->kind);
}

/* ---- before the thread ---- */

int ledger_adopt(struct ledger *l, const struct ledger_doc *d, const char *line, size_t n,
                 struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_DOC_KNOWN, e);
    if (!s)
        return -(int)e->code;
    bind_text(s, 1, d->id);
    int known = db_step(&l->db, s, e);
    sqlite3_reset(s);
    if (known)
        return known;
    int rc = insert_doc(l, d, e);
    return rc ? rc : insert_record(l, sqlite3_last_insert_rowid(l->db.handle), line, n, e);
}

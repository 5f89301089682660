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

static int set_source(struct ledger *l, int64_t id, const struct source_row *r, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_SOURCE_SET, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, id);
    db_bind_blob(s, 2, r->path, r->path_len);
    sqlite3_bind_int64(s, 3, (int64_t)r->st.size);
    sqlite3_bind_int64(s, 4, r->st.mtime_ns);
    sqlite3_bind_int64(s, 5, (int64_t)r->st.inode);
    db_bind_blob(s, 6, r->st.how, HASH_BYTES);
    sqlite3_bind_int64(s, 7, r->since);
    sqlite3_bind_int64(s, 8, r->docs);
    sqlite3_bind_int64(s, 9, l->run);
    sqlite3_bind_int64(s, 10, sum_source(id, r));
    return db_step(&l->db, s, e);
}

/* What is known of the documents of a file holds while the file is the same. */
static int reading(struct ledger *l, const struct op *op, struct err *e)
{
    struct source_row old,
        now = {
            .path = op->text, .path_len = op->len, .st = op->st, .since = l->run, .docs = -1};
    sqlite3_stmt *s;
    int rc = source_get(&l->db, op->source, &old, &s, e);
    if (rc == 1 && source_same(&old, &op->st, op->text, op->len))
        now.since = old.since;
    sqlite3_reset(s);
    return rc < 0 ? rc : set_source(l, op->source, &now, e);
}

static int was_read(struct ledger *l, const struct op *op, struct err *e)
{
    struct source_row r;
    sqlite3_stmt *s;
    int rc = source_get(&l->db, op->source, &r, &s, e);
    if (rc == 1) {
        r.docs = op->n;
        rc = set_source(l, op->source, &r, e); /* its path is still in the other statement */
    }
    sqlite3_reset(s);
    return rc;
}

static int was_kept(struct ledger *l, const struct op *op, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_SOURCE_KEPT, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, op->source);
    sqlite3_bind_int64(s, 2, l->run);
    return db_step(&l->db, s, e);
}

/* A statement whose only value is a document's id. */
static int by_doc_id(struct ledger *l, enum sql which, const char *id, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, which, e);
    if (!s)
        return -(int)e->code;
    db_bind_text(s, 1, id);
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
    db_bind_text(s, 4, d->id);
    sqlite3_bind_int64(s, 5, d->ordinal);
    sqlite3_bind_int(s, 6, d->status);
    db_bind_text(s, 7, d->code);
    db_bind_text(s, 8, d->message);
    sqlite3_bind_int64(s, 9, d->flags);
    sqlite3_bind_int64(s, 10, d->prefill_us);
    sqlite3_bind_int64(s, 11, d->decode_us);
    sqlite3_bind_int64(s, 12, d->wait_us);
    sqlite3_bind_int64(s, 13, d->reused_tokens);
    sqlite3_bind_int64(s, 14, sum_doc(d->source, d->occurrence, l->run, d->id));
    return db_step(&l->db, s, e);
}

static int insert_record(struct ledger *l, int64_t row, const char *id, const char *line,
                         size_t n, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_RECORD_NEW, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, row);
    db_bind_blob(s, 2, line, n);
    sqlite3_bind_int64(s, 3, sum_record(id, line, n));
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
    sqlite3_bind_int64(s, 5, d->ordinal);
    sqlite3_bind_int64(s, 6, sum_doc(d->source, d->occurrence, l->run, d->id));
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
    db_bind_text(s, 5, d->id);
    return db_step(&l->db, s, e);
}

static int done(struct ledger *l, const struct op *op, struct err *e)
{
    const struct ledger_doc *d = &op->doc;
    int64_t row = d->row;
    int rc = row ? move_doc(l, d, e) : insert_doc(l, d, e);
    if (!rc && !row) {
        row = sqlite3_last_insert_rowid(l->db.handle);
        rc = insert_record(l, row, d->id, op->text, op->len, e);
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
    db_bind_blob(s, 1, op->key, HASH_BYTES);
    db_bind_text(s, 2, op->doc.id);
    db_bind_blob(s, 3, a->text, a->len);
    sqlite3_bind_int(s, 4, a->n_tokens);
    sqlite3_bind_int(s, 5, a->n_thinking);
    sqlite3_bind_int(s, 6, a->stopped_by);
    sqlite3_bind_int64(s, 7, a->flags);
    sqlite3_bind_int64(s, 8, sum_answer(op->key, op->doc.id, a));
    return db_step(&l->db, s, e);
}

static int forget_flight(struct ledger *l, const struct op *op, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_FLIGHT_DROP, e);
    if (!s)
        return -(int)e->code;
    db_bind_blob(s, 1, op->key, HASH_BYTES);
    return db_step(&l->db, s, e);
}

static int note(struct ledger *l, const struct op *op, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_ACTION_NEW, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, ledger_now_ms());
    sqlite3_bind_int64(s, 2, l->run);
    db_bind_text(s, 3, op->what);
    db_bind_text(s, 4, op->text);
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
             " AND source.since <= document.run);"
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
        return was_read(l, op, e);
    case OP_KEPT:
        return was_kept(l, op, e);
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
    db_bind_text(s, 1, d->id);
    int known = db_step(&l->db, s, e);
    sqlite3_reset(s);
    if (known)
        return known;
    int rc = l->adopting ? 0 : db_do(&l->db, SQL_BEGIN, e);
    l->adopting |= !rc;
    if (!rc)
        rc = insert_doc(l, d, e);
    return rc ? rc
              : insert_record(l, sqlite3_last_insert_rowid(l->db.handle), d->id, line, n, e);
}

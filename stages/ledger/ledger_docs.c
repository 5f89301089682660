/* Sources and documents as the stages look them up: through a connection of its own, which sees what is committed. */
#include "stages/base/mem.h"
#include "stages/ledger/ledger_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file's number is made from its path, so that nobody has to wait for one. */
static int64_t source_id(const char *path)
{
    uint8_t digest[HASH_BYTES];
    uint64_t id = 0;
    hash_bytes(path, strlen(path), digest);
    for (int i = 0; i < 8; i++)
        id = id << 8 | digest[i];
    return (int64_t)(id >> 1);
}

static void copy_text(sqlite3_stmt *s, int column, char *out, size_t cap)
{
    const char *text = (const char *)sqlite3_column_text(s, column);
    snprintf(out, cap, "%s", text ? text : "");
}

/* ---- sources ---- */

/* Is the file as it was, and since which run? */
static int same_source(struct ledger *l, int64_t id, const struct ledger_stat *st,
                       int64_t *since, int64_t *docs, struct err *e)
{
    struct source_row r;
    sqlite3_stmt *s;
    int rc = source_get(&l->view, id, &r, &s, e);
    if (rc == 1) {
        *since = r.since;
        *docs = r.docs;
        rc = source_same(&r, st, st->path, strlen(st->path));
    }
    sqlite3_reset(s);
    return rc;
}

static int add_row(struct ledger_source *out, size_t *cap, int64_t row, struct err *e)
{
    if (out->n == *cap) {
        size_t more = *cap ? *cap * 2 : 16;
        int64_t *rows = mem_resize(out->rows, more * sizeof(*rows));
        if (!rows)
            return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for %zu finished documents",
                           more);
        out->rows = rows;
        *cap = more;
    }
    out->rows[out->n++] = row;
    return 0;
}

static int get_rows(struct ledger *l, int64_t since, struct ledger_source *out, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->view, SQL_SOURCE_DOCS, e);
    size_t cap = 0;
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, out->id);
    sqlite3_bind_int64(s, 2, since);
    int rc;
    while ((rc = db_step(&l->view, s, e)) == 1) {
        /* An index may lead astray. */
        if (!doc_row_ok(s) || sqlite3_column_int64(s, 1) != out->id)
            continue;
        int64_t occurrence = sqlite3_column_int64(s, 2);
        if (occurrence > (int64_t)out->n)
            break;
        if (occurrence == (int64_t)out->n &&
            (rc = add_row(out, &cap, sqlite3_column_int64(s, 0), e)) < 0)
            break;
    }
    sqlite3_reset(s);
    return rc < 0 ? rc : 0;
}

int ledger_source(struct ledger *l, const struct ledger_stat *st, struct ledger_source *out,
                  struct err *e)
{
    int64_t since = 0, docs = -1;
    *out = (struct ledger_source){.id = source_id(st->path)};
    pthread_mutex_lock(&l->view_lock);
    int rc = same_source(l, out->id, st, &since, &docs, e);
    if (rc == 1) {
        rc = get_rows(l, since, out, e);
        out->whole = !rc && docs >= 0 && (int64_t)out->n == docs;
    }
    pthread_mutex_unlock(&l->view_lock);
    if (rc)
        ledger_source_release(out);
    return rc;
}

void ledger_source_release(struct ledger_source *s)
{
    free(s->rows);
    *s = (struct ledger_source){0};
}

void ledger_reading(struct ledger *l, int64_t source, const struct ledger_stat *st)
{
    struct op *op = op_new(OP_READING);
    op->source = source;
    op->st = *st;
    op->st.path = NULL;
    op->text = mem_strdup(st->path);
    op->len = strlen(st->path);
    ledger_queue(l, op);
}

void ledger_read(struct ledger *l, int64_t source, int64_t n)
{
    struct op *op = op_new(OP_READ);
    op->source = source;
    op->n = n;
    ledger_queue(l, op);
}

void ledger_kept(struct ledger *l, int64_t source)
{
    struct op *op = op_new(OP_KEPT);
    op->source = source;
    ledger_queue(l, op);
}

/* ---- documents ---- */

int ledger_find(struct ledger *l, const char *id, int64_t *row, struct err *e)
{
    *row = 0;
    pthread_mutex_lock(&l->view_lock);
    sqlite3_stmt *s = db_sql(&l->view, SQL_DOC_FIND, e);
    int rc = -(int)e->code;
    if (s) {
        db_bind_text(s, 1, id);
        while ((rc = db_step(&l->view, s, e)) == 1 && !*row)
            if (doc_row_ok(s) && strcmp((const char *)sqlite3_column_text(s, 4), id) == 0)
                *row = sqlite3_column_int64(s, 0);
        sqlite3_reset(s);
    }
    pthread_mutex_unlock(&l->view_lock);
    return rc < 0 ? rc : 0;
}

static int copy_doc(sqlite3_stmt *s, struct ledger_doc *d, struct buf *line, struct err *e)
{
    d->source = sqlite3_column_int64(s, 0);
    d->occurrence = sqlite3_column_int64(s, 1);
    copy_text(s, 2, d->id, sizeof(d->id));
    d->ordinal = sqlite3_column_int64(s, 3);
    d->status = sqlite3_column_int(s, 4);
    copy_text(s, 5, d->code, sizeof(d->code));
    copy_text(s, 6, d->message, sizeof(d->message));
    d->flags = (unsigned)sqlite3_column_int64(s, 7);
    d->prefill_us = sqlite3_column_int64(s, 8);
    d->decode_us = sqlite3_column_int64(s, 9);
    d->wait_us = sqlite3_column_int64(s, 10);
    d->reused_tokens = sqlite3_column_int64(s, 11);
    const void *data = sqlite3_column_blob(s, 12);
    size_t n = (size_t)sqlite3_column_bytes(s, 12);
    buf_clear(line);
    if (sum_record(d->id, data ? data : "", n) != sqlite3_column_int64(s, 13))
        return err_set(e, REACH_JOB, ERR_CORRUPT,
                       "ledger: the record of document %s is damaged", d->id);
    return buf_add(line, data ? data : "", n, e);
}

int ledger_get(struct ledger *l, int64_t row, struct ledger_doc *out, struct buf *line,
               struct err *e)
{
    *out = (struct ledger_doc){.row = row};
    pthread_mutex_lock(&l->view_lock);
    sqlite3_stmt *s = db_sql(&l->view, SQL_DOC_GET, e);
    int rc = -(int)e->code;
    if (s) {
        sqlite3_bind_int64(s, 1, row);
        rc = db_step(&l->view, s, e);
        if (rc == 1)
            rc = copy_doc(s, out, line, e);
        else if (rc == 0)
            rc = err_set(e, REACH_JOB, ERR_CORRUPT, "ledger: document %lld is gone",
                         (long long)row);
        sqlite3_reset(s);
    }
    pthread_mutex_unlock(&l->view_lock);
    return rc;
}

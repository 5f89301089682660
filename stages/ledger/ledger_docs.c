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

static void copy_digest(sqlite3_stmt *s, int column, uint8_t out[HASH_BYTES])
{
    memset(out, 0, HASH_BYTES);
    const void *data = sqlite3_column_blob(s, column);
    if (data && sqlite3_column_bytes(s, column) == HASH_BYTES)
        memcpy(out, data, HASH_BYTES);
}

static void copy_text(sqlite3_stmt *s, int column, char *out, size_t cap)
{
    const char *text = (const char *)sqlite3_column_text(s, column);
    snprintf(out, cap, "%s", text ? text : "");
}

/* ---- sources ---- */

/* What the ledger has of a file. */
struct known_source {
    bool there, same_file, same_how;
    int64_t walk, since, docs;
};

static int get_source(struct ledger *l, int64_t id, const struct ledger_stat *st,
                      struct known_source *k, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->view, SQL_SOURCE_GET, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, id);
    sqlite3_bind_blob64(s, 2, st->path, strlen(st->path), SQLITE_STATIC);
    int rc = db_step(&l->view, s, e);
    if (rc != 1)
        return rc;
    uint8_t how[HASH_BYTES];
    copy_digest(s, 3, how);
    *k = (struct known_source){
        .there = true,
        .same_file = (uint64_t)sqlite3_column_int64(s, 0) == st->size &&
                     sqlite3_column_int64(s, 1) == st->mtime_ns &&
                     (uint64_t)sqlite3_column_int64(s, 2) == st->inode,
        .same_how = memcmp(how, st->how, HASH_BYTES) == 0,
        .walk = sqlite3_column_int64(s, 4),
        .since = sqlite3_column_int64(s, 5),
        .docs = sqlite3_column_int64(s, 6),
    };
    sqlite3_reset(s);
    return 0;
}

static int add_place(struct ledger_source *out, size_t *cap, const struct ledger_place *p,
                     struct err *e)
{
    if (out->n == *cap) {
        size_t more = *cap ? *cap * 2 : 16;
        struct ledger_place *at = mem_resize(out->at, more * sizeof(*at));
        if (!at)
            return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for %zu finished documents",
                           more);
        out->at = at;
        *cap = more;
    }
    out->at[out->n++] = *p;
    return 0;
}

/* Finished documents of an unchanged file. Those of its last walk count towards its being whole. */
static int get_places(struct ledger *l, const struct known_source *k, struct ledger_source *out,
                      struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->view, SQL_SOURCE_DOCS, e);
    size_t cap = 0;
    int64_t in_order = 0;
    bool all_of_walk = true;
    int rc = s ? 1 : -(int)e->code;
    if (s)
        sqlite3_bind_int64(s, 1, out->id);
    while (rc > 0 && (rc = db_step(&l->view, s, e)) == 1) {
        struct ledger_place p = {.row = sqlite3_column_int64(s, 0),
                                 .occurrence = sqlite3_column_int64(s, 1)};
        int64_t walk = sqlite3_column_int64(s, 2);
        if (sqlite3_column_int(s, 5) || walk < k->since)
            continue;
        copy_digest(s, 3, p.at);
        p.cost = (uint64_t)sqlite3_column_int64(s, 4);
        in_order += walk == k->walk && p.occurrence == in_order;
        all_of_walk &= walk == k->walk;
        int added = add_place(out, &cap, &p, e);
        rc = added < 0 ? added : 1;
    }
    if (s)
        sqlite3_reset(s);
    out->whole = rc == 0 && k->same_how && k->docs >= 0 && all_of_walk && in_order == k->docs &&
                 (int64_t)out->n == k->docs;
    return rc;
}

int ledger_source(struct ledger *l, const struct ledger_stat *st, struct ledger_source *out,
                  struct err *e)
{
    struct known_source k = {0};
    *out = (struct ledger_source){.id = source_id(st->path)};
    pthread_mutex_lock(&l->view_lock);
    int rc = get_source(l, out->id, st, &k, e);
    if (!rc && k.there && k.same_file)
        rc = get_places(l, &k, out, e);
    pthread_mutex_unlock(&l->view_lock);
    return rc;
}

void ledger_source_release(struct ledger_source *s)
{
    free(s->at);
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
        sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
        rc = db_step(&l->view, s, e);
        if (rc == 1)
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
    copy_digest(s, 2, d->at);
    d->cost = (uint64_t)sqlite3_column_int64(s, 3);
    copy_text(s, 4, d->id, sizeof(d->id));
    d->ordinal = sqlite3_column_int64(s, 5);
    d->status = sqlite3_column_int(s, 6);
    copy_text(s, 7, d->code, sizeof(d->code));
    copy_text(s, 8, d->message, sizeof(d->message));
    d->flags = (unsigned)sqlite3_column_int64(s, 9);
    d->prefill_us = sqlite3_column_int64(s, 10);
    d->decode_us = sqlite3_column_int64(s, 11);
    d->wait_us = sqlite3_column_int64(s, 12);
    d->reused_tokens = sqlite3_column_int64(s, 13);
    const void *data = sqlite3_column_blob(s, 14);
    buf_clear(line);
    return buf_add(line, data ? data : "", (size_t)sqlite3_column_bytes(s, 14), e);
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

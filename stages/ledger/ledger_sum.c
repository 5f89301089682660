/* Check sums of rows: the first bytes of a digest over everything that the row says. */
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/ledger/ledger_inner.h"

#include <stdlib.h>
#include <string.h>

static int64_t end(struct hash *h)
{
    uint8_t digest[HASH_BYTES];
    int64_t sum;
    hash_end(h, digest);
    memcpy(&sum, digest, sizeof(sum));
    return sum;
}

static void text(struct hash *h, const char *tag, const char *s)
{
    hash_field(h, tag, s, strlen(s));
}

int64_t sum_setting(const char *key, const char *value, bool limit)
{
    struct hash h;
    hash_init(&h);
    text(&h, "key", key);
    text(&h, "value", value);
    hash_field_u64(&h, "limit", limit);
    return end(&h);
}

int64_t sum_source(int64_t id, const struct source_row *r)
{
    struct hash h;
    hash_init(&h);
    hash_field_u64(&h, "id", (uint64_t)id);
    hash_field(&h, "path", r->path, r->path_len);
    hash_field_u64(&h, "size", r->st.size);
    hash_field_u64(&h, "mtime", (uint64_t)r->st.mtime_ns);
    hash_field_u64(&h, "inode", r->st.inode);
    hash_field(&h, "how", r->st.how, HASH_BYTES);
    hash_field_u64(&h, "since", (uint64_t)r->since);
    hash_field_u64(&h, "docs", (uint64_t)r->docs);
    return end(&h);
}

int64_t sum_doc(int64_t source, int64_t occurrence, int64_t run, const char *doc_id)
{
    struct hash h;
    hash_init(&h);
    hash_field_u64(&h, "source", (uint64_t)source);
    hash_field_u64(&h, "occurrence", (uint64_t)occurrence);
    hash_field_u64(&h, "run", (uint64_t)run);
    text(&h, "id", doc_id);
    return end(&h);
}

int64_t sum_record(const char *doc_id, const void *line, size_t n)
{
    struct hash h;
    hash_init(&h);
    text(&h, "id", doc_id);
    hash_field(&h, "line", line, n);
    return end(&h);
}

int64_t sum_answer(const uint8_t key[HASH_BYTES], const char *doc_id,
                   const struct ledger_answer *a)
{
    struct hash h;
    hash_init(&h);
    hash_field(&h, "key", key, HASH_BYTES);
    text(&h, "id", doc_id);
    hash_field(&h, "text", a->text, a->len);
    hash_field_u64(&h, "tokens", (uint64_t)a->n_tokens);
    hash_field_u64(&h, "thinking", (uint64_t)a->n_thinking);
    hash_field_u64(&h, "stopped", (uint64_t)a->stopped_by);
    hash_field_u64(&h, "flags", a->flags);
    return end(&h);
}

int64_t sum_flight(const uint8_t key[HASH_BYTES], const void *tokens, size_t n)
{
    struct hash h;
    hash_init(&h);
    hash_field(&h, "key", key, HASH_BYTES);
    hash_field(&h, "tokens", tokens, n);
    return end(&h);
}

/* ---- rows ---- */

int source_get(struct db *db, int64_t id, struct source_row *r, sqlite3_stmt **out,
               struct err *e)
{
    sqlite3_stmt *s = *out = db_sql(db, SQL_SOURCE_GET, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, id);
    int rc = db_step(db, s, e);
    if (rc != 1)
        return rc;
    const void *how = sqlite3_column_blob(s, 4);
    *r = (struct source_row){.path = sqlite3_column_blob(s, 0),
                             .path_len = (size_t)sqlite3_column_bytes(s, 0),
                             .st = {.size = (uint64_t)sqlite3_column_int64(s, 1),
                                    .mtime_ns = sqlite3_column_int64(s, 2),
                                    .inode = (uint64_t)sqlite3_column_int64(s, 3)},
                             .since = sqlite3_column_int64(s, 5),
                             .docs = sqlite3_column_int64(s, 6)};
    if (how && sqlite3_column_bytes(s, 4) == HASH_BYTES)
        memcpy(r->st.how, how, HASH_BYTES);
    return r->path && sum_source(id, r) == sqlite3_column_int64(s, 7);
}

bool source_same(const struct source_row *r, const struct ledger_stat *st, const void *path,
                 size_t n)
{
    return r->path_len == n && memcmp(r->path, path, n) == 0 && r->st.size == st->size &&
           r->st.mtime_ns == st->mtime_ns && r->st.inode == st->inode &&
           memcmp(r->st.how, st->how, HASH_BYTES) == 0;
}

bool doc_row_ok(sqlite3_stmt *s)
{
    const char *doc_id = (const char *)sqlite3_column_text(s, 4);
    return doc_id && sum_doc(sqlite3_column_int64(s, 1), sqlite3_column_int64(s, 2),
                             sqlite3_column_int64(s, 3), doc_id) == sqlite3_column_int64(s, 5);
}

static bool record_ok(sqlite3_stmt *s)
{
    const char *doc_id = (const char *)sqlite3_column_text(s, 4);
    const void *line = sqlite3_column_blob(s, 6);
    return doc_id && line &&
           sum_record(doc_id, line, (size_t)sqlite3_column_bytes(s, 6)) ==
               sqlite3_column_int64(s, 7);
}

static int drop_row(struct db *db, int64_t row, struct err *e)
{
    sqlite3_stmt *s = db_sql(db, SQL_DOC_DROP, e);
    if (!s)
        return -(int)e->code;
    sqlite3_bind_int64(s, 1, row);
    return db_step(db, s, e);
}

int drop_damaged(struct db *db, struct err *e)
{
    sqlite3_stmt *s = db_sql(db, SQL_DOC_ALL, e);
    int64_t *bad = NULL;
    size_t n = 0, cap = 0;
    int rc = s ? 1 : -(int)e->code;
    while (rc > 0 && (rc = db_step(db, s, e)) == 1) {
        if (doc_row_ok(s) && record_ok(s))
            continue;
        if (n == cap) {
            cap = cap ? cap * 2 : 64;
            int64_t *more = mem_resize(bad, cap * sizeof(*bad));
            if (!more) {
                rc = err_set(e, REACH_JOB, ERR_NOMEM, "no memory for %zu rows", cap);
                break;
            }
            bad = more;
        }
        bad[n++] = sqlite3_column_int64(s, 0);
    }
    sqlite3_reset(s);
    for (size_t i = 0; i < n && !rc; i++)
        rc = drop_row(db, bad[i], e);
    if (n > 0 && !rc)
        log_warn("ledger", "%zu of its documents are damaged; they are done again", n);
    free(bad);
    return rc;
}

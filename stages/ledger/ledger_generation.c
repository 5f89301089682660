/* What all records of a folder depend on, and what another job would change in it. */
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/ledger/ledger_inner.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 60 }; /* bytes of a value in a message */

void ledger_settings_add(struct ledger_settings *s, const char *key, const char *value,
                         bool limit)
{
    struct ledger_setting *at = mem_resize(s->at, (s->n + 1) * sizeof(*at));
    if (!at)
        mem_none("the settings of the job");
    s->at = at;
    s->at[s->n++] = (struct ledger_setting){mem_strdup(key), mem_strdup(value), limit};
}

void ledger_settings_release(struct ledger_settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->at[i].key);
        free(s->at[i].value);
    }
    free(s->at);
    *s = (struct ledger_settings){0};
}

static const struct ledger_setting *find(const struct ledger_settings *s, const char *key)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->at[i].key, key) == 0)
            return &s->at[i];
    return NULL;
}

int settings_load(struct ledger *l, struct ledger_settings *s, struct err *e)
{
    sqlite3_stmt *q = db_sql(&l->db, SQL_SETTING_ALL, e);
    int rc = q ? 1 : -(int)e->code;
    while (rc > 0 && (rc = db_step(&l->db, q, e)) == 1) {
        const char *key = (const char *)sqlite3_column_text(q, 0);
        const char *value = (const char *)sqlite3_column_text(q, 1);
        bool limit = sqlite3_column_int(q, 2) != 0;
        if (!key || !value || sum_setting(key, value, limit) != sqlite3_column_int64(q, 3))
            rc = err_set(e, REACH_JOB, ERR_CORRUPT, "ledger: a setting is damaged");
        else
            ledger_settings_add(s, key, value, limit);
    }
    sqlite3_reset(q);
    return rc;
}

static int store_one(struct ledger *l, const struct ledger_setting *s, struct err *e)
{
    sqlite3_stmt *q = db_sql(&l->db, SQL_SETTING_SET, e);
    if (!q)
        return -(int)e->code;
    db_bind_text(q, 1, s->key);
    db_bind_text(q, 2, s->value);
    sqlite3_bind_int(q, 3, s->limit);
    sqlite3_bind_int64(q, 4, sum_setting(s->key, s->value, s->limit));
    return db_step(&l->db, q, e);
}

/* A value on one line, cut where it is long. NULL: the setting is not there. */
static int show(struct buf *out, const char *value, struct err *e)
{
    if (!value)
        return buf_adds(out, "nothing", e);
    size_t n = strlen(value), cut = n > SHOWN ? utf8_valid_prefix(value, SHOWN) : n;
    int rc = buf_addc(out, '"', e);
    for (size_t i = 0; i < cut && !rc; i++)
        rc = value[i] == '\n'
                 ? buf_adds(out, "\\n", e)
                 : buf_addc(out, (unsigned char)value[i] < 0x20 ? ' ' : value[i], e);
    return rc ? rc : buf_adds(out, cut < n ? "...\"" : "\"", e);
}

/* Two long values may look the same when they are cut: say so. */
static int add_difference(struct buf *out, const char *key, const char *old, const char *now,
                          struct err *e)
{
    int rc = buf_addf(out, e, "  %s: ", key);
    if (!rc)
        rc = show(out, old, e);
    if (!rc)
        rc = buf_adds(out, " -> ", e);
    if (!rc)
        rc = show(out, now, e);
    if (!rc && old && now && strlen(old) > SHOWN && strlen(now) > SHOWN &&
        strncmp(old, now, SHOWN) == 0)
        rc = buf_adds(out, " (they differ further on)", e);
    return rc ? rc : buf_addc(out, '\n', e);
}

static int find_differences(const struct ledger_settings *old,
                            const struct ledger_settings *now, struct buf *out, bool *limits,
                            struct err *e)
{
    int n = 0, rc = 0;
    for (size_t i = 0; i < now->n && !rc; i++) {
        const struct ledger_setting *a = &now->at[i], *b = find(old, a->key);
        if (b && strcmp(a->value, b->value) == 0)
            continue;
        if (a->limit)
            *limits = true;
        else if (++n)
            rc = add_difference(out, a->key, b ? b->value : NULL, a->value, e);
    }
    for (size_t i = 0; i < old->n && !rc; i++)
        if (!find(now, old->at[i].key) && !old->at[i].limit && ++n)
            rc = add_difference(out, old->at[i].key, old->at[i].value, NULL, e);
    return rc ? rc : n > 0;
}

static int store_all(struct ledger *l, const struct ledger_settings *s, bool limits_only,
                     struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < s->n && !rc; i++)
        if (!limits_only || s->at[i].limit)
            rc = store_one(l, &s->at[i], e);
    return rc;
}

static int new_generation(struct ledger *l, const struct ledger_settings *s, struct err *e)
{
    sqlite3_stmt *q = db_sql(&l->db, SQL_GENERATION_NEW, e);
    if (!q)
        return -(int)e->code;
    sqlite3_bind_int64(q, 1, ledger_now_ms());
    int rc = db_step(&l->db, q, e);
    return rc ? rc : store_all(l, s, false, e);
}

/* In a transaction that is on the disk when this returns 0. */
static int in_transaction(struct ledger *l,
                          int (*fn)(struct ledger *, const struct ledger_settings *,
                                    struct err *),
                          const struct ledger_settings *s, struct err *e)
{
    int rc = db_exec(&l->db, "PRAGMA synchronous = FULL", e);
    if (!rc)
        rc = db_do(&l->db, SQL_BEGIN, e);
    if (!rc)
        rc = fn(l, s, e);
    if (!rc)
        rc = db_do(&l->db, SQL_COMMIT, e);
    return rc ? rc : db_exec(&l->db, "PRAGMA synchronous = NORMAL", e);
}

static int change_limits(struct ledger *l, const struct ledger_settings *s, struct err *e)
{
    int rc = store_all(l, s, true, e);
    return rc ? rc : db_do(&l->db, SQL_DOC_AGAIN, e);
}

static int start_over(struct ledger *l, const struct ledger_settings *s, struct err *e)
{
    int rc = db_exec(
        &l->db,
        "DELETE FROM setting; DELETE FROM source; DELETE FROM document; DELETE FROM record;"
        "DELETE FROM answer; DELETE FROM flight;"
        "DELETE FROM generation WHERE id < (SELECT max(id) FROM generation)",
        e);
    /* The new row is numbered after the old one, which goes then. */
    if (!rc)
        rc = new_generation(l, s, e);
    return rc ? rc
              : db_exec(&l->db,
                        "DELETE FROM generation WHERE id < (SELECT max(id) FROM generation)",
                        e);
}

int ledger_compare(struct ledger *l, const struct ledger_settings *s, struct buf *differences,
                   struct err *e)
{
    struct ledger_settings old = {0};
    bool limits = false;
    int rc = settings_load(l, &old, e);
    if (!rc && old.n == 0)
        rc = in_transaction(l, start_over, s, e);
    else if (!rc)
        rc = find_differences(&old, s, differences, &limits, e);
    if (!rc && limits) {
        log_info("ledger",
                 "limits of reading have changed: documents that failed are tried again");
        rc = in_transaction(l, change_limits, s, e);
    }
    ledger_settings_release(&old);
    return rc;
}

int ledger_restart(struct ledger *l, const struct ledger_settings *s, struct err *e)
{
    flights_free(&l->flights);
    return in_transaction(l, start_over, s, e);
}

int64_t ledger_retry_failed(struct ledger *l, struct err *e)
{
    int rc = db_do(&l->db, SQL_DOC_AGAIN, e);
    return rc ? rc : sqlite3_changes(l->db.handle);
}

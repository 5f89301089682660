/* A look at a ledger, also while a run writes it: what `quire status` prints. */
#include "stages/base/file.h"
#include "stages/base/mem.h"
#include "stages/ledger/ledger_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Runs a query and stores the integers of its first row. */
static int numbers(struct db *db, const char *query, int64_t *const *to, int n, struct err *e)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db->handle, query, -1, &s, NULL) != SQLITE_OK)
        return db_fail(db, "its tables are not as they should be", e);
    int got = sqlite3_step(s), rc = 0;
    for (int i = 0; got == SQLITE_ROW && i < n; i++)
        *to[i] = sqlite3_column_int64(s, i);
    if (got != SQLITE_ROW && got != SQLITE_DONE)
        rc = db_fail(db, "cannot be read", e);
    sqlite3_finalize(s);
    return rc;
}

static int last_action(struct db *db, struct ledger_look *out, struct err *e)
{
    sqlite3_stmt *s = NULL;
    static const char query[] =
        "SELECT at_ms, what, detail FROM action ORDER BY id DESC LIMIT 1";
    if (sqlite3_prepare_v2(db->handle, query, -1, &s, NULL) != SQLITE_OK)
        return db_fail(db, "its tables are not as they should be", e);
    if (sqlite3_step(s) == SQLITE_ROW) {
        const char *what = (const char *)sqlite3_column_text(s, 1),
                   *detail = (const char *)sqlite3_column_text(s, 2);
        out->last_ms = sqlite3_column_int64(s, 0);
        snprintf(out->last, sizeof(out->last), "%s", what ? what : "");
        snprintf(out->last_detail, sizeof(out->last_detail), "%s", detail ? detail : "");
    }
    sqlite3_finalize(s);
    return 0;
}

int ledger_look(const char *folder, struct ledger_look *out, struct err *e)
{
    *out = (struct ledger_look){0};
    char *inside = file_join(folder, LEDGER_FOLDER), *path = file_join(inside, "ledger.sqlite");
    free(inside);
    int rc = 0;
    struct db db = {0};
    if (access(path, F_OK) == 0) {
        int64_t finished = 0;
        out->there = true;
        rc = db_open(&db, path, false, e);
        if (!rc)
            rc = db_exec(&db, "PRAGMA query_only = 1; BEGIN", e);
        if (!rc)
            rc = numbers(&db,
                         "SELECT id, begun_ms, runs, alive_ms, finished FROM generation ORDER "
                         "BY id DESC LIMIT 1",
                         (int64_t *[]){&out->generation, &out->begun_ms, &out->runs,
                                       &out->active_ms, &finished},
                         5, e);
        out->finished = finished != 0;
        if (!rc)
            rc = numbers(&db,
                         "SELECT sum(again = 0 AND status = 0), sum(again = 0 AND status = 1),"
                         " sum(again = 0 AND status = 2), sum(again) FROM document",
                         (int64_t *[]){&out->by_status[0], &out->by_status[1],
                                       &out->by_status[2], &out->again},
                         4, e);
        if (!rc)
            rc = numbers(&db,
                         "SELECT (SELECT count(*) FROM source WHERE docs >= 0),"
                         " (SELECT ifnull(sum(docs), 0) FROM source WHERE docs >= 0),"
                         " (SELECT count(*) FROM answer), (SELECT count(*) FROM flight),"
                         " (SELECT ifnull(sum(length(tokens)), 0) / 4 FROM flight)",
                         (int64_t *[]){&out->sources, &out->found, &out->answers, &out->flights,
                                       &out->flight_tokens},
                         5, e);
        if (!rc)
            rc = last_action(&db, out, e);
    }
    db_close(&db);
    free(path);
    return rc;
}

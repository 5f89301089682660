#include "stages/ledger/ledger.h"

#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/ledger/ledger_inner.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { QUEUE_BYTES = 32 << 20 };

int64_t ledger_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- opening ---- */

/* What cannot be used is kept under another name, for whoever wants to look at it; the one before it goes. */
static int set_aside(const char *path, struct err *e)
{
    static const char *const ends[] = {"-wal", "-shm", "-journal"};
    size_t n = strlen(path) + 16;
    char *other = mem_need(n);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        snprintf(other, n, "%s%s", path, ends[i]);
        unlink(other);
    }
    snprintf(other, n, "%s.damaged", path);
    int rc =
        rename(path, other) == 0 || errno == ENOENT
            ? 0
            : err_set(e, REACH_JOB, ERR_IO, "cannot rename \"%s\": %s", path, strerror(errno));
    free(other);
    return rc;
}

static int open_checked(struct ledger *l, struct err *e)
{
    struct stat st;
    l->fresh = stat(l->path, &st) != 0 || st.st_size == 0;
    int rc = db_open(&l->db, l->path, true, e);
    if (!rc && !l->fresh)
        rc = db_check(&l->db, e);
    struct ledger_settings s = {0};
    if (!rc && !l->fresh)
        rc = drop_damaged(&l->db, e);
    if (!rc)
        rc = settings_load(l, &s, e);
    ledger_settings_release(&s);
    return rc ? rc : flights_load(l, e);
}

int ledger_open(struct ledger **out, const char *folder, struct err *e)
{
    struct ledger *l = mem_need(sizeof(*l));
    char *inside = file_join(folder, LEDGER_FOLDER);
    *out = l;
    l->path = file_join(inside, "ledger.sqlite");
    l->last = &l->first;
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->view_lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->room, NULL);
    int rc = file_make_dirs(inside, e);
    free(inside);
    if (!rc)
        rc = open_checked(l, e);
    if (rc == -ERR_CORRUPT) {
        log_warn("ledger", "%s: %s; it is set aside, and begun anew from the results", l->path,
                 e->msg);
        err_clear(e);
        db_close(&l->db);
        flights_free(&l->flights);
        rc = set_aside(l->path, e);
        if (!rc)
            rc = open_checked(l, e);
    }
    if (!rc)
        rc = db_open(&l->view, l->path, false, e);
    if (rc) {
        ledger_close(l);
        *out = NULL;
        return rc;
    }
    return l->fresh;
}

int64_t ledger_run(const struct ledger *l)
{
    return l->run;
}

/* ---- the thread ---- */

static int apply_all(struct ledger *l, const struct op *first, struct err *e)
{
    int rc = db_do(&l->db, SQL_BEGIN, e);
    for (const struct op *op = first; op && !rc; op = op->next)
        rc = ledger_apply(l, op, e);
    if (!rc)
        rc = flights_store(l, e);
    sqlite3_stmt *s = rc ? NULL : db_sql(&l->db, SQL_GENERATION_ALIVE, e);
    if (s) {
        sqlite3_bind_int64(s, 1, ledger_now_ms());
        rc = db_step(&l->db, s, e);
    }
    if (!rc)
        rc = db_do(&l->db, SQL_COMMIT, e);
    if (rc) {
        struct err second = {0};
        int ignored = db_do(&l->db, SQL_ROLLBACK, &second);
        (void)ignored; /* the first error is the reason */
    }
    return rc;
}

/* In WAL mode a commit is a write; with synchronous = FULL it also syncs all of the log, what was before included. */
static int commit(struct ledger *l, const struct op *first, bool durable, struct err *e)
{
    int rc = durable ? db_exec(&l->db, "PRAGMA synchronous = FULL", e) : 0;
    if (!rc)
        rc = apply_all(l, first, e);
    if (durable && !rc)
        rc = db_exec(&l->db, "PRAGMA synchronous = NORMAL", e);
    return rc;
}

/* Called with the lock held. A ledger that is found damaged is given up, and the run goes on; that the disk is full or
 * gone concerns the run. */
static void take_error(struct ledger *l, const struct err *e)
{
    l->off = true;
    l->damaged = e->code == ERR_CORRUPT;
    if (l->damaged)
        log_warn(
            "ledger",
            "%s; this run goes on without it, and the next one begins it anew from the results",
            e->msg);
    else if (!l->err.code)
        l->err = *e;
}

static void free_ops(struct op *op)
{
    while (op) {
        struct op *next = op->next;
        op_free(op);
        op = next;
    }
}

static void wait_for_work(struct ledger *l, int64_t until_ms)
{
    while (!l->first && !l->stop && l->sync_wanted == l->sync_done &&
           ledger_now_ms() < until_ms) {
        struct timespec t = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
        pthread_cond_timedwait(&l->work, &l->lock, &t);
    }
}

/* One round: take what is queued, write it. */
static void round_of(struct ledger *l, int64_t *synced_ms)
{
    struct op *ops = l->first;
    uint64_t ticket = l->sync_wanted;
    bool durable =
        l->stop || ticket != l->sync_done || ledger_now_ms() - *synced_ms >= LEDGER_SYNC_MS;
    struct err e = {0};
    l->first = NULL;
    l->last = &l->first;
    bool off = l->off;
    pthread_mutex_unlock(&l->lock);
    int rc = off ? 0 : commit(l, ops, durable, &e);
    free_ops(ops);
    if (durable)
        *synced_ms = ledger_now_ms();
    pthread_mutex_lock(&l->lock);
    if (rc)
        take_error(l, &e);
    l->queued_bytes = 0;
    for (struct op *op = l->first; op; op = op->next)
        l->queued_bytes += op->bytes;
    l->sync_done = ticket;
    pthread_cond_broadcast(&l->room);
}

static void *serve_ledger(void *arg)
{
    struct ledger *l = arg;
    int64_t synced_ms = ledger_now_ms();
    pthread_mutex_lock(&l->lock);
    for (;;) {
        wait_for_work(l, synced_ms + LEDGER_SYNC_MS);
        bool last = l->stop && !l->first;
        round_of(l, &synced_ms);
        if (last)
            break;
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void ledger_queue(struct ledger *l, struct op *op)
{
    op->bytes = sizeof(*op) + op->len + op->answer.len;
    pthread_mutex_lock(&l->lock);
    if (l->off) {
        op_free(op);
    } else {
        *l->last = op;
        l->last = &op->next;
        l->queued_bytes += op->bytes;
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
}

/* ---- life ---- */

int ledger_start(struct ledger *l, struct err *e)
{
    int rc = l->adopting ? db_do(&l->db, SQL_COMMIT, e) : 0;
    l->adopting = false;
    if (!rc)
        rc = db_do(&l->db, SQL_GENERATION_RUN, e);
    sqlite3_stmt *s = rc ? NULL : db_sql(&l->db, SQL_GENERATION_GET, e);
    if (s && (rc = db_step(&l->db, s, e)) == 1) {
        l->run = sqlite3_column_int64(s, 2);
        sqlite3_reset(s);
        rc = 0;
    }
    if (rc)
        return rc;
    int no = pthread_create(&l->thread, NULL, serve_ledger, l);
    if (no)
        return err_set(e, REACH_JOB, ERR_NOMEM, "cannot start a thread: %s", strerror(no));
    l->started = true;
    return 0;
}

void ledger_close(struct ledger *l)
{
    if (!l)
        return;
    if (l->started) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->work);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    if (l->err.code)
        log_warn("ledger", "%s; what it lacks is computed again by the next run", l->err.msg);
    free_ops(l->first);
    db_close(&l->view);
    db_close(&l->db);
    struct err e = {0};
    if (l->damaged && set_aside(l->path, &e) != 0)
        log_warn("ledger", "%s", e.msg);
    flights_free(&l->flights);
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->view_lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->room);
    free(l->path);
    free(l);
}

static int error_of(const struct ledger *l, struct err *e)
{
    if (!l->err.code)
        return 0;
    *e = l->err;
    return -(int)e->code;
}

int ledger_sync(struct ledger *l, struct err *e)
{
    pthread_mutex_lock(&l->lock);
    uint64_t mine = ++l->sync_wanted;
    pthread_cond_signal(&l->work);
    while (l->started && l->sync_done < mine)
        pthread_cond_wait(&l->room, &l->lock);
    int rc = error_of(l, e);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

int ledger_done(struct ledger *l, const struct ledger_doc *d, const char *line, size_t n,
                struct err *e)
{
    struct op *op = op_new(OP_DONE);
    op->doc = *d;
    if (!d->row) {
        if (!(op->text = mem_alloc(n))) {
            op_free(op);
            return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a record of %zu bytes", n);
        }
        memcpy(op->text, line, n);
        op->len = n;
    }
    pthread_mutex_lock(&l->lock);
    while (l->queued_bytes > QUEUE_BYTES && !l->off)
        pthread_cond_wait(&l->room, &l->lock);
    int rc = error_of(l, e);
    pthread_mutex_unlock(&l->lock);
    ledger_queue(l, op);
    return rc;
}

int ledger_finish(struct ledger *l, struct err *e)
{
    ledger_queue(l, op_new(OP_END));
    return ledger_sync(l, e);
}

void ledger_note(struct ledger *l, const char *what, const char *fmt, ...)
{
    if (!l)
        return;
    char detail[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(detail, sizeof(detail), fmt, args);
    va_end(args);
    struct op *op = op_new(OP_NOTE);
    snprintf(op->what, sizeof(op->what), "%s", what);
    op->text = mem_strdup(detail);
    op->len = strlen(detail);
    ledger_queue(l, op);
}

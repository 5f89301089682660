/* SQLite's own way to files, but for two things:
 *
 * - A sync that a signal has interrupted is done again. SQLite takes it for a failure of the disk.
 * - Why a call failed is kept. SQLite has forgotten it when it has cleaned up, and takes some failures to read for damage.
 *
 * A file's methods are a table that SQLite shares among files of a kind; ours is a copy of it with some replaced. */
#include "stages/ledger/ledger_inner.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

enum { KINDS = 4, TRIES = 1000 };

static const char name[] = "quire";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sqlite3_vfs *base, own;
static struct kind {
    const sqlite3_io_methods *before;
    sqlite3_io_methods after;
} kinds[KINDS];
static int n_kinds;
static _Thread_local int failed; /* SQLite calls in the thread that asked for something */

/* Kinds are only added, before a file of that kind is used. */
static const sqlite3_io_methods *before(const sqlite3_file *f)
{
    const struct kind *k =
        (const struct kind *)((const char *)f->pMethods - offsetof(struct kind, after));
    return k->before;
}

void ledger_vfs_begin(void)
{
    failed = 0;
}

int ledger_vfs_failed(void)
{
    return failed;
}

/* The first failure is the reason for those that follow. That a file is not there is none. */
static int keep(int rc)
{
    int code = rc & 0xff;
    bool fails = code == SQLITE_FULL || code == SQLITE_CANTOPEN ||
                 (code == SQLITE_IOERR && rc != SQLITE_IOERR_SHORT_READ);
    if (fails && !failed && errno != ENOENT)
        failed = errno;
    return rc;
}

static int read_file(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    return keep(before(f)->xRead(f, to, n, at));
}

static int write_file(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    return keep(before(f)->xWrite(f, from, n, at));
}

static int truncate_file(sqlite3_file *f, sqlite3_int64 size)
{
    return keep(before(f)->xTruncate(f, size));
}

/* Of the index of the log, which is a file, too, and grows here. */
static int map_index(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return keep(before(f)->xShmMap(f, page, size, extend, out));
}

static int sync_file(sqlite3_file *f, int flags)
{
    const sqlite3_io_methods *m = before(f);
    int rc = m->xSync(f, flags), why = 0;
    for (int i = 0; rc == SQLITE_IOERR_FSYNC && i < TRIES; i++) {
        m->xFileControl(f, SQLITE_FCNTL_LAST_ERRNO, &why);
        if (why != EINTR)
            break;
        rc = m->xSync(f, flags);
    }
    return keep(rc);
}

static int open_file(sqlite3_vfs *v, const char *path, sqlite3_file *f, int flags, int *out)
{
    (void)v;
    int rc = keep(base->xOpen(base, path, f, flags, out));

    if (!f->pMethods)
        return rc;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < n_kinds && kinds[i].before != f->pMethods)
        i++;
    if (i == n_kinds && n_kinds < KINDS) {
        sqlite3_io_methods *own_methods = &kinds[i].after;
        kinds[i] = (struct kind){.before = f->pMethods, .after = *f->pMethods};
        own_methods->xRead = read_file;
        own_methods->xWrite = write_file;
        own_methods->xTruncate = truncate_file;
        own_methods->xSync = sync_file;
        if (own_methods->iVersion >= 2 && own_methods->xShmMap)
            own_methods->xShmMap = map_index;
        n_kinds++;
    }
    if (i < KINDS)
        f->pMethods = &kinds[i].after;
    pthread_mutex_unlock(&lock);
    return rc;
}

const char *ledger_vfs(void)
{
    pthread_mutex_lock(&lock);
    if (!base && (base = sqlite3_vfs_find(NULL)) != NULL) {
        own = *base;
        own.zName = name;
        own.pNext = NULL;
        own.xOpen = open_file;
        if (sqlite3_vfs_register(&own, 0) != SQLITE_OK)
            base = NULL;
    }
    const char *vfs = base ? name : NULL; /* NULL: SQLite's own */
    pthread_mutex_unlock(&lock);
    return vfs;
}

/* SQLite's own way to files, but for one thing: a sync that a signal has interrupted is done again. SQLite takes it for a
 * failure of the disk.
 *
 * A file's methods are a table that SQLite shares among files of a kind; ours is a copy of it with another xSync. */
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

/* Kinds are only added, before a file of that kind is used. */
static const sqlite3_io_methods *before(const sqlite3_file *f)
{
    const struct kind *k =
        (const struct kind *)((const char *)f->pMethods - offsetof(struct kind, after));
    return k->before;
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
    return rc;
}

static int open_file(sqlite3_vfs *v, const char *path, sqlite3_file *f, int flags, int *out)
{
    (void)v;
    int rc = base->xOpen(base, path, f, flags, out);

    if (!f->pMethods)
        return rc;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < n_kinds && kinds[i].before != f->pMethods)
        i++;
    if (i == n_kinds && n_kinds < KINDS) {
        kinds[i] = (struct kind){.before = f->pMethods, .after = *f->pMethods};
        kinds[i].after.xSync = sync_file;
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

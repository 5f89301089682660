#include "stages/ingest/walk.h"

#include "stages/base/file.h"
#include "stages/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_NESTING = 256 }; /* folders inside folders */

struct root {
    char *path;
    size_t index; /* place in `from`, globs expanded */
};

/* One folder on the way down. */
struct level {
    char *path;
    char **names;
    size_t n, next;
    dev_t dev;
    ino_t ino;
};

struct walk {
    struct root *roots;  /* in order of `from` */
    struct root *sorted; /* by path */
    size_t n_roots, roots_cap;
    walk_fn *fn;
    void *to;
    struct stat skips[WALK_SKIPS]; /* folders that are left out, n_skips of them */
    int n_skips;
    size_t name_at; /* where the names of the root being walked begin in its paths */
    struct level levels[MAX_NESTING];
    int depth;
};

/* ---- roots ---- */

static void add_root(struct walk *w, const char *path)
{
    if (w->n_roots == w->roots_cap) {
        w->roots_cap = w->roots_cap ? w->roots_cap * 2 : 16;
        w->roots = mem_resize(w->roots, w->roots_cap * sizeof(*w->roots));
        if (!w->roots)
            mem_none("the names of ingest.from");
    }
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *copy = mem_need(n + 1);
    memcpy(copy, path, n);
    w->roots[w->n_roots] = (struct root){copy, w->n_roots};
    w->n_roots++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int expand(struct walk *w, const char *item, struct err *e)
{
    struct stat st;
    if (stat(item, &st) == 0) {
        add_root(w, item);
        return 0;
    }
    int why = errno;
    if (!strpbrk(item, "*?["))
        return err_set(e, REACH_JOB, ERR_CONFIG, "ingest.from: %s: %s", item, strerror(why));
    glob_t g = {0};
    int rc = glob(item, GLOB_NOSORT, NULL, &g);
    /* glob() would sort by the locale; byte order is the same everywhere. */
    if (rc == 0)
        qsort(g.gl_pathv, g.gl_pathc, sizeof(*g.gl_pathv), by_name);
    for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++)
        add_root(w, g.gl_pathv[i]);
    globfree(&g);
    if (rc == GLOB_NOMATCH)
        return err_set(e, REACH_JOB, ERR_CONFIG, "ingest.from: nothing matches %s", item);
    if (rc != 0)
        return err_set(e, REACH_JOB, ERR_CONFIG, "ingest.from: %s: cannot be listed", item);
    return 0;
}

static int by_path(const void *a, const void *b)
{
    const struct root *x = a, *y = b;
    int c = strcmp(x->path, y->path);
    return c != 0 ? c : (x->index > y->index) - (x->index < y->index);
}

static int by_path_only(const void *a, const void *b)
{
    return strcmp(((const struct root *)a)->path, ((const struct root *)b)->path);
}

/* Is path, or a folder above it, an earlier root than the one being walked? */
static bool seen_before(const struct walk *w, const char *path, size_t root)
{
    char *copy = mem_strdup(path);
    bool seen = false;
    for (;;) {
        struct root key = {copy, 0};
        const struct root *hit =
            bsearch(&key, w->sorted, w->n_roots, sizeof(key), by_path_only);
        while (hit && hit > w->sorted && strcmp(hit[-1].path, copy) == 0)
            hit--;
        seen |= hit && hit->index < root;
        char *slash = strrchr(copy, '/');
        if (seen || !slash || slash == copy)
            break;
        *slash = '\0';
    }
    free(copy);
    return seen;
}

/* ---- down ---- */

static bool list_folder(struct level *l)
{
    DIR *dir = opendir(l->path);
    if (!dir)
        return false;
    size_t cap = 0;
    for (struct dirent *x; (x = readdir(dir)) != NULL;) {
        if (x->d_name[0] == '.')
            continue;
        if (l->n == cap) {
            cap = cap ? cap * 2 : 64;
            l->names = mem_resize(l->names, cap * sizeof(*l->names));
            if (!l->names)
                mem_none("the names in a folder");
        }
        l->names[l->n++] = mem_strdup(x->d_name);
    }
    closedir(dir);
    if (l->n > 1)
        qsort(l->names, l->n, sizeof(*l->names), by_name);
    return true;
}

/* st: of a file that can be read; NULL: bad says why it cannot. */
static int show(struct walk *w, const char *path, const struct stat *st, const char *bad)
{
    struct walk_file f = {.path = path, .name = path + w->name_at, .bad = bad};
    if (st) {
        f.size = (uint64_t)st->st_size;
        f.inode = st->st_ino;
        f.mtime_ns = (int64_t)((uint64_t)st->st_mtim.tv_sec * UINT64_C(1000000000) +
                               (uint64_t)st->st_mtim.tv_nsec);
    }
    return w->fn(w->to, &f);
}

static void leave(struct walk *w)
{
    struct level *l = &w->levels[--w->depth];
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    free(l->path);
    *l = (struct level){0};
}

static int enter(struct walk *w, const char *path, const struct stat *st)
{
    for (int i = 0; i < w->n_skips; i++)
        if (w->skips[i].st_dev == st->st_dev && w->skips[i].st_ino == st->st_ino)
            return 0;
    for (int i = 0; i < w->depth; i++)
        if (w->levels[i].dev == st->st_dev && w->levels[i].ino == st->st_ino)
            return 0; /* a link back up */
    if (w->depth == MAX_NESTING)
        return show(w, path, NULL, "too many folders inside folders");
    struct level *l = &w->levels[w->depth++];
    *l = (struct level){.path = mem_strdup(path), .dev = st->st_dev, .ino = st->st_ino};
    if (list_folder(l))
        return 0;
    int why = errno;
    leave(w);
    return show(w, path, NULL, strerror(why));
}

/* One path: a file is shown, a folder entered. named: the job names it itself. */
static int visit(struct walk *w, const char *path, size_t root, bool named)
{
    struct stat st;
    if (seen_before(w, path, root))
        return 0;
    if (stat(path, &st) != 0) {
        int why = errno;
        return lstat(path, &st) == 0 ? show(w, path, NULL, strerror(why)) : 0;
    }
    if (S_ISDIR(st.st_mode))
        return enter(w, path, &st);
    if (S_ISREG(st.st_mode))
        return show(w, path, &st, NULL);
    return named ? show(w, path, NULL, "not a regular file") : 0;
}

static int walk_root(struct walk *w, size_t root)
{
    const char *slash = strrchr(w->roots[root].path, '/');
    w->name_at = slash ? (size_t)(slash + 1 - w->roots[root].path) : 0;
    int rc = visit(w, w->roots[root].path, root, true);
    while (rc == 0 && w->depth > 0) {
        struct level *l = &w->levels[w->depth - 1];
        if (l->next == l->n) {
            leave(w);
            continue;
        }
        char *path = file_join(l->path, l->names[l->next++]);
        rc = visit(w, path, root, false);
        free(path);
    }
    while (w->depth > 0)
        leave(w);
    return rc;
}

int walk(const struct opt_list *from, const char *const skips[WALK_SKIPS], walk_fn *fn,
         void *to, struct err *e)
{
    struct walk *w = mem_need(sizeof(*w));
    for (int i = 0; i < WALK_SKIPS; i++)
        w->n_skips += skips[i] && stat(skips[i], &w->skips[w->n_skips]) == 0;
    w->fn = fn;
    w->to = to;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->n; i++)
        rc = expand(w, from->items[i], e);
    if (rc == 0 && w->n_roots > 0) {
        w->sorted = mem_need(w->n_roots * sizeof(*w->sorted));
        memcpy(w->sorted, w->roots, w->n_roots * sizeof(*w->sorted));
        qsort(w->sorted, w->n_roots, sizeof(*w->sorted), by_path);
    }
    for (size_t i = 0; rc == 0 && i < w->n_roots; i++)
        rc = walk_root(w, i);
    for (size_t i = 0; i < w->n_roots; i++)
        free(w->roots[i].path);
    free(w->roots);
    free(w->sorted);
    free(w);
    return rc;
}

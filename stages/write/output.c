#define _GNU_SOURCE /* syncfs */
#include "stages/write/output.h"

#include "stages/base/clock.h"
#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/base/sys.h"
#include "stages/write/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SYNC_LINES = 64, SYNC_SECONDS = 5, MANIFEST_MAX = 1 << 30 };

static const char finished_name[] = "MANIFEST.sha256";
static const char results_name[] = "results.jsonl", suffix[] = ".partial";

struct output {
    char *folder;
    char *results; /* path of results.jsonl.partial */
    int fd;        /* of it */
    off_t good;    /* what this run has written of it, in whole lines */
    off_t old;     /* end of what an earlier run had written; this one compares, up to there */
    struct hash hash;
    int unsynced;
    int64_t synced_us;
    char *line; /* the last line and its newline, in one piece for write(2) */
    size_t line_cap;
    bool has_summaries;
    struct manifest files; /* written so far, but for results.jsonl */
};

static int fail(struct err *e, const char *what, const char *path)
{
    return err_set(e, REACH_JOB, ERR_IO, "cannot %s \"%s\": %s", what, path, strerror(errno));
}

static char *path_of(const struct output *o, const char *name, const char *end)
{
    size_t n = strlen(o->folder) + strlen(name) + strlen(end) + 2;
    char *p = mem_need(n);
    snprintf(p, n, "%s/%s%s", o->folder, name, end);
    return p;
}

/* ---- opening ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n > k && strcmp(s + n - k, end) == 0;
}

/* Pages begin with the ordinal of their document, in six digits or more: no other NAME.md.partial is ours. */
static bool is_page(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    return digits >= 6 && name[digits] == '-';
}

/* A file that only an unfinished run leaves and no later one needs: NAME.partial but for the results, or the temporary
 * file of an atomic write. */
static bool is_stale(const char *folder_in, const char *name)
{
    char whole[512];
    if (!folder_in[0] && strncmp(name, "MANIFEST.sha256.tmp.", 20) == 0)
        return true;
    if (!ends_with(name, suffix) || (folder_in[0] && !is_page(name)))
        return false;
    int n = snprintf(whole, sizeof(whole), "%s%s", folder_in, name);
    if (n < 0 || (size_t)n >= sizeof(whole))
        return false;
    whole[(size_t)n - strlen(suffix)] = '\0';
    return manifest_name_ok(whole) && strcmp(whole, results_name) != 0;
}

static int remove_stale(const struct output *o, const char *folder_in)
{
    char *path = path_of(o, folder_in, "");
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *it; d && (it = readdir(d)) != NULL;)
        if (is_stale(folder_in, it->d_name) && unlinkat(dirfd(d), it->d_name, 0) == 0)
            n++;
    if (d)
        closedir(d);
    free(path);
    return n;
}

/* The nearest folder that is there decides. */
int output_check(const char *folder, struct err *e)
{
    char *path = mem_strdup(folder);
    struct stat st;
    while (stat(path, &st) != 0 && errno == ENOENT && strcmp(path, ".") != 0 &&
           strcmp(path, "/") != 0) {
        char *up = file_parent(path);
        free(path);
        path = up;
    }
    int rc = 0;
    if (stat(path, &st) != 0 || (S_ISDIR(st.st_mode) && access(path, W_OK | X_OK) != 0))
        rc = err_set(e, REACH_JOB, ERR_CONFIG, "write.to: \"%s\": %s", path, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        rc = err_set(e, REACH_JOB, ERR_CONFIG, "write.to: \"%s\" is not a folder", path);
    free(path);
    return rc;
}

/* Cut what is behind the last whole line. The rest is on the disk after this. */
static int repair_tail(struct output *o, struct err *e)
{
    struct stat st;
    uint64_t end;
    int rc = lines_end(o->fd, o->results, &end, e);
    if (!rc && fstat(o->fd, &st) != 0)
        rc = fail(e, "look at", o->results);
    if (!rc && (off_t)end < st.st_size) {
        log_info("write", "the last line of \"%s\" is torn: %lld bytes are cut", o->results,
                 (long long)(st.st_size - (off_t)end));
        if (ftruncate(o->fd, (off_t)end) != 0)
            rc = fail(e, "cut", o->results);
    }
    if (!rc && end > 0 && sys_fdatasync(o->fd) != 0)
        rc = fail(e, "sync", o->results);
    if (!rc)
        o->old = (off_t)end;
    return rc;
}

int output_open(struct output **out, const char *folder, struct err *e)
{
    struct output *o = mem_need(sizeof(*o));
    *out = o;
    o->folder = mem_strdup(folder);
    o->results = path_of(o, results_name, suffix);
    o->fd = -1;
    hash_init(&o->hash);
    int rc = file_make_dirs(folder, e);
    if (!rc) {
        int stale = remove_stale(o, "") + remove_stale(o, "summaries/");
        if (stale)
            log_debug("write", "removed %d files of a run that did not finish", stale);
        o->fd = open(o->results,
                     O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        if (o->fd < 0)
            rc = fail(e, "open", o->results);
    }
    if (!rc)
        rc = repair_tail(o, e);
    o->synced_us = clock_us();
    if (rc) {
        output_close(o);
        *out = NULL;
    }
    return rc;
}

int output_old_lines(const struct output *o, line_fn *fn, void *to, struct err *e)
{
    return lines_read(o->fd, o->results, fn, to, e);
}

int output_published_lines(const struct output *o, line_fn *fn, void *to, struct err *e)
{
    char *path = path_of(o, results_name, "");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
    if (fd < 0 && errno != ENOENT)
        rc = fail(e, "open", path);
    if (fd >= 0) {
        rc = lines_read(fd, path, fn, to, e);
        close(fd);
    }
    free(path);
    return rc;
}

int output_restart(struct output *o, struct err *e)
{
    o->old = 0;
    if (ftruncate(o->fd, 0) != 0 || sys_fdatasync(o->fd) != 0)
        return fail(e, "cut", o->results);
    return 0;
}

void output_close(struct output *o)
{
    if (!o)
        return;
    if (o->fd >= 0)
        close(o->fd);
    hash_end(&o->hash, NULL);
    manifest_release(&o->files);
    free(o->line);
    free(o->results);
    free(o->folder);
    free(o);
}

void output_discard(struct output *o)
{
    if (o->old == 0 && o->good == 0)
        unlink(o->results);
}

/* ---- writing ---- */

static int write_line(struct output *o, size_t n, struct err *e)
{
    int rc = file_write_all(o->fd, o->line, n, o->results, e);
    /* Cut a torn line, so that what is there stays readable. */
    if (rc && ftruncate(o->fd, o->good) != 0)
        log_warn("write", "cannot cut the torn last line of \"%s\"", o->results);
    if (!rc)
        o->unsynced++;
    return rc;
}

/* Is the line there already, from an earlier run? */
static bool is_there(const struct output *o, size_t n)
{
    char block[16 << 10];
    if (o->old - o->good < (off_t)n)
        return false;
    for (size_t at = 0; at < n;) {
        size_t want = n - at < sizeof(block) ? n - at : sizeof(block);
        ssize_t got = pread(o->fd, block, want, o->good + (off_t)at);
        if (got <= 0 || memcmp(block, o->line + at, (size_t)got) != 0)
            return false;
        at += (size_t)got;
    }
    return true;
}

int output_line(struct output *o, const char *line, size_t n, struct err *e)
{
    if (n + 1 > o->line_cap) {
        char *p = mem_resize(o->line, n + 1);
        if (!p)
            return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a record of %zu bytes", n);
        o->line = p;
        o->line_cap = n + 1;
    }
    memcpy(o->line, line, n);
    o->line[n] = '\n';
    int rc = 0;
    if (!is_there(o, n + 1)) {
        rc = output_cut(o, e);
        if (!rc)
            rc = write_line(o, n + 1, e);
    }
    if (rc)
        return rc;
    o->good += (off_t)n + 1;
    hash_add(&o->hash, o->line, n + 1);
    int64_t now = clock_us();
    if (o->unsynced >= SYNC_LINES || now - o->synced_us > SYNC_SECONDS * INT64_C(1000000))
        return output_sync(o, e);
    return 0;
}

int output_cut(struct output *o, struct err *e)
{
    if (o->old > o->good && ftruncate(o->fd, o->good) != 0)
        return fail(e, "cut", o->results);
    o->old = o->good;
    return 0;
}

int output_sync(struct output *o, struct err *e)
{
    if (o->unsynced > 0 && sys_fdatasync(o->fd) != 0)
        return fail(e, "sync", o->results);
    o->unsynced = 0;
    o->synced_us = clock_us();
    return 0;
}

bool output_is_synced(const struct output *o)
{
    return o->unsynced == 0;
}

int output_file(struct output *o, const char *name, const void *data, size_t n, struct err *e)
{
    uint8_t digest[HASH_BYTES];
    char *path = path_of(o, name, suffix);
    int rc = 0;
    if (!o->has_summaries && strchr(name, '/')) {
        char *folder = file_parent(path);
        rc = file_make_dirs(folder, e);
        free(folder);
        o->has_summaries = rc == 0;
    }
    /* Not synced here: publishing syncs everything at once before it renames. */
    int fd = rc ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (!rc && fd < 0)
        rc = fail(e, "create", path);
    if (!rc)
        rc = file_write_all(fd, data, n, path, e);
    if (fd >= 0 && close(fd) != 0 && !rc)
        rc = fail(e, "close", path);
    if (rc) {
        unlink(path);
    } else {
        hash_bytes(data, n, digest);
        rc = manifest_add(&o->files, name, digest, e);
    }
    free(path);
    return rc;
}

/* ---- publishing ---- */

static bool exists(const struct output *o, const char *name)
{
    char *path = path_of(o, name, "");
    bool yes = access(path, F_OK) == 0;
    free(path);
    return yes;
}

/* The entries of an earlier manifest. One that cannot be read lists nothing: its files stay. */
static void read_manifest(const struct output *o, struct manifest *m)
{
    if (!exists(o, finished_name))
        return;
    struct err e = {0};
    struct buf text;
    buf_init(&text, MANIFEST_MAX);
    char *path = path_of(o, finished_name, "");
    struct manifest got = {0};
    if (file_read(path, &text, &e) != 0 ||
        manifest_parse(&got, text.data ? text.data : "", text.len, &e) != 0) {
        log_warn("write", "%s: %s; files of that run that are not written again stay", path,
                 e.msg);
        err_clear(&e);
    }
    for (size_t i = 0; i < got.n; i++)
        if (manifest_add(m, got.entries[i].name, got.entries[i].sha256, &e) != 0)
            break;
    manifest_release(&got);
    buf_release(&text);
    free(path);
}

static int remove_manifest(const struct output *o, struct err *e)
{
    char *path = path_of(o, finished_name, "");
    int rc = unlink(path) != 0 && errno != ENOENT ? fail(e, "remove", path) : 0;
    if (!rc)
        rc = file_sync_parent(path, e);
    free(path);
    return rc;
}

static int rename_one(const struct output *o, const char *name, struct err *e)
{
    char *from = path_of(o, name, suffix), *to = path_of(o, name, "");
    int rc = rename(from, to) != 0 ? fail(e, "rename to", to) : 0;
    free(from);
    free(to);
    return rc;
}

static void remove_old(void *ctx, const char *name)
{
    char *path = path_of(ctx, name, "");
    if (unlink(path) != 0 && errno != ENOENT)
        log_warn("write", "cannot remove \"%s\" of the earlier run: %s", path, strerror(errno));
    free(path);
}

/* Everything written is on the disk. */
static int sync_all(struct output *o, struct err *e)
{
    if (sys_fsync(o->fd) != 0 || syncfs(o->fd) != 0)
        return fail(e, "sync", o->results);
    if (close(o->fd) != 0) {
        o->fd = -1;
        return fail(e, "close", o->results);
    }
    o->fd = -1;
    uint8_t digest[HASH_BYTES];
    hash_end(&o->hash, digest);
    hash_init(&o->hash);
    return manifest_add(&o->files, results_name, digest, e);
}

static int write_manifest(const struct output *o, struct err *e)
{
    struct buf text;
    buf_init(&text, MANIFEST_MAX);
    int rc = manifest_print(&o->files, &text, e);
    if (!rc && o->has_summaries) {
        char *inside = path_of(o, "summaries/x", "");
        rc = file_sync_parent(inside, e);
        free(inside);
    }
    if (!rc) {
        char *path = path_of(o, finished_name, "");
        rc = file_write_atomic(path, text.data, text.len, e);
        free(path);
    }
    buf_release(&text);
    return rc;
}

int output_publish(struct output *o, struct err *e)
{
    int rc = output_cut(o, e);
    if (!rc)
        rc = sync_all(o, e);
    if (rc)
        return rc;
    struct manifest old = {0};
    read_manifest(o, &old);
    rc = remove_manifest(o, e);
    for (size_t i = 0; i < o->files.n && !rc; i++)
        rc = rename_one(o, o->files.entries[i].name, e);
    if (!rc) {
        manifest_missing(&old, &o->files, remove_old, o);
        rc = write_manifest(o, e);
    }
    manifest_release(&old);
    return rc;
}

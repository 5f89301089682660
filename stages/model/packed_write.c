/* The weights are in memory and do not change: a thread writes them while the run is under way. */
#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/model/packed_cache.h"
#include "stages/model/packed_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    NAME_CHARS = HASH_HEX - 1 + (int)sizeof(PACKED_SUFFIX) - 1,
    NAME_CAP = NAME_CHARS + 32,
    STALE_SECONDS =
        24 * 3600,   /* a file under its first name that nobody can be writing any more */
    ROOM_SHARE = 20, /* this part of the disk stays free */
};

struct packed_writer {
    int dir, fd;
    uint64_t limit, bytes;
    uint8_t key[HASH_BYTES];
    const uint8_t *data;
    char name[NAME_CAP], first_name[NAME_CAP];
    bool written;
    atomic_bool done;
    pthread_t thread;
};

/* ---- the folder's limit ---- */

struct entry {
    char name[NAME_CAP];
    uint64_t bytes;
    struct timespec used;
};

static bool is_packed(const char *name)
{
    return strlen(name) == NAME_CHARS && strspn(name, "0123456789abcdef") == HASH_HEX - 1 &&
           strcmp(name + HASH_HEX - 1, PACKED_SUFFIX) == 0;
}

static bool is_first_name(const char *name)
{
    return strlen(name) < NAME_CAP && strspn(name, "0123456789abcdef") == HASH_HEX - 1 &&
           strncmp(name + HASH_HEX - 1, PACKED_SUFFIX ".tmp.", sizeof(PACKED_SUFFIX) + 4) == 0;
}

static int by_use(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec   ? -1
           : x->used.tv_nsec > y->used.tv_nsec ? 1
                                               : strcmp(x->name, y->name);
}

/* Files of packed weights, those used longest ago first; left-overs of writers that were killed are removed. */
static size_t list(int dir, struct entry **out)
{
    enum { ENTRIES_MAX = 4096 };
    size_t n = 0;
    struct entry *all = mem_alloc(ENTRIES_MAX * sizeof(*all));
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again >= 0 ? fdopendir(again) : NULL;
    if (!d && again >= 0)
        close(again);
    *out = all;
    for (struct dirent *x; all && d && n < ENTRIES_MAX && (x = readdir(d)) != NULL;) {
        struct stat st;
        bool first = is_first_name(x->d_name);
        if ((!first && !is_packed(x->d_name)) ||
            fstatat(dir, x->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (first) {
            if (time(NULL) - st.st_mtime > STALE_SECONDS)
                (void)unlinkat(dir, x->d_name, 0); /* or the next one does it */
            continue;
        }
        struct entry *e = &all[n++];
        memcpy(e->name, x->d_name, NAME_CHARS + 1);
        e->bytes = (uint64_t)st.st_size;
        e->used = st.st_mtim;
    }
    if (d)
        closedir(d);
    if (all)
        qsort(all, n, sizeof(*all), by_use);
    return all ? n : 0;
}

/* Make room for `more` bytes beside what is kept. Maps of a removed file stay good. */
static void prune(int dir, uint64_t limit, uint64_t more, const char *keep)
{
    struct entry *all;
    size_t n = list(dir, &all);
    uint64_t sum = more;
    for (size_t i = 0; i < n; i++)
        sum += strcmp(all[i].name, keep) == 0 ? 0 : all[i].bytes;
    for (size_t i = 0; limit && i < n && sum > limit; i++) {
        if (strcmp(all[i].name, keep) == 0)
            continue;
        if (unlinkat(dir, all[i].name, 0) == 0)
            log_debug("model", "packed weights removed for the limit name=%s", all[i].name);
        sum -= all[i].bytes;
    }
    free(all);
}

/* ---- one file ---- */

static int put(const struct packed_writer *w, const uint8_t *data, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t done = pwrite(w->fd, data, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        data += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

static bool write_all(struct packed_writer *w)
{
    uint64_t at = packed_data_at(w->bytes), n = packed_blocks(w->bytes);
    uint8_t *head = mem_alloc((size_t)at);
    bool ok = head != NULL;
    for (uint64_t i = 0; ok && i < n; i++) {
        uint64_t begin = i * PACKED_BLOCK, left = w->bytes - begin;
        packed_sum_put(head, i, packed_sum_of(w->data, w->bytes, i));
        ok = put(w, w->data + begin, (size_t)(left < PACKED_BLOCK ? left : PACKED_BLOCK),
                 at + begin) == 0;
    }
    if (ok) {
        packed_head_put(head, w->key, w->bytes);
        ok = put(w, head, (size_t)at, 0) == 0;
    }
    free(head);
    return ok && fdatasync(w->fd) == 0;
}

static void *run_writer(void *arg)
{
    struct packed_writer *w = arg;
    (void)nice(10); /* of this thread alone; the run comes first */
    w->written = write_all(w) && renameat(w->dir, w->first_name, w->dir, w->name) == 0;
    if (w->written) {
        (void)fsync(w->dir); /* a name that is lost is written again */
        prune(w->dir, w->limit, packed_file_bytes(w->bytes), w->name);
    } else {
        log_debug("model", "packed weights not written: %s", strerror(errno));
        (void)unlinkat(w->dir, w->first_name, 0);
    }
    w->done = true;
    return NULL;
}

static const char *has_room(int dir, uint64_t bytes)
{
    struct statvfs v;
    if (fstatvfs(dir, &v) != 0)
        return "the disk does not say what room it has";
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize, disk = (uint64_t)v.f_blocks * v.f_frsize;
    return room < bytes || room - bytes < disk / ROOM_SHARE ? "no room on the disk" : NULL;
}

static void close_writer(struct packed_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->dir >= 0)
        close(w->dir);
    free(w);
}

struct packed_writer *packed_write(const char *folder, uint64_t limit,
                                   const uint8_t key[HASH_BYTES], const void *data,
                                   uint64_t bytes, const char **why)
{
    struct err e = {0};
    struct packed_writer *w = mem_need(sizeof(*w));
    *w = (struct packed_writer){
        .dir = -1, .fd = -1, .limit = limit, .bytes = bytes, .data = data};
    memcpy(w->key, key, HASH_BYTES);
    hash_hex(key, w->name);
    memcpy(w->name + HASH_HEX - 1, PACKED_SUFFIX, sizeof(PACKED_SUFFIX));
    snprintf(w->first_name, sizeof(w->first_name), "%.*s.tmp.%ld", (int)NAME_CHARS, w->name,
             (long)getpid());
    *why = limit && packed_file_bytes(bytes) > limit ? "more than the limit" : NULL;
    if (!*why && file_make_dirs(folder, &e) == 0)
        w->dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!*why && w->dir < 0)
        *why = "the folder cannot be made";
    if (!*why) {
        prune(w->dir, limit, packed_file_bytes(bytes), w->name);
        *why = has_room(w->dir, packed_file_bytes(bytes));
    }
    if (!*why) {
        (void)unlinkat(w->dir, w->first_name, 0); /* of an earlier process of this number */
        w->fd = openat(w->dir, w->first_name,
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (w->fd < 0)
            *why = "the folder cannot be written";
    }
    if (!*why && pthread_create(&w->thread, NULL, run_writer, w) != 0) {
        (void)unlinkat(w->dir, w->first_name, 0);
        *why = "no thread to write it";
    }
    if (*why) {
        close_writer(w);
        return NULL;
    }
    return w;
}

bool packed_write_end(struct packed_writer *w)
{
    if (!w)
        return false;
    if (!w->done)
        log_info("model", "writing the packed weights for the next start");
    pthread_join(w->thread, NULL);
    bool written = w->written;
    close_writer(w);
    return written;
}

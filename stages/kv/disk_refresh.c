/* What is in the folder: read when it is opened, and brought up to date with what other processes did.
 *
 * The lock's file holds a count of changes of the list of segments, so that a refresh, which is made before every
 * write, reads the folder only when that has changed.
 */
#include "stages/kv/disk_inner.h"

#include "stages/base/clock.h"
#include "stages/base/le.h"
#include "stages/base/mem.h"
#include "stages/base/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512, OTHERS_EVERY = 1000000 /* us */ };

/* ---- what a segment holds ---- */

static void take_notice(struct disk *d, const struct record_notice *t)
{
    struct disk_entry *entry = index_find(&d->index, t->key);
    if (entry && entry->segment == t->segment && entry->offset == t->offset) {
        segs_forget(d, entry);
        struct seg *s = segs_find(d, t->segment);
        if (s)
            segs_measure(d, s);
    }
}

static size_t read_fd(void *ctx, uint64_t offset, uint8_t *to, size_t n)
{
    struct iovec iov = {to, n};
    long got = sys_read_at(*(const int *)ctx, &iov, 1, offset);
    return got > 0 ? (size_t)got : 0;
}

/* Take in what lies between s->end and size. False: it could not be read to its end. */
static bool walk(struct disk *d, struct seg *s, uint64_t size)
{
    struct segment_walk *w = mem_need(sizeof(*w));
    struct segment_item item;
    segment_walk_init(w, read_fd, &s->fd, s->end, size);
    while (segment_next(w, &item)) {
        pthread_mutex_lock(&d->table);
        if (!item.is_notice)
            s->last = item.offset;
        if (item.is_notice)
            take_notice(d, &item.notice);
        else if (record_is_live(item.head.state))
            segs_insert(d, &item.head, s, item.offset);
        else if (item.head.state != RECORD_REMOVED && item.head.state != RECORD_BAD)
            d->st.corrupt++;
        pthread_mutex_unlock(&d->table);
    }
    pthread_mutex_lock(&d->table);
    d->st.corrupt += w->gaps;
    s->end = w->end;
    s->doubtful |= w->failed;
    s->damaged |= w->gaps > 0;
    pthread_mutex_unlock(&d->table);
    bool whole = !w->failed;
    free(w);
    return whole;
}

/* Whether an open segment is in our format, and then what it holds. False: it could not be read to its end. */
static bool recognise(struct disk *d, struct seg *s)
{
    struct stat st;
    uint8_t head[SEGMENT_HEAD_BYTES];
    s->foreign = true;
    if (fstat(s->fd, &st) != 0)
        return false;
    s->end = (uint64_t)st.st_size; /* when that changes, it is looked at again */
    if (read_fd(&s->fd, 0, head, sizeof(head)) != sizeof(head) || !segment_head_ok(head))
        return true;
    s->foreign = false;
    s->end = SEGMENT_HEAD_BYTES;
    /* Read-ahead would read the bodies, too. */
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_RANDOM);
    bool whole = walk(d, s, (uint64_t)st.st_size);
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_NORMAL);
    return whole;
}

/* Add a segment that is in the folder, and what it holds. */
static void add(struct disk *d, uint32_t number)
{
    char name[SEGMENT_NAME_CAP];
    struct stat st;
    segs_name(number, name);
    if (fstatat(d->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    pthread_mutex_lock(&d->table);
    struct seg *s = segs_list(d, number, (uint64_t)st.st_ino), *open = NULL;
    if (s) {
        s->foreign = true;
        if (S_ISREG(st.st_mode)) {
            segs_measure(d, s);
            open = segs_open(d, s);
        }
    }
    pthread_mutex_unlock(&d->table);
    if (open)
        recognise(d, open);
    segs_put(d, open);
}

/* The newest segment as it is now. False: it was deleted or replaced. */
static bool refresh_newest(struct disk *d, bool locked)
{
    struct seg *newest = segs_newest(d);
    char name[SEGMENT_NAME_CAP];
    struct stat st;
    if (!newest)
        return true;
    segs_name(newest->number, name);
    if (fstatat(d->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        (uint64_t)st.st_ino != newest->inode)
        return false;
    if ((uint64_t)st.st_size == newest->end)
        return true;
    if ((uint64_t)st.st_size < newest->end && !newest->foreign)
        return false;
    struct seg *s = segs_get(d, newest->number);
    if (!s)
        return newest->foreign;
    /* One that was seen before its maker had written the head looked foreign. */
    bool whole = s->foreign ? recognise(d, s) : walk(d, s, (uint64_t)st.st_size);
    /* Nobody is writing: what follows the last record was left by a writer that was killed. */
    bool ours = locked && !s->foreign;
    if (ours && !whole)
        disk_fail(d, "cannot read the newest segment");
    else if (ours && s->end < (uint64_t)st.st_size && sys_truncate(s->fd, s->end) != 0)
        disk_fail(d, "cannot cut a torn record off");
    pthread_mutex_lock(&d->table);
    segs_measure(d, s);
    pthread_mutex_unlock(&d->table);
    segs_put(d, s);
    return true;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Every number in the folder, rising; *n of them. NULL: none. What the other files occupy is added up. */
static uint32_t *read_numbers(struct disk *d, size_t *n)
{
    uint32_t *numbers = NULL;
    uint64_t others = 0;
    size_t cap = 0;
    *n = 0;
    int fd = openat(d->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    for (struct dirent *x; (x = readdir(dir)) != NULL;) {
        long number = segs_number(x->d_name);
        struct stat st;
        if (number < 0) {
            if (x->d_name[0] != '.' &&
                fstatat(d->dir, x->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                others += (uint64_t)st.st_blocks * BLOCK;
            continue;
        }
        if (*n == cap) {
            cap = cap ? 2 * cap : 64;
            uint32_t *more = mem_resize(numbers, cap * sizeof(*more));
            if (!more)
                break;
            numbers = more;
        }
        numbers[(*n)++] = (uint32_t)number;
    }
    closedir(dir);
    d->others = others;
    d->others_us = clock_us();
    if (*n)
        qsort(numbers, *n, sizeof(*numbers), by_number);
    return numbers;
}

void segs_measure_others(struct disk *d)
{
    size_t n;
    if (clock_us() - d->others_us > OTHERS_EVERY)
        free(read_numbers(d, &n));
}

/* ---- taking in what others did ---- */

/* How often the list of segments has changed; 0 when nobody counts. */
static uint64_t read_changes(struct disk *d)
{
    uint8_t bytes[8] = {0};
    if (d->lock == NO_FD || read_fd(&d->lock, 0, bytes, sizeof(bytes)) != sizeof(bytes))
        return 0;
    return le64_get(bytes);
}

void segs_count_change(struct disk *d)
{
    uint8_t bytes[8];
    struct iovec iov = {bytes, sizeof(bytes)};
    le64_put(bytes, read_changes(d) + 1);
    if (sys_write_at(d->lock, &iov, 1, 0) != 0)
        disk_fail(d, "cannot write the lock");
}

void segs_load(struct disk *d)
{
    size_t n;
    segs_release(d);
    d->changes = read_changes(
        d); /* before the list is read: what changes meanwhile is seen the next time */
    uint32_t *numbers = read_numbers(d, &n);
    for (size_t i = 0; i < n; i++)
        add(d, numbers[i]);
    free(numbers);
}

/* Segment i was unlinked, and its records with it. */
static void vanish(struct disk *d, size_t i)
{
    struct seg *s = d->segs[i];
    pthread_mutex_lock(&d->table);
    for (uint32_t k = 0; s->live > 0 && k < d->index.n_made; k++) {
        struct disk_entry *entry = index_at(&d->index, k);
        if (entry && entry->segment == s->number)
            segs_forget(d, entry);
    }
    segs_unlist(d, i);
    pthread_mutex_unlock(&d->table);
}

/* Bring the list of segments up to date. */
static void relist(struct disk *d)
{
    size_t n;
    uint32_t *numbers = read_numbers(d, &n);
    for (size_t i = 0; i < d->n_segs;) {
        const uint32_t *there =
            n ? bsearch(&d->segs[i]->number, numbers, n, sizeof(*numbers), by_number) : NULL;
        if (there)
            i++;
        else
            vanish(d, i);
    }
    const struct seg *newest = segs_newest(d);
    for (size_t i = 0; i < n; i++)
        if (!newest || numbers[i] > newest->number) {
            refresh_newest(d, false); /* the one before does not grow any more */
            add(d, numbers[i]);
            newest = segs_newest(d);
        }
    free(numbers);
}

void segs_refresh(struct disk *d, bool locked)
{
    uint64_t changes = read_changes(d);
    if (changes == 0 || changes != d->changes)
        relist(d);
    d->changes = changes;
    if (refresh_newest(d, locked))
        return;
    segs_load(d);
    if (!refresh_newest(d, locked) && locked)
        disk_fail(d, "its files change under the lock");
}

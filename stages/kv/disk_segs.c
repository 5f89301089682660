/* The segment files of a folder. Names are eight digits and ".seg"; the highest number is the newest, which
 * alone grows, and which is never unlinked: so a number is not used twice while the folder lives.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LAST_NUMBER = 99999999,
    NAME_CHARS = 12,
    NAME_CAP = 16,
    BLOCK = 512,
    OTHERS_EVERY = 1000000, /* us */
    SPENT_BYTES = 1 << 20   /* of removed records alone: worth another file */
};

static void name_of(uint32_t number, char out[NAME_CAP])
{
    snprintf(out, NAME_CAP, "%08u.seg", (unsigned)(number % (LAST_NUMBER + 1u)));
}

/* The number that a name stands for; -1: it is not a segment's. */
static long number_of(const char *name)
{
    if (strlen(name) != NAME_CHARS || strcmp(name + 8, ".seg") != 0 ||
        strspn(name, "0123456789") != 8)
        return -1;
    return strtol(name, NULL, 10);
}

/* ---- descriptors ---- */

static void close_oldest(struct disk *d)
{
    struct seg *oldest = NULL;
    for (size_t i = 0; i < d->n_segs; i++) {
        struct seg *s = d->segs[i];
        if (s->fd != NO_FD && s->refs == 0 && !s->dirty && (!oldest || s->used < oldest->used))
            oldest = s;
    }
    if (!oldest)
        return; /* all in use: one more than OPEN_SEGMENTS, then */
    close(oldest->fd);
    oldest->fd = NO_FD;
    d->n_open--;
}

static void drop(struct disk *d, struct seg *s)
{
    if (s->fd != NO_FD) {
        close(s->fd);
        d->n_open--;
    }
    free(s);
}

/* O_NONBLOCK: a pipe that is named like a segment must not hold us up. */
static int open_segment(struct disk *d, uint32_t number)
{
    char name[NAME_CAP];
    struct stat st;
    name_of(number, name);
    int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    int fd = d->o.read_only ? -1 : openat(d->dir, name, O_RDWR | flags);
    if (fd < 0 && (d->o.read_only || errno == EACCES || errno == EROFS || errno == EPERM))
        fd = openat(d->dir, name, O_RDONLY | flags);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        errno = ENOENT;
        fd = -1;
    }
    return fd;
}

static struct seg *get(struct disk *d, struct seg *s)
{
    if (!s)
        return NULL;
    if (s->fd == NO_FD) {
        if (d->n_open >= OPEN_SEGMENTS)
            close_oldest(d);
        int fd = open_segment(d, s->number);
        if (fd < 0)
            return NULL;
        s->fd = fd;
        d->n_open++;
    }
    s->refs++;
    s->used = ++d->clock;
    return s;
}

struct seg *segs_find(const struct disk *d, uint32_t number)
{
    size_t low = 0, high = d->n_segs;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (d->segs[mid]->number == number)
            return d->segs[mid];
        if (d->segs[mid]->number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

struct seg *segs_get(struct disk *d, uint32_t number)
{
    pthread_mutex_lock(&d->table);
    errno = ENOENT;
    struct seg *s = get(d, segs_find(d, number));
    pthread_mutex_unlock(&d->table);
    return s;
}

void segs_put(struct disk *d, struct seg *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&d->table);
    if (--s->refs == 0 && s->unlinked)
        drop(d, s);
    pthread_mutex_unlock(&d->table);
}

/* Take segment i out of the list; the table is locked. */
static void unlist(struct disk *d, size_t i)
{
    struct seg *s = d->segs[i];
    memmove(&d->segs[i], &d->segs[i + 1], (d->n_segs - i - 1) * sizeof(d->segs[0]));
    d->n_segs--;
    d->blocks -= s->blocks;
    s->unlinked = true;
    if (s->refs == 0)
        drop(d, s);
}

/* ---- what a segment holds ---- */

struct seg *segs_newest(const struct disk *d)
{
    return d->n_segs ? d->segs[d->n_segs - 1] : NULL;
}

void segs_measure(struct disk *d, struct seg *s)
{
    char name[NAME_CAP];
    struct stat st;
    name_of(s->number, name);
    /* By name: a file that was deleted takes no room in the folder, even while we have it open. */
    if (fstatat(d->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || st.st_ino != s->inode)
        st.st_blocks = 0;
    d->blocks -= s->blocks;
    s->blocks = (uint64_t)st.st_blocks * BLOCK;
    d->blocks += s->blocks;
}

void segs_insert(struct disk *d, const struct record_head *h, struct seg *s, uint64_t offset)
{
    /* The last one counts: who wrote it knew that the one before was gone. */
    struct disk_entry *entry = index_find(&d->index, h->info.key);
    if (entry)
        segs_forget(d, entry);
    entry = index_add(&d->index, h->info.key);
    if (!entry)
        return;
    entry->offset = offset;
    entry->segment = s->number;
    entry->owner = h->owner;
    entry->body_bytes = h->body_bytes;
    entry->written = h->written;
    entry->n_tokens = (uint8_t)h->info.n_tokens;
    entry->kind = (uint8_t)h->info.kind;
    entry->codec = (uint8_t)h->info.codec;
    entry->state = (uint8_t)h->state;
    s->live++;
    d->st.bytes += (int64_t)record_bytes(h->info.n_tokens, h->body_bytes);
}

void segs_forget(struct disk *d, struct disk_entry *entry)
{
    struct seg *s = segs_find(d, entry->segment);
    if (s)
        d->may_drop |= --s->live == 0;
    d->st.bytes -= (int64_t)record_bytes(entry->n_tokens, entry->body_bytes);
    index_remove(&d->index, entry);
}

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

/* A new segment at the end of the list. The table is locked. */
static struct seg *list(struct disk *d, uint32_t number, uint64_t inode)
{
    if (d->n_segs == d->segs_cap) {
        size_t cap = d->segs_cap ? 2 * d->segs_cap : 16;
        struct seg **segs = mem_resize(d->segs, cap * sizeof(struct seg *));
        if (!segs)
            return NULL;
        d->segs = segs;
        d->segs_cap = cap;
    }
    struct seg *s = mem_need(sizeof(*s));
    *s = (struct seg){.number = number, .inode = inode, .fd = NO_FD};
    return d->segs[d->n_segs++] = s;
}

/* Add a segment that is in the folder, and what it holds. False: it is not there. */
static bool add(struct disk *d, uint32_t number)
{
    char name[NAME_CAP];
    struct stat st;
    name_of(number, name);
    if (fstatat(d->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    pthread_mutex_lock(&d->table);
    struct seg *s = list(d, number, (uint64_t)st.st_ino), *open = NULL;
    if (s) {
        s->foreign = true;
        if (S_ISREG(st.st_mode)) {
            segs_measure(d, s);
            open = get(d, s);
        }
    }
    pthread_mutex_unlock(&d->table);
    uint8_t head[SEGMENT_HEAD_BYTES];
    if (open && fstat(open->fd, &st) == 0 &&
        read_fd(&open->fd, 0, head, sizeof(head)) == sizeof(head) && segment_head_ok(head)) {
        open->foreign = false;
        open->end = SEGMENT_HEAD_BYTES;
        /* Read-ahead would read the bodies, too. */
        posix_fadvise(open->fd, 0, 0, POSIX_FADV_RANDOM);
        walk(d, open, (uint64_t)st.st_size);
        posix_fadvise(open->fd, 0, 0, POSIX_FADV_NORMAL);
    }
    segs_put(d, open);
    return s != NULL;
}

/* The newest segment as it is now. False: it was deleted or replaced. */
static bool refresh_newest(struct disk *d, bool locked)
{
    struct seg *newest = segs_newest(d);
    char name[NAME_CAP];
    struct stat st;
    if (!newest)
        return true;
    name_of(newest->number, name);
    if (fstatat(d->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        (uint64_t)st.st_ino != newest->inode)
        return false;
    if (newest->foreign || (uint64_t)st.st_size == newest->end)
        return true;
    if ((uint64_t)st.st_size < newest->end)
        return false;
    struct seg *s = segs_get(d, newest->number);
    if (!s)
        return false;
    bool whole = walk(d, s, (uint64_t)st.st_size);
    /* Nobody is writing: what follows the last record was left by a writer that was killed. */
    if (locked && !whole)
        disk_fail(d, "cannot read the newest segment");
    else if (locked && s->end < (uint64_t)st.st_size && sys_truncate(s->fd, s->end) != 0)
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
        long number = number_of(x->d_name);
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

void segs_release(struct disk *d)
{
    pthread_mutex_lock(&d->table);
    while (d->n_segs)
        unlist(d, d->n_segs - 1);
    index_release(&d->index);
    d->st.bytes = 0;
    d->n_victims = d->next_victim = d->n_notices = 0;
    pthread_mutex_unlock(&d->table);
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

/* The caller holds the folder's lock. */
static void count_change(struct disk *d)
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
    unlist(d, i);
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

/* ---- making and unlinking ---- */

/* The change is counted before and after: who reads the list in between reads it again, and who comes after a
 * maker that was killed in between reads it, too. */
static struct seg *create(struct disk *d, uint32_t number)
{
    char name[NAME_CAP];
    struct stat st;
    int fd;
    count_change(d);
    do {
        name_of(number, name);
        fd = openat(d->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EEXIST && number++ < LAST_NUMBER);
    if (fd < 0)
        return NULL;
    count_change(d);
    uint8_t head[SEGMENT_HEAD_BYTES];
    struct iovec iov = {head, sizeof(head)};
    segment_head_put(head);
    if (fstat(fd, &st) != 0 || sys_write_at(fd, &iov, 1, 0) != 0) {
        int why = errno;
        close(fd);
        unlinkat(d->dir, name, 0);
        errno = why;
        return NULL;
    }
    pthread_mutex_lock(&d->table);
    struct seg *s = list(d, number, (uint64_t)st.st_ino);
    if (s) {
        s->end = SEGMENT_HEAD_BYTES;
        s->fd = fd;
        s->refs = 1;
        s->used = ++d->clock;
        d->n_open++;
        d->folder_dirty = true;
        segs_measure(d, s);
    }
    pthread_mutex_unlock(&d->table);
    if (!s) {
        close(fd);
        errno = ENOMEM;
    }
    return s;
}

struct seg *segs_for_append(struct disk *d, uint64_t n)
{
    struct seg *newest = segs_newest(d);
    /* Heads of removed records are left in it and no record: unlinked when it is not the newest any more. */
    bool spent = newest && newest->live == 0 && newest->end >= SPENT_BYTES;
    if (spent) {
        pthread_mutex_lock(&d->table);
        d->may_drop = true;
        pthread_mutex_unlock(&d->table);
    }
    /* A damaged segment gets no more records, so that it is empty one day, and unlinked. */
    if (newest && !newest->foreign && !newest->damaged && !spent &&
        (newest->end + n <= d->segment_bytes || newest->end == SEGMENT_HEAD_BYTES))
        return segs_get(d, newest->number);
    return create(d, newest ? newest->number + 1 : 0);
}

/* What could not be read may hold anything. A foreign segment is not ours to delete, unless it is one whose maker was killed before its head was written. */
static bool is_dead(struct disk *d, const struct seg *s, const char *name)
{
    struct stat st;
    if (!s->foreign)
        return s->live == 0 && !s->doubtful;
    return fstatat(d->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           st.st_size < SEGMENT_HEAD_BYTES;
}

void segs_drop_dead(struct disk *d)
{
    pthread_mutex_lock(&d->table);
    if (!d->may_drop) {
        pthread_mutex_unlock(&d->table);
        return;
    }
    d->may_drop = false;
    bool changed = false;
    for (size_t i = 0; i + 1 < d->n_segs;) {
        struct seg *s = d->segs[i];
        char name[NAME_CAP];
        name_of(s->number, name);
        if (!is_dead(d, s, name) || (unlinkat(d->dir, name, 0) != 0 && errno != ENOENT)) {
            i++;
            continue;
        }
        unlist(d, i);
        changed = true;
    }
    pthread_mutex_unlock(&d->table);
    if (changed)
        count_change(d);
}

/* The segment files of a folder. Names are eight digits and ".seg"; the highest number is the newest, which
 * alone grows, and which is never unlinked: so a number is not used twice while the folder lives.
 */
#include "stages/kv/disk_inner.h"

#include "stages/base/mem.h"
#include "stages/base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAME_CHARS = 12,
    BLOCK = 512,
    SPENT_BYTES = 1 << 20 /* of removed records alone: worth another file */
};

void segs_name(uint32_t number, char out[SEGMENT_NAME_CAP])
{
    snprintf(out, SEGMENT_NAME_CAP, "%08u.seg", (unsigned)(number % (SEGMENT_LAST + 1u)));
}

long segs_number(const char *name)
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
    char name[SEGMENT_NAME_CAP];
    struct stat st;
    segs_name(number, name);
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

struct seg *segs_open(struct disk *d, struct seg *s)
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
    struct seg *s = segs_open(d, segs_find(d, number));
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

void segs_unlist(struct disk *d, size_t i)
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
    char name[SEGMENT_NAME_CAP];
    struct stat st;
    segs_name(s->number, name);
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

struct seg *segs_list(struct disk *d, uint32_t number, uint64_t inode)
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

void segs_release(struct disk *d)
{
    pthread_mutex_lock(&d->table);
    while (d->n_segs)
        segs_unlist(d, d->n_segs - 1);
    index_release(&d->index);
    d->st.bytes = 0;
    d->n_victims = d->next_victim = d->n_notices = 0;
    pthread_mutex_unlock(&d->table);
}

/* ---- making and unlinking ---- */

/* The change is counted before and after: who reads the list in between reads it again, and who comes after a
 * maker that was killed in between reads it, too. */
static struct seg *create(struct disk *d, uint32_t number)
{
    char name[SEGMENT_NAME_CAP];
    struct stat st;
    int fd;
    segs_count_change(d);
    do {
        segs_name(number, name);
        fd = openat(d->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EEXIST && number++ < SEGMENT_LAST);
    if (fd < 0)
        return NULL;
    segs_count_change(d);
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
    struct seg *s = segs_list(d, number, (uint64_t)st.st_ino);
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
        char name[SEGMENT_NAME_CAP];
        segs_name(s->number, name);
        if (!is_dead(d, s, name) || (unlinkat(d->dir, name, 0) != 0 && errno != ENOENT)) {
            i++;
            continue;
        }
        segs_unlist(d, i);
        changed = true;
    }
    pthread_mutex_unlock(&d->table);
    if (changed)
        segs_count_change(d);
}

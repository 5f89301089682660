/* The folder of KV pages: see docs/kv-store.md for the format and for what is promised.
 *
 *     folder/ lock             held while something is written: flock()
 *             NNNNNNNN.seg     records, appended (disk_segs.c)
 *             uses             the history of uses (uses.h)
 *             <name>.run       a living run (disk_run.c)
 */
#include "stages/kv/disk.h"

#include "stages/kv/disk_inner.h"

#include "stages/base/clock.h"
#include "stages/base/mem.h"
#include "stages/base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SEGMENT_BYTES = 256 << 20,
    SEGMENTS_AT_LEAST =
        16, /* in a folder at its limit, so that an emptied one is a small part of it */
    MOST_USES = 4 << 20,
    SAVE_USES_EVERY = 60, /* s */
};

/* ---- open and close ---- */

/* A machine that lost its power may have kept the end of a file and not its bytes. */
static void check_last(struct disk *d)
{
    struct seg *newest = segs_newest(d);
    for (uint32_t i = 0; newest && newest->last && i < d->index.n_made; i++) {
        struct disk_entry *entry = index_at(&d->index, i);
        if (!entry || entry->segment != newest->number || entry->offset != newest->last)
            continue;
        uint8_t *body = mem_alloc(entry->body_bytes);
        struct record_info info;
        struct seg *s = segs_get(d, entry->segment);
        if (body && s && disk_read_at(s, entry, &info, body) == READ_SPOILT) {
            d->st.corrupt++;
            evict_one(d, entry, RECORD_BAD, false);
        }
        segs_put(d, s);
        free(body);
        return;
    }
}

int disk_open(struct disk **out, const struct disk_options *o, struct err *e)
{
    struct disk *d = mem_need(sizeof(*d));
    *out = NULL;
    d->o = *o;
    d->folder = mem_strdup(o->folder);
    d->o.folder = d->folder;
    d->lock = NO_FD;
    d->dir = folder_open(&d->o);
    if (d->dir < 0) {
        int rc = err_set(e, REACH_JOB, ERR_IO, "cannot open the folder of KV pages \"%s\": %s",
                         o->folder, strerror(errno));
        free(d->folder);
        free(d);
        return rc;
    }
    uint64_t part = o->limit / SEGMENTS_AT_LEAST;
    d->segment_bytes = o->segment_bytes                   ? o->segment_bytes
                       : o->limit && part < SEGMENT_BYTES ? part
                                                          : SEGMENT_BYTES;
    uint64_t keys = o->limit / HISTORY_SHARE / USES_ENTRY;
    uses_init(&d->uses, o->limit && keys < MOST_USES ? (uint32_t)keys : MOST_USES);
    index_init(&d->index, o->cut_key_bits);
    pthread_mutex_init(&d->syncing, NULL);
    pthread_mutex_init(&d->writer, NULL);
    pthread_mutex_init(&d->table, NULL);
    d->st.writing = !o->read_only;
    if (!o->read_only && (d->lock = folder_open_lock(d->dir)) < 0)
        disk_fail(d, "cannot open the lock");
    pthread_mutex_lock(&d->writer);
    folder_read_uses(d, true);
    d->uses_saved = disk_now();
    segs_load(d);
    if (disk_lock(d)) {
        check_last(d);
        run_sweep(d);
        d->may_drop = true;
        evict_for(d, 0); /* the limit may be lower than the last time */
        disk_unlock(d);
    } else {
        segs_refresh(d, false);
    }
    pthread_mutex_unlock(&d->writer);
    *out = d;
    return 0;
}

void disk_close(struct disk *d)
{
    if (!d)
        return;
    disk_sync(d);
    pthread_mutex_lock(&d->writer);
    folder_save_uses(d);
    pthread_mutex_unlock(&d->writer);
    run_end(d);
    segs_release(d);
    uses_release(&d->uses);
    free(d->segs);
    free(d->victims);
    free(d->notices);
    if (d->lock >= 0)
        close(d->lock);
    close(d->dir);
    pthread_mutex_destroy(&d->syncing);
    pthread_mutex_destroy(&d->writer);
    pthread_mutex_destroy(&d->table);
    free(d->folder);
    free(d);
}

/* ---- look-ups ---- */

bool disk_has(struct disk *d, const uint8_t key[HASH_BYTES])
{
    pthread_mutex_lock(&d->table);
    bool has = index_find(&d->index, key) != NULL;
    pthread_mutex_unlock(&d->table);
    return has;
}

void disk_touch(struct disk *d, const uint8_t key[HASH_BYTES])
{
    pthread_mutex_lock(&d->table);
    uses_touch(&d->uses, uses_key(key), disk_now());
    pthread_mutex_unlock(&d->table);
}

bool disk_was_used(struct disk *d, const uint8_t key[HASH_BYTES])
{
    pthread_mutex_lock(&d->table);
    const struct use *u = uses_find(&d->uses, uses_key(key));
    bool was = u && u->earlier;
    pthread_mutex_unlock(&d->table);
    return was;
}

void disk_get_stats(struct disk *d, struct disk_stats *out)
{
    pthread_mutex_lock(&d->table);
    *out = d->st;
    out->records = d->index.live;
    out->segments = (int64_t)d->n_segs;
    out->blocks = (int64_t)d->blocks;
    pthread_mutex_unlock(&d->table);
}

/* ---- changes ---- */

void disk_refresh(struct disk *d)
{
    /* A thread that is writing takes in what others did anyway; do not wait for its files. */
    if (pthread_mutex_trylock(&d->writer) != 0)
        return;
    segs_refresh(d, false);
    pthread_mutex_unlock(&d->writer);
}

/* The record goes into the newest segment; room has been made. 0, or -1 with errno. */
static int append(struct disk *d, struct record_head *h, const uint8_t *body)
{
    static const uint8_t zeros[RECORD_ALIGN];
    uint8_t head[RECORD_HEAD_MAX];
    uint64_t bytes = record_bytes(h->info.n_tokens, h->body_bytes);
    size_t head_bytes = record_put(h, head);
    union {
        const void *in;
        void *base; /* struct iovec has no const */
    } from = {body}, pad = {zeros};
    struct iovec iov[] = {{head, head_bytes},
                          {from.base, h->body_bytes},
                          {pad.base, (size_t)(bytes - head_bytes - h->body_bytes)}};
    struct seg *s = segs_for_append(d, bytes);
    if (!s)
        return -1;
    int rc = sys_write_at(s->fd, iov, (int)ARRAY_LEN(iov), s->end), why = errno;
    if (rc != 0 && sys_truncate(s->fd, s->end) != 0)
        errno = why; /* the next writer cuts it */
    pthread_mutex_lock(&d->table);
    if (rc == 0) {
        segs_insert(d, h, s, s->end);
        s->last = s->end;
        s->end += bytes;
        s->dirty = true;
    }
    segs_measure(d, s);
    pthread_mutex_unlock(&d->table);
    segs_put(d, s);
    errno = why;
    return rc;
}

/* With the folder's lock. */
static int write_locked(struct disk *d, struct record_head *h, const uint8_t *body)
{
    struct disk_entry *entry = index_find(&d->index, h->info.key);
    if (entry) {
        if (entry->state == RECORD_EPHEMERAL && h->state == RECORD_KEPT)
            evict_restate(d, entry, RECORD_KEPT);
        return 1;
    }
    if (!evict_for(d, record_bytes(h->info.n_tokens, h->body_bytes)))
        return 2;
    if (!disk_is_writing(d))
        return 2; /* evicting has failed */
    if (append(d, h, body) != 0) {
        disk_fail(d, "cannot write");
        return 2;
    }
    evict_for(d, 0); /* what the file system took beside the bytes */
    return 0;
}

/* Is there nothing to do for this record? Without waiting for anybody. */
static bool is_there(struct disk *d, const struct record_info *info)
{
    pthread_mutex_lock(&d->table);
    const struct disk_entry *entry = index_find(&d->index, info->key);
    bool there = entry && (info->ephemeral || entry->state != RECORD_EPHEMERAL);
    pthread_mutex_unlock(&d->table);
    return there;
}

int disk_write(struct disk *d, const struct record_info *info, const uint8_t *body, size_t n)
{
    int64_t start = clock_us();
    int rc = 2;
    if (n > RECORD_BODY_MAX || info->n_tokens < (info->kind == RECORD_TAIL ? 0 : 1) ||
        info->n_tokens > PAGE_TOKENS)
        return 2;
    if (is_there(d, info)) {
        rc = 1;
    } else if (disk_is_writing(d)) {
        struct record_head h = {.info = *info,
                                .state = info->ephemeral ? RECORD_EPHEMERAL : RECORD_KEPT,
                                .body_bytes = (uint32_t)n,
                                .body_hash = record_hash(body, n),
                                .written = disk_now()};
        pthread_mutex_lock(&d->writer);
        if (disk_lock(d)) {
            if (info->ephemeral)
                h.owner = run_name(d);
            rc = write_locked(d, &h, body);
            disk_unlock(d);
        }
        pthread_mutex_unlock(&d->writer);
    }
    pthread_mutex_lock(&d->table);
    d->st.already_there += rc == 1;
    d->st.full += rc == 2 && d->st.writing;
    if (rc == 0) {
        d->st.written++;
        d->st.written_bytes += (int64_t)n;
        d->st.write_us += clock_us() - start;
    }
    pthread_mutex_unlock(&d->table);
    return rc;
}

/* The segments that were written since the last call, referenced; *n of them. */
static struct seg **take_dirty(struct disk *d, size_t *n)
{
    *n = 0;
    pthread_mutex_lock(&d->table);
    struct seg **dirty = mem_need((d->n_segs + 1) * sizeof(struct seg *));
    for (size_t i = 0; i < d->n_segs; i++)
        if (d->segs[i]->dirty && d->segs[i]->fd != NO_FD) {
            d->segs[i]->dirty = false;
            d->segs[i]->refs++;
            dirty[(*n)++] = d->segs[i];
        }
    pthread_mutex_unlock(&d->table);
    return dirty;
}

void disk_sync(struct disk *d)
{
    size_t n;
    bool ok = true;
    pthread_mutex_lock(&d->syncing);
    int64_t start = clock_us();
    struct seg **dirty = take_dirty(d, &n);
    for (size_t i = 0; i < n; i++) {
        if (ok && sys_fdatasync(dirty[i]->fd) != 0) {
            disk_fail(d, "cannot make pages durable");
            ok = false;
        }
        segs_put(d, dirty[i]);
    }
    free(dirty);
    pthread_mutex_lock(&d->table);
    bool folder = d->folder_dirty, save = disk_now() - d->uses_saved >= SAVE_USES_EVERY;
    d->folder_dirty = false;
    d->st.write_us += n ? clock_us() - start : 0;
    int dir = folder ? fcntl(d->dir, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&d->table);
    if (dir >= 0) {
        if (sys_fsync(dir) != 0)
            disk_fail(d, "cannot make the folder durable");
        close(dir);
    }
    pthread_mutex_unlock(&d->syncing);
    if (save) {
        pthread_mutex_lock(&d->writer);
        folder_save_uses(d);
        pthread_mutex_unlock(&d->writer);
    }
}

/* Take an entry out, with the folder's lock if it can be had. */
static void leave(struct disk *d, const uint8_t key[HASH_BYTES], enum record_state state,
                  bool unless_changed, bool if_ephemeral)
{
    pthread_mutex_lock(&d->writer);
    bool locked = disk_lock(d);
    struct disk_entry *entry = index_find(&d->index, key);
    if (entry && if_ephemeral && entry->state != RECORD_EPHEMERAL)
        entry = NULL;
    if (entry && locked) {
        evict_one(d, entry, state, unless_changed);
    } else if (entry) {
        pthread_mutex_lock(&d->table);
        segs_forget(d, entry);
        pthread_mutex_unlock(&d->table);
    }
    d->full_since = 0;
    if (locked)
        disk_unlock(d);
    pthread_mutex_unlock(&d->writer);
}

void disk_remove(struct disk *d, const uint8_t key[HASH_BYTES])
{
    leave(d, key, RECORD_REMOVED, true, false);
}

void disk_drop_ephemeral(struct disk *d, const uint8_t key[HASH_BYTES])
{
    leave(d, key, RECORD_REMOVED, true, true);
}

void disk_keep(struct disk *d, const uint8_t key[HASH_BYTES])
{
    pthread_mutex_lock(&d->table);
    const struct disk_entry *there = index_find(&d->index, key);
    bool ephemeral = there && there->state == RECORD_EPHEMERAL;
    pthread_mutex_unlock(&d->table);
    if (!ephemeral)
        return;
    pthread_mutex_lock(&d->writer);
    if (disk_lock(d)) {
        struct disk_entry *entry = index_find(&d->index, key);
        if (entry && entry->state == RECORD_EPHEMERAL)
            evict_restate(d, entry, RECORD_KEPT);
        disk_unlock(d);
    }
    pthread_mutex_unlock(&d->writer);
}

void disk_condemn(struct disk *d, const uint8_t key[HASH_BYTES])
{
    pthread_mutex_lock(&d->table);
    d->st.corrupt++;
    pthread_mutex_unlock(&d->table);
    leave(d, key, RECORD_BAD, false, false);
}

void disk_pin(struct disk *d, const uint8_t key[HASH_BYTES], bool pinned)
{
    pthread_mutex_lock(&d->writer);
    if (disk_lock(d)) {
        struct disk_entry *entry = index_find(&d->index, key);
        if (entry)
            evict_restate(d, entry, pinned ? RECORD_PINNED : RECORD_KEPT);
        d->full_since = 0;
        disk_unlock(d);
    }
    pthread_mutex_unlock(&d->writer);
}

/* Records leave: their state is rewritten in place, the blocks of their bodies are given back, and a notice of
 * 64 bytes goes to the end of the newest segment, from where the other processes learn of it. The head stays,
 * since a walk needs it to get to the next record. A segment without a record is unlinked.
 *
 * Who goes first: what a run spilled and did not live to use; then what is worth least (lru_k.h). Records that
 * are pinned, and those that a living run has spilled for itself, stay: they are wanted for certain.
 *
 * Where bodies are too small to have blocks of their own, or the file system cannot give blocks back, room
 * comes only from segments that are empty: there the oldest segments are emptied, whatever their records are
 * worth.
 */
#include "stages/kv/disk_inner.h"

#include "stages/base/clock.h"
#include "stages/base/mem.h"
#include "stages/base/sys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 4096,
    SMALL_RECORD = 4 * BLOCK, /* below, most of a record shares blocks with its neighbours */
    NEW_SEGMENT =
        8 << 10,      /* what a file takes when it is made and its first bytes are written */
    SLACK = 32 << 10, /* rounding, the head of a segment, notices, extents */
    LEAST_VICTIMS = 16,
    VICTIM_SHARE = 16,    /* one in so many records is chosen at a time */
    FULL_PAUSE = 1000000, /* us until a full folder is looked at again */
    SAME_COST = 1,        /* computing a byte of KV takes much the same in every page */
    UNUSED_DEAD = -1,     /* worth of what a dead run spilled */
};

/* What the file says of the record now; 0 when the record is not there. */
static enum record_state state_in_file(const struct seg *s, const struct disk_entry *entry)
{
    uint8_t bytes[RECORD_HEAD_MAX];
    struct iovec iov = {bytes, record_head_bytes(entry->n_tokens)};
    struct record_head h;
    long n = sys_read_at(s->fd, &iov, 1, entry->offset);
    if (n <= 0 || record_get(&h, bytes, (size_t)n) == 0 ||
        memcmp(h.info.key, entry->key, HASH_BYTES) != 0 || h.body_bytes != entry->body_bytes)
        return (enum record_state)0;
    return h.state;
}

static bool write_state(struct disk *d, const struct seg *s, uint64_t offset,
                        enum record_state state)
{
    uint8_t byte = (uint8_t)state;
    struct iovec iov = {&byte, 1};
    if (sys_write_at(s->fd, &iov, 1, offset + RECORD_STATE_AT) == 0)
        return true;
    disk_fail(d, "cannot change a record's state");
    return false;
}

/* Blocks that lie wholly in the body. */
static void give_back(struct disk *d, const struct seg *s, const struct disk_entry *entry)
{
    uint64_t from = entry->offset + record_head_bytes(entry->n_tokens);
    uint64_t to = entry->offset + record_bytes(entry->n_tokens, entry->body_bytes);
    from = (from + BLOCK - 1) & ~(uint64_t)(BLOCK - 1);
    to &= ~(uint64_t)(BLOCK - 1);
    if (from < to && !d->no_punch && sys_punch(s->fd, from, to - from) != 0)
        d->no_punch = true;
}

static void note(struct disk *d, const struct disk_entry *entry)
{
    if (d->n_notices == d->notices_cap) {
        size_t cap = d->notices_cap ? 2 * d->notices_cap : 64;
        struct record_notice *more = mem_resize(d->notices, cap * sizeof(*more));
        if (!more)
            return; /* the others find out when they read */
        d->notices = more;
        d->notices_cap = cap;
    }
    struct record_notice *t = &d->notices[d->n_notices++];
    *t = (struct record_notice){.segment = entry->segment, .offset = entry->offset};
    memcpy(t->key, entry->key, HASH_BYTES);
}

bool evict_one(struct disk *d, struct disk_entry *entry, enum record_state state,
               bool unless_changed)
{
    struct seg *s = segs_get(d, entry->segment);
    enum record_state was = s ? state_in_file(s, entry) : (enum record_state)0;
    bool goes = true;
    if (record_is_live(was)) {
        if (unless_changed && was != entry->state)
            goes = false; /* another process has pinned it, or wants it kept */
        else if (!write_state(d, s, entry->offset, state))
            goes = !unless_changed; /* what is corrupt is forgotten in any case */
        if (goes && disk_is_writing(d)) {
            give_back(d, s, entry);
            note(d, entry);
        } else if (!goes && was != entry->state) {
            pthread_mutex_lock(&d->table);
            entry->state = (uint8_t)was;
            pthread_mutex_unlock(&d->table);
        }
    }
    pthread_mutex_lock(&d->table);
    if (s && was == (enum record_state)0)
        s->doubtful = true;
    if (goes)
        segs_forget(d, entry);
    if (s)
        segs_measure(d, s);
    pthread_mutex_unlock(&d->table);
    segs_put(d, s);
    return goes;
}

bool evict_restate(struct disk *d, struct disk_entry *entry, enum record_state state)
{
    struct seg *s = segs_get(d, entry->segment);
    bool ok =
        s && record_is_live(state_in_file(s, entry)) && write_state(d, s, entry->offset, state);
    if (ok) {
        pthread_mutex_lock(&d->table);
        entry->state = (uint8_t)state;
        s->dirty = true;
        pthread_mutex_unlock(&d->table);
    }
    segs_put(d, s);
    return ok;
}

/* What the folder occupies beside n more bytes: other files, the history that is written anew beside the old one. */
static uint64_t needed(struct disk *d, uint64_t n)
{
    segs_measure_others(d);
    return n + d->others + d->o.limit / HISTORY_SHARE;
}

void evict_tell(struct disk *d)
{
    size_t n = d->n_notices;
    d->n_notices = 0;
    /* Without room nobody is told: the others find out when they read. */
    bool fits =
        d->o.limit == 0 || d->blocks + needed(d, n * NOTICE_BYTES + NEW_SEGMENT) <= d->o.limit;
    uint8_t *bytes = n && fits ? mem_alloc(n * NOTICE_BYTES) : NULL;
    if (!bytes)
        return;
    for (size_t i = 0; i < n; i++)
        notice_put(&d->notices[i], bytes + i * NOTICE_BYTES);
    struct seg *s = segs_for_append(d, n * NOTICE_BYTES);
    struct iovec iov = {bytes, n * NOTICE_BYTES};
    bool told = s && sys_write_at(s->fd, &iov, 1, s->end) == 0;
    if (!told)
        disk_fail(d, "cannot write");
    pthread_mutex_lock(&d->table);
    if (told)
        s->end += n * NOTICE_BYTES;
    if (s)
        segs_measure(d, s);
    pthread_mutex_unlock(&d->table);
    segs_put(d, s);
    free(bytes);
}

/* ---- choosing ---- */

static int least_first(const void *a, const void *b)
{
    const struct victim *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth < y->worth ? -1 : 1;
    /* Of a prompt the first pages are written first, and without them the others are never found. */
    if (x->segment != y->segment)
        return x->segment > y->segment ? -1 : 1;
    return x->offset > y->offset ? -1 : x->offset < y->offset;
}

/* The worth of an entry; false: it stays. The table is locked. */
static bool worth_of(struct disk *d, const struct disk_entry *entry, uint32_t now,
                     bool by_segment, double *worth)
{
    if (entry->state == RECORD_PINNED)
        return false;
    if (entry->state == RECORD_EPHEMERAL) {
        if (entry->owner != d->asked) { /* they come in long rows of one owner */
            d->asked = entry->owner;
            d->asked_alive = run_is_alive(d, entry->owner);
        }
        *worth = UNUSED_DEAD;
        return !d->asked_alive;
    }
    uint64_t key = uses_key(entry->key);
    if (by_segment)
        *worth = entry->segment;
    else if (uses_find(&d->uses, key))
        *worth = uses_worth(&d->uses, key, now, SAME_COST);
    else
        *worth = lru_k_worth(&entry->written, 1, now, SAME_COST);
    return true;
}

/* Choose the next ones to go, a share of all, so that the choice costs little for each. */
static void choose(struct disk *d)
{
    uint32_t now = disk_now();
    d->n_victims = d->next_victim = 0;
    d->asked = 0;
    d->asked_alive = false;
    free(d->victims);
    d->victims = mem_alloc(((size_t)d->index.live + 1) * sizeof(struct victim));
    if (!d->victims)
        return;
    pthread_mutex_lock(&d->table);
    bool by_segment =
        d->no_punch || d->st.bytes < (int64_t)d->index.live * (int64_t)SMALL_RECORD;
    for (uint32_t i = 0; i < d->index.n_made; i++) {
        const struct disk_entry *entry = index_at(&d->index, i);
        struct victim v = {.entry = i};
        if (!entry || !worth_of(d, entry, now, by_segment, &v.worth))
            continue;
        v.segment = entry->segment;
        v.offset = entry->offset;
        d->victims[d->n_victims++] = v;
    }
    pthread_mutex_unlock(&d->table);
    qsort(d->victims, d->n_victims, sizeof(struct victim), least_first);
    size_t most = d->n_victims / VICTIM_SHARE;
    if (most < LEAST_VICTIMS)
        most = LEAST_VICTIMS;
    if (d->n_victims > most)
        d->n_victims = most;
    d->chosen = now;
}

/* The entry of a victim if it is still there, and was not used since it was chosen. */
static struct disk_entry *still(struct disk *d, const struct victim *v)
{
    struct disk_entry *entry = index_at(&d->index, v->entry);
    if (!entry || entry->segment != v->segment || entry->offset != v->offset ||
        entry->state == RECORD_PINNED)
        return NULL;
    pthread_mutex_lock(&d->table);
    const struct use *u = uses_find(&d->uses, uses_key(entry->key));
    bool used = u && u->times[0] > d->chosen;
    pthread_mutex_unlock(&d->table);
    return used ? NULL : entry;
}

/* Remove one record. False: there is none that may go. */
static bool evict_next(struct disk *d)
{
    int64_t now = clock_us();
    if (d->full_since && now - d->full_since < FULL_PAUSE)
        return false;
    for (bool chosen = false;; chosen = true) {
        while (d->next_victim < d->n_victims) {
            struct disk_entry *entry = still(d, &d->victims[d->next_victim++]);
            if (entry && evict_one(d, entry, RECORD_REMOVED, true)) {
                d->full_since = 0;
                pthread_mutex_lock(&d->table);
                d->st.evicted++;
                pthread_mutex_unlock(&d->table);
                return true;
            }
            if (!disk_is_writing(d))
                return false;
        }
        if (chosen)
            break;
        choose(d);
    }
    d->full_since = now;
    return false;
}

bool evict_to(struct disk *d, uint64_t most)
{
    while (d->blocks > most) {
        if (!evict_next(d))
            return false;
        segs_drop_dead(d);
    }
    return true;
}

bool evict_for(struct disk *d, uint64_t n)
{
    if (d->o.limit == 0)
        return true;
    uint64_t need = needed(d, n + SLACK);
    return need <= d->o.limit && evict_to(d, d->o.limit - need);
}

/* stages/kv/disk_inner.h - what the files of the disk store share. Nobody else includes it.
 *
 *     disk.c          open, close, look-ups, write, sync
 *     disk_read.c     reading a record
 *     disk_folder.c   the folder, its lock, the file of uses
 *     disk_refresh.c  what is in the folder, and what others did
 *     disk_segs.c     the segment files: made, opened, measured, unlinked
 *     disk_evict.c    removing records, and making room
 *     disk_run.c      which runs are alive
 *     disk_look.c     what is there, for people (disk_look.h)
 *
 * Locks: `writer` is held by the thread that changes files or takes in the changes of others, and then, with
 * disk_lock(), the folder's lock. `table` guards the index, the list of segments, the history and the counters;
 * it is held for memory accesses and opens of files only. `syncing` makes disk_sync() wait for one that is
 * under way. Order: syncing, writer, folder, table. Who holds `writer` may read without `table` whatever changes
 * under `writer` alone: entries, segments, but not descriptors, uses and counters.
 */
#ifndef QUIRE_KV_DISK_INNER_H
#define QUIRE_KV_DISK_INNER_H

#include "stages/kv/disk_index.h"
#include "stages/kv/segment.h"
#include "stages/kv/uses.h"

#include <pthread.h>

enum {
    OPEN_SEGMENTS = 64,
    NO_FD = -1,
    SEGMENT_LAST = 99999999, /* the highest number */
    SEGMENT_NAME_CAP = 16,
    HISTORY_SHARE = 64, /* of the limit, at most, is the file of uses */
};

struct seg {
    uint32_t number;
    uint64_t inode;
    int fd;          /* NO_FD while it is closed */
    int refs;        /* readers of fd */
    bool foreign;    /* not our format or version, or no head yet: neither read nor written */
    bool doubtful;   /* something in it could not be read: it is not unlinked for being empty */
    bool damaged;    /* a stretch of it is no record */
    bool dirty;      /* written since the last disk_sync() */
    bool unlinked;   /* not in the list any more; freed with the last reference */
    uint64_t end;    /* behind the last record; of a foreign one, its size when last read */
    uint64_t last;   /* where the last record is; 0: none */
    uint64_t blocks; /* bytes of blocks when last measured */
    int64_t live;    /* records in the index */
    uint64_t used;   /* a clock for closing the one not used longest */
};

enum read_verdict {
    READ_OK,
    READ_GONE,   /* it was removed, or what is there is another record */
    READ_SPOILT, /* it is corrupt */
    READ_FAILED, /* errno */
};

struct victim {
    double worth;
    uint32_t entry, segment;
    uint64_t offset;
};

struct disk {
    struct disk_options o;
    char *folder;
    int dir, lock;    /* descriptors; lock NO_FD: never written */
    uint64_t changes; /* of the list of segments, when we last read it */
    pthread_mutex_t syncing, writer, table;
    struct disk_index index;
    struct uses uses;
    uint32_t uses_saved; /* when */
    struct seg **segs;   /* by number, rising */
    size_t n_segs, segs_cap;
    int n_open;
    uint64_t clock, segment_bytes;
    uint64_t blocks,
        others;        /* bytes of blocks of the segments; of the other files in the folder */
    int64_t others_us; /* when others was measured */
    bool folder_dirty, no_punch, may_drop; /* may_drop: a segment has lost its last record */
    struct victim *victims;                /* worth least first, [next_victim, n_victims) */
    size_t n_victims, next_victim;
    uint32_t chosen;               /* when they were */
    int64_t full_since;            /* us; 0: there was something to evict */
    struct record_notice *notices; /* of removed records, to be appended */
    size_t n_notices, notices_cap;
    uint64_t run; /* our name among the runs; 0: none yet */
    int run_fd;
    uint64_t asked; /* the run that was last asked for, and whether it is alive */
    bool asked_alive;
    struct disk_stats st;
};

/* ---- disk_folder.c ---- */

/* Open or make the folder; open or make the lock in it. -1 with errno. */
int folder_open(const struct disk_options *o);
int folder_open_lock(int dir);
/* Read the file of uses; `earlier`: its keys are those of earlier processes. */
void folder_read_uses(struct disk *d, bool earlier);
/* Add ours to what others have saved meanwhile. The caller holds writer. */
void folder_save_uses(struct disk *d);

/* Stop writing for good, and say so once. */
void disk_fail(struct disk *d, const char *what);
bool disk_is_writing(struct disk *d);
/* Take the folder's lock, take in what others did, cut a torn tail. The caller holds writer. False: not writing. */
bool disk_lock(struct disk *d);
void disk_unlock(struct disk *d);
uint32_t disk_now(void);

/* ---- disk_read.c ---- */

/* The record that the entry stands for, checked, into *info and body[entry->body_bytes]. */
enum read_verdict disk_read_at(const struct seg *s, const struct disk_entry *at,
                               struct record_info *info, uint8_t *body);

/* ---- disk_refresh.c: the caller holds writer ---- */

/* Forget everything and read the folder. */
void segs_load(struct disk *d);
/* Take in what others have done. locked: nobody is writing, so a torn tail is cut off. */
void segs_refresh(struct disk *d, bool locked);
void segs_measure_others(struct disk *d); /* once a second at most */
/* Tell others that a segment was made or unlinked. The caller holds the folder's lock. */
void segs_count_change(struct disk *d);

/* ---- disk_segs.c: the caller holds writer ---- */

/* The segment to append n bytes to, its descriptor open and referenced; a new one when the newest is full.
 * NULL with errno. */
struct seg *segs_for_append(struct disk *d, uint64_t n);
/* Unlink segments without a record, but for the newest. */
void segs_drop_dead(struct disk *d);
void segs_release(struct disk *d);
struct seg *segs_newest(const struct disk *d);
struct seg *segs_find(const struct disk *d, uint32_t number);
void segs_name(uint32_t number, char out[SEGMENT_NAME_CAP]);
long segs_number(const char *name); /* -1: it is not a segment's */

/* These take `table` themselves. Get: NULL when the file is gone; errno says why. */
struct seg *segs_get(struct disk *d, uint32_t number);
void segs_put(struct disk *d, struct seg *s);

/* For these the caller holds `table`, too. */
struct seg *segs_list(struct disk *d, uint32_t number,
                      uint64_t inode); /* at the end of the list */
void segs_unlist(struct disk *d, size_t i);
struct seg *segs_open(struct disk *d, struct seg *s); /* as segs_get() */
void segs_measure(struct disk *d, struct seg *s);
void segs_insert(struct disk *d, const struct record_head *h, struct seg *s, uint64_t offset);
void segs_forget(struct disk *d, struct disk_entry *entry); /* it leaves the index */

/* ---- disk_evict.c: the caller holds writer and the folder's lock ---- */

/* Room for n more bytes. False: there is none to be had. */
bool evict_for(struct disk *d, uint64_t n);
/* Evict until segments occupy at most that many bytes. False: no more may go. */
bool evict_to(struct disk *d, uint64_t most);
/* Put `state` in place of the record's, give its blocks back, forget it. False: it stays, because that could not
 * be written, or, with unless_changed, because another process has changed its state. */
bool evict_one(struct disk *d, struct disk_entry *entry, enum record_state state,
               bool unless_changed);
/* Change the state of a record that stays. */
bool evict_restate(struct disk *d, struct disk_entry *entry, enum record_state state);
/* Append the notices of what was removed. */
void evict_tell(struct disk *d);

/* ---- disk_run.c ---- */

/* Our name as a run, which lives until disk_close(); 0 when it cannot be made. */
uint64_t run_name(struct disk *d);
bool run_is_alive(struct disk *d, uint64_t name);
void run_end(struct disk *d);
/* Remove what killed runs have left of themselves. */
void run_sweep(struct disk *d);

#endif

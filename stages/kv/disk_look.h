/* stages/kv/disk_look.h - a folder of KV pages as people look at it and tidy it up: `quire kv`.
 *
 * Not:    nothing of this is used by a run.
 * Thread: as disk.h.
 */
#ifndef QUIRE_KV_DISK_LOOK_H
#define QUIRE_KV_DISK_LOOK_H

#include "stages/kv/disk.h"

struct disk_item {
    struct record_info info;
    uint64_t bytes;              /* of the body */
    uint32_t written, last_used; /* seconds since 1970; last_used 0: not since it was written */
    int n_uses;                  /* of the last three that count (lru_k.h) */
    bool pinned;
    bool abandoned; /* ephemeral, and the run that would have used it is dead */
};

/* False ends the visit. */
typedef bool disk_visit_fn(void *ctx, const struct disk_item *item);

/* Every record, in the order of the files. The visitor may call any function on d. */
void disk_each(struct disk *d, disk_visit_fn *visit, void *ctx);

/* Evict what is worth least until the segments take at most `limit` bytes of blocks. Returns how many went. */
int64_t disk_trim(struct disk *d, uint64_t limit);

/* Does the folder look like one that disk_open() has made? */
bool disk_is_store(const char *folder);

#endif

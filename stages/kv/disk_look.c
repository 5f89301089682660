#include "stages/kv/disk_look.h"

#include "stages/kv/disk_inner.h"

#include "stages/base/file.h"
#include "stages/base/mem.h"
#include "stages/base/sys.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_place(const void *a, const void *b)
{
    const struct disk_entry *x = a, *y = b;
    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* A copy of the index, so that the visitor may change it. */
static struct disk_entry *copy_index(struct disk *d, size_t *n)
{
    *n = 0;
    pthread_mutex_lock(&d->table);
    struct disk_entry *all = mem_alloc((size_t)d->index.live * sizeof(*all));
    for (uint32_t i = 0; all && i < d->index.n_made; i++) {
        const struct disk_entry *entry = index_at(&d->index, i);
        if (entry)
            all[(*n)++] = *entry;
    }
    pthread_mutex_unlock(&d->table);
    if (all)
        qsort(all, *n, sizeof(*all), by_place);
    return all;
}

/* What the file says of the record. False: it is not there any more. */
static bool look(struct disk *d, const struct disk_entry *at, struct disk_item *item)
{
    uint8_t bytes[RECORD_HEAD_MAX];
    struct record_head h;
    struct iovec iov = {bytes, record_head_bytes(at->n_tokens)};
    struct seg *s = segs_get(d, at->segment);
    long n = s ? sys_read_at(s->fd, &iov, 1, at->offset) : -1;
    segs_put(d, s);
    if (n <= 0 || record_get(&h, bytes, (size_t)n) == 0 || !record_is_live(h.state) ||
        memcmp(h.info.key, at->key, HASH_BYTES) != 0)
        return false;
    *item = (struct disk_item){.info = h.info,
                               .bytes = h.body_bytes,
                               .written = h.written,
                               .pinned = h.state == RECORD_PINNED};
    pthread_mutex_lock(&d->table);
    const struct use *u = uses_find(&d->uses, uses_key(h.info.key));
    while (u && item->n_uses < USES_KEPT && u->times[item->n_uses])
        item->n_uses++;
    item->last_used = u ? u->times[0] : 0;
    item->abandoned = h.state == RECORD_EPHEMERAL && !run_is_alive(d, h.owner);
    pthread_mutex_unlock(&d->table);
    return true;
}

void disk_each(struct disk *d, disk_visit_fn *visit, void *ctx)
{
    size_t n;
    struct disk_item item;
    struct disk_entry *all = copy_index(d, &n);
    for (size_t i = 0; i < n; i++)
        if (look(d, &all[i], &item) && !visit(ctx, &item))
            break;
    free(all);
}

int64_t disk_trim(struct disk *d, uint64_t limit)
{
    int64_t evicted = 0;
    pthread_mutex_lock(&d->writer);
    if (disk_lock(d)) {
        evicted = d->st.evicted;
        evict_to(d, limit);
        evicted = d->st.evicted - evicted;
        disk_unlock(d);
    }
    pthread_mutex_unlock(&d->writer);
    return evicted;
}

bool disk_is_store(const char *folder)
{
    char *lock = file_join(folder, "lock"), *first = file_join(folder, "00000000.seg");
    bool is = access(lock, F_OK) == 0 || access(first, F_OK) == 0;
    free(lock);
    free(first);
    return is;
}

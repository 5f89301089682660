/* Reading a record: where the index says it is may be something else by now, because other processes remove
 * records, unlink segments, and people delete folders. Only a record that the file still calls live, and whose
 * bytes are not what was written, is corrupt; all else is a miss.
 */
#include "stages/kv/disk_inner.h"

#include "stages/base/clock.h"
#include "stages/base/sys.h"

#include <errno.h>
#include <string.h>

/* The state in the file after the body was found wrong: it may have been removed while we read. */
static bool still_live(const struct seg *s, const struct disk_entry *at)
{
    uint8_t state;
    struct iovec iov = {&state, 1};
    return sys_read_at(s->fd, &iov, 1, at->offset + RECORD_STATE_AT) == 1 &&
           record_is_live((enum record_state)state);
}

enum read_verdict disk_read_at(const struct seg *s, const struct disk_entry *at,
                               struct record_info *info, uint8_t *body)
{
    uint8_t bytes[RECORD_HEAD_MAX];
    struct record_head h;
    size_t head_bytes = record_head_bytes(at->n_tokens);
    struct iovec iov[] = {{bytes, head_bytes}, {body, at->body_bytes}};
    long n = sys_read_at(s->fd, iov, (int)ARRAY_LEN(iov), at->offset);
    if (n < 0)
        return READ_FAILED;
    if ((size_t)n < head_bytes || record_get(&h, bytes, head_bytes) != head_bytes)
        return READ_SPOILT;
    if (memcmp(h.info.key, at->key, HASH_BYTES) != 0 || h.body_bytes != at->body_bytes ||
        h.state == RECORD_REMOVED || h.state == RECORD_BAD)
        return READ_GONE;
    if (!record_is_live(h.state))
        return READ_SPOILT;
    if ((size_t)n != head_bytes + at->body_bytes ||
        record_hash(body, at->body_bytes) != h.body_hash)
        return still_live(s, at) ? READ_SPOILT : READ_GONE;
    *info = h.info;
    return READ_OK;
}

/* The record at this place is not to be found again. */
static void give_up(struct disk *d, const struct disk_entry *at, enum read_verdict v)
{
    pthread_mutex_lock(&d->writer);
    bool corrupt = v == READ_SPOILT, locked = corrupt && disk_lock(d);
    struct disk_entry *entry = index_find(&d->index, at->key);
    if (entry && (entry->segment != at->segment || entry->offset != at->offset))
        entry = NULL; /* another record of the key came meanwhile */
    if (entry && locked) {
        evict_one(d, entry, RECORD_BAD, false);
    } else if (entry) {
        pthread_mutex_lock(&d->table);
        struct seg *s = segs_find(d, at->segment);
        if (s && v == READ_FAILED)
            s->doubtful = true;
        segs_forget(d, entry);
        pthread_mutex_unlock(&d->table);
    }
    if (locked)
        disk_unlock(d);
    pthread_mutex_unlock(&d->writer);
    pthread_mutex_lock(&d->table);
    d->st.corrupt += corrupt;
    pthread_mutex_unlock(&d->table);
}

static bool find(struct disk *d, const uint8_t *key, struct disk_entry *at)
{
    pthread_mutex_lock(&d->table);
    const struct disk_entry *entry = index_find(&d->index, key);
    if (entry)
        *at = *entry;
    pthread_mutex_unlock(&d->table);
    return entry != NULL;
}

int disk_read(struct disk *d, const uint8_t key[HASH_BYTES], const int32_t *tokens,
              int n_tokens, struct record_info *info, uint8_t *body, size_t cap, size_t *n,
              struct err *e)
{
    struct disk_entry at;
    int64_t start = clock_us();
    char name[HASH_HEX];
    if (!find(d, key, &at))
        return 0;
    hash_hex(at.key, name);
    if (at.body_bytes > cap) {
        give_up(d, &at, READ_SPOILT);
        return err_set(e, REACH_DOC, ERR_CORRUPT, "KV page %.16s: %u bytes, at most %zu fit",
                       name, (unsigned)at.body_bytes, cap);
    }
    struct seg *s = segs_get(d, at.segment);
    enum read_verdict v = s                                   ? disk_read_at(s, &at, info, body)
                          : errno == ENOENT || errno == ELOOP ? READ_GONE
                                                              : READ_FAILED;
    int why = errno;
    segs_put(d, s);
    if (v != READ_OK)
        give_up(d, &at, v);
    if (v == READ_FAILED)
        return err_set(e, REACH_DOC, ERR_IO, "cannot read KV page %.16s in \"%s\": %s", name,
                       d->folder, strerror(why));
    if (v == READ_SPOILT)
        return err_set(e, REACH_DOC, ERR_CORRUPT,
                       "KV page %.16s in \"%s\" is damaged: it will be computed again", name,
                       d->folder);
    if (v == READ_GONE ||
        (tokens && (n_tokens != info->n_tokens ||
                    memcmp(tokens, info->tokens, (size_t)n_tokens * sizeof(*tokens)) != 0)))
        return 0;
    *n = at.body_bytes;
    pthread_mutex_lock(&d->table);
    d->st.read++;
    d->st.read_bytes += at.body_bytes;
    d->st.read_us += clock_us() - start;
    pthread_mutex_unlock(&d->table);
    return 1;
}

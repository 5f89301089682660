/* stages/kv/disk.h - KV pages in a folder: segment files, an index of them, and a cap that holds.
 *
 * What:   a map from key to record. Records are appended to segment files under the folder's lock; what
 *         disk_sync() has returned for outlives the machine. docs/kv-store.md has every byte.
 * Not:    decodes no page (codec.h), knows no pool: a record's body is bytes with a checksum.
 * Rules:  1. Nothing read is trusted: heads and bodies are checksummed, keys and token ids compared. What
 *            fails is quarantined, counted, and never found again.
 *         2. After a failed write (no space, I/O error, read-only folder) the store stops writing, says so
 *            once, and goes on reading.
 *         3. Several processes share a folder. Deleting it, at any time, costs only the pages.
 *         4. The blocks that the folder occupies never exceed the limit.
 * Thread: all functions may be called from any thread. Look-ups never wait for files; reads of records
 *         go on side by side.
 */
#ifndef QUIRE_KV_DISK_H
#define QUIRE_KV_DISK_H

#include "stages/base/hash.h"
#include "stages/kv/codec.h"

enum record_kind {
    RECORD_PAGE, /* a full page */
    RECORD_TAIL, /* the end of a prompt: fewer than PAGE_TOKENS positions, maybe none, and the next-token logits */
};

/* What a record says of itself, beside its body. */
struct record_info {
    enum record_kind kind;
    enum codec_kind codec;
    uint8_t key[HASH_BYTES],
        parent[HASH_BYTES];      /* parent: key of the page before, or the context */
    uint8_t context[HASH_BYTES]; /* stages/kv/prefix.h */
    int32_t tokens[PAGE_TOKENS]; /* ids of its positions: [n_tokens] */
    int n_tokens;
    int n_logits;       /* floats after the page's bytes, in the body; 0: none */
    uint64_t page_hash; /* of the decoded page and the logits: disk_page_hash() */
    bool ephemeral;     /* spilled by a run that will use it; not meant for the next one */
};

struct disk_options {
    const char *folder;
    uint64_t limit; /* bytes of blocks; 0: none */
    uint64_t
        segment_bytes; /* a segment is closed at this size; 0: 256 MiB, or limit/16 if that is less */
    bool read_only;
    int cut_key_bits; /* tests only: keys are compared by this many bits, to force collisions; 0: all */
};

struct disk_stats {
    int64_t records, bytes;   /* live, indexed; bytes of head and body */
    int64_t segments, blocks; /* files; bytes of blocks they occupy */
    int64_t written, written_bytes, read, read_bytes;
    int64_t corrupt, evicted;
    int64_t already_there; /* writes of a key that had a record */
    int64_t full;          /* writes for which no room could be made */
    int64_t write_us, read_us;
    bool writing; /* false once a write has failed */
};

struct disk;

/* Opens or makes the folder and reads the index from the segments (heads only). A folder that cannot be made or
 * read is -ERR_IO (reach JOB). One that cannot be written is opened, and read. */
int disk_open(struct disk **out, const struct disk_options *o, struct err *e) MUST_CHECK;
/* Makes durable what is not yet, saves the history of uses, closes. NULL is fine. */
void disk_close(struct disk *d);

/* Is there a record of this key? No I/O. */
bool disk_has(struct disk *d, const uint8_t key[HASH_BYTES]);

/* The record of key into *info and body[0, cap). Returns 1 when it was read and its checksum holds, *n bytes;
 * 0 when there is none (any more), or its tokens are not tokens[0, n_tokens): a miss. -ERR_CORRUPT (reach DOC):
 * it was there and is quarantined now. -ERR_IO: could not be read. tokens NULL: not compared.
 * The caller compares info->parent and info->context with its own: the key's hash covers them, but where keys
 * collide they, too, tell one page from another. */
int disk_read(struct disk *d, const uint8_t key[HASH_BYTES], const int32_t *tokens,
              int n_tokens, struct record_info *info, uint8_t *body, size_t cap, size_t *n,
              struct err *e) MUST_CHECK;
/* The caller found that the decoded page is not page_hash: quarantine the record. */
void disk_condemn(struct disk *d, const uint8_t key[HASH_BYTES]);

/* Append a record. 0: stored; 1: a record of this key is there already (an ephemeral one is kept from now on if
 * this one is not ephemeral); 2: there is no room for it, or nothing is written any more (disk_stats.writing).
 * Makes room first by evicting what is worth least (lru_k.h). Not durable before disk_sync(). */
int disk_write(struct disk *d, const struct record_info *info, const uint8_t *body, size_t n);
/* fdatasync what was written since the last call; then look-ups of other opens find it after a crash, too. */
void disk_sync(struct disk *d);
/* Take in what other processes have appended or removed. Cheap when nothing changed. */
void disk_refresh(struct disk *d);
/* Forget a record and give its blocks back, unless another process has pinned it, or has asked to keep what was
 * ephemeral. */
void disk_remove(struct disk *d, const uint8_t key[HASH_BYTES]);
/* The same, if it is ephemeral still. */
void disk_drop_ephemeral(struct disk *d, const uint8_t key[HASH_BYTES]);
/* An ephemeral record is meant for the next run from now on. */
void disk_keep(struct disk *d, const uint8_t key[HASH_BYTES]);
/* A use, for the history that eviction goes by; it outlives the process. Also for keys without a record: the
 * history is how a second night knows what the first one saw (disk_was_used). */
void disk_touch(struct disk *d, const uint8_t key[HASH_BYTES]);
bool disk_was_used(struct disk *d, const uint8_t key[HASH_BYTES]); /* by an earlier process */
/* A pinned record is never evicted, by any process. A key without a record cannot be pinned. */
void disk_pin(struct disk *d, const uint8_t key[HASH_BYTES], bool pinned);

void disk_get_stats(struct disk *d, struct disk_stats *out);

/* Checksum of a decoded page and its logits: XXH3-64 of both, in this order. */
uint64_t disk_page_hash(const void *page, size_t page_bytes, const float *logits, int n_logits);

#endif

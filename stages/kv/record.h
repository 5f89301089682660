/* stages/kv/record.h - the bytes of a record's head, of a notice, and of a segment's head.
 *
 * What:   bytes in, struct out, and back; docs/kv-store.md has the table.
 * Not:    no file, no memory of its own; a record's body is not looked at.
 * Rules:  1. A head is taken only whole and with its checksum right. The state is the one byte outside of the
 *            checksum, because it is rewritten in place; its values differ in four bits from each other.
 *         2. Records begin at multiples of RECORD_ALIGN, and so do their bodies.
 */
#ifndef QUIRE_KV_RECORD_H
#define QUIRE_KV_RECORD_H

#include "stages/kv/disk.h"

enum record_state {
    RECORD_KEPT = 0x0f,
    RECORD_EPHEMERAL = 0x33, /* its writer will use it, nobody else is meant to */
    RECORD_PINNED = 0x55,
    RECORD_REMOVED = 0x96,
    RECORD_BAD = 0xa5, /* quarantined */
};

enum {
    RECORD_ALIGN = 64,
    RECORD_FIXED = 152, /* bytes before the token ids */
    RECORD_HEAD_MAX = (RECORD_FIXED + 4 * PAGE_TOKENS + 63) & ~63,
    RECORD_STATE_AT = 5, /* where the state is */
    RECORD_BODY_MAX = 1 << 30,
    NOTICE_BYTES = 64,
    SEGMENT_HEAD_BYTES = 64,
};

struct record_head {
    struct record_info info; /* info.ephemeral follows from state */
    enum record_state state; /* what the byte says; it may be none of the enum */
    uint32_t body_bytes;
    uint64_t body_hash; /* XXH3-64 of the body as stored */
    uint64_t owner;     /* of an ephemeral record: the run that wrote it (owner.h); else 0 */
    uint32_t written;   /* seconds since 1970 */
};

/* "The record of key at this place is gone", for the other processes. */
struct record_notice {
    uint8_t key[HASH_BYTES];
    uint32_t segment;
    uint64_t offset;
};

bool record_is_live(enum record_state s);

/* Bytes of a head with n_tokens ids; of a whole record, padded. */
size_t record_head_bytes(int n_tokens);
uint64_t record_bytes(int n_tokens, uint32_t body_bytes);

/* Write the head into out[record_head_bytes()]; returns that size. The ids and sizes must be in range. */
size_t record_put(const struct record_head *h, uint8_t *out);
/* Read a head from in[0, n). Returns its bytes, or 0 when there is none. */
size_t record_get(struct record_head *h, const uint8_t *in, size_t n);

void notice_put(const struct record_notice *t, uint8_t out[NOTICE_BYTES]);
bool notice_get(struct record_notice *t, const uint8_t in[NOTICE_BYTES]);

void segment_head_put(uint8_t out[SEGMENT_HEAD_BYTES]);
/* True for a segment that this version reads and writes. */
bool segment_head_ok(const uint8_t in[SEGMENT_HEAD_BYTES]);

uint64_t record_hash(const void *data, size_t n); /* XXH3-64 */

#endif

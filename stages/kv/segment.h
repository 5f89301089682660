/* stages/kv/segment.h - a walk over the records of a segment, heads only.
 *
 * What:   the whole records and notices of a byte sequence that a callback reads. What is not one is skipped,
 *         RECORD_ALIGN bytes at a time, until one follows: damage costs the records it hits and no other.
 * Not:    opens no file, reads no body.
 * Rules:  1. A record counts when its head is right and its body ends inside the size: everyone who walks the
 *            same bytes finds the same records, and `end` is behind the last of them.
 */
#ifndef QUIRE_KV_SEGMENT_H
#define QUIRE_KV_SEGMENT_H

#include "stages/kv/record.h"

enum { SEGMENT_WINDOW = 64 << 10 };

/* Up to n bytes at offset into to; returns how many; fewer at the end, 0 when it cannot be read. */
typedef size_t segment_read_fn(void *ctx, uint64_t offset, uint8_t *to, size_t n);

struct segment_walk {
    segment_read_fn *read;
    void *ctx;
    uint64_t at, size;  /* the next byte to look at, and where they end: set before the walk */
    uint64_t end;       /* behind the last record or notice; at first = at */
    int64_t gaps;       /* stretches before end that are neither */
    bool failed;        /* the walk ended because reading did */
    uint64_t window_at; /* what window holds */
    size_t window_bytes;
    bool dense; /* records are small: read more at a time */
    uint8_t window[SEGMENT_WINDOW];
};

struct segment_item {
    uint64_t offset;
    bool is_notice;
    struct record_head head;
    struct record_notice notice;
};

/* Walk [from, size). The walk is large: allocate it. */
void segment_walk_init(struct segment_walk *w, segment_read_fn *read, void *ctx, uint64_t from,
                       uint64_t size);
/* The next record or notice; false at the end. */
bool segment_next(struct segment_walk *w, struct segment_item *out);

#endif

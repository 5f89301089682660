/* stages/kv/trace.h - what happens to KV pages, in a ring of events and as USDT probes.
 *
 * What:   kv_trace() fires the probe quire:kv_<op> and appends an event to a ring, in memory and in a file:
 *         a killed process leaves its last events. `quire kv trace` prints it.
 * Not:    reads no ring: trace_read.h does, and has the bytes of the file.
 * Rules:  1. Writers never wait: each takes the next number, and with it a slot; the oldest event is lost.
 *         2. An event carries its number and a checksum, so that a reader sees a slot that is half written.
 *         3. The file has all its blocks from the start: a full disk is an error of kv_ring_open(), not a
 *            signal later on.
 * Thread: kv_trace() from any thread, without a lock.
 */
#ifndef QUIRE_KV_TRACE_H
#define QUIRE_KV_TRACE_H

#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define KV_RING_FILE "events.ring" /* its name in the folder of the store */

enum kv_op {
    KV_ALLOC,     /* a page of the pool was handed out */
    KV_FREE,      /* ... and given back without being kept */
    KV_REF,       /* one more owner */
    KV_UNREF,     /* one owner fewer */
    KV_HIT,       /* a look-up found it; tier says where */
    KV_MISS,      /* a look-up did not: it is computed */
    KV_SPILL,     /* written to disk; bytes as stored */
    KV_LOAD,      /* read from disk; bytes as stored */
    KV_EVICT,     /* given up in that tier */
    KV_CORRUPT,   /* a record failed its check */
    KV_RECOMPUTE, /* computed again after it was given up */
    KV_OP_COUNT
};
enum kv_tier { KV_RAM, KV_DISK, KV_TIER_COUNT };

struct kv_ring;

/* A ring of n events (rounded up to a power of two) in a new file, or in memory alone for path NULL. A file of
 * that name is replaced; who maps the old one keeps it.
 * -ERR_IO (reach DOC) when the file cannot be made, -ERR_LIMIT for n that is no size. */
int kv_ring_open(struct kv_ring **out, const char *path, int n, struct err *e) MUST_CHECK;
void kv_ring_close(struct kv_ring *r); /* NULL is fine */

/* page: number in the pool, or -1; key: the first 8 bytes of the page's key as a number, or 0.
 * r NULL: only the probe fires. */
void kv_trace(struct kv_ring *r, enum kv_op op, enum kv_tier tier, int page, uint64_t key,
              uint64_t bytes);

/* The file's bytes as they are now, [*n], for a look at a ring in memory. Valid until kv_ring_close(). */
const void *kv_ring_bytes(const struct kv_ring *r, size_t *n);

const char *kv_op_name(enum kv_op op); /* "alloc"; NULL past the end */
const char *kv_tier_name(enum kv_tier tier);

#endif

/* stages/kv/trace_read.h - the events in the bytes of a ring file.
 *
 * What:   the layout of the file, and a reader of it. All numbers are little-endian.
 *
 *     offset  bytes  header
 *          0      8  "quireKVR"
 *          8      4  version, 1
 *         12      4  bytes of a slot, 40
 *         16      8  slots, a power of two from 2 to 2^24
 *         24      8  number of the next event = events written so far
 *         32      8  wall clock when the ring was made, in microseconds since 1970; event times count from it
 *         40      4  process id
 *         44     20  0
 *         64         slots
 *
 *     offset  bytes  slot; event i stands in slot i mod slots
 *          0      8  i + 1; 0 while it is being written
 *          8      8  time, microseconds
 *         16      8  key of the page, its first 8 bytes, or 0
 *         24      8  bytes in the lower 48 bits, operation in the 8 above, tier in the uppermost 8
 *         32      4  page, or -1
 *         36      4  checksum of the words before: trace_check()
 *
 * Rules:  a slot whose number or checksum is not what it must be is not an event; it is counted.
 * Thread: pure.
 */
#ifndef QUIRE_KV_TRACE_READ_H
#define QUIRE_KV_TRACE_READ_H

#include "stages/kv/trace.h"

#include <stddef.h>

enum {
    TRACE_VERSION = 1,
    TRACE_HEADER_BYTES = 64,
    TRACE_SLOT_BYTES = 40,
    TRACE_MAX_SLOTS = 1 << 24,
    TRACE_BYTES_BITS = 48
};
#define TRACE_MAGIC "quireKVR"

struct trace_event {
    uint64_t number, time_us, key, bytes;
    int32_t page;
    enum kv_op op;
    enum kv_tier tier;
};

struct trace_ring {
    uint64_t
        written; /* events since the ring was made; all but the last ones are overwritten */
    uint64_t slots;
    uint64_t
        unreadable; /* slots that must hold an event and do not: half written, or damaged */
    int64_t wall_us;
    uint32_t pid;
    struct trace_event *events; /* [n_events], oldest first; heap */
    size_t n_events;
};

/* -ERR_FORMAT (reach DOC) when data[0, n) is no ring, -ERR_NOMEM. */
int trace_read(struct trace_ring *out, const uint8_t *data, size_t n, struct err *e) MUST_CHECK;
void trace_ring_release(struct trace_ring *r); /* safe on a zeroed struct */

/* Of the first four words of a slot and its page. */
uint32_t trace_check(const uint64_t words[4], uint32_t page);

#endif

/* A writer may be at work on the ring, or may have been killed in the middle of a slot; the bytes may also have
 * been made to mislead. So the header's sizes must agree with the length of the file, and each slot that the
 * count of events says is in use must prove itself. */
#include "stages/kv/trace_read.h"

#include "stages/base/le.h"
#include "stages/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint32_t trace_check(const uint64_t words[4], uint32_t page)
{
    uint64_t h = page;
    for (int i = 0; i < 4; i++) {
        h = (h ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

static bool read_slot(struct trace_event *out, const uint8_t *slot, uint64_t number)
{
    uint64_t words[4];
    for (int i = 0; i < 4; i++)
        words[i] = le64_get(slot + 8 * i);
    uint32_t page = le32_get(slot + 32);
    unsigned op = words[3] >> TRACE_BYTES_BITS & 0xff;
    unsigned tier = (unsigned)(words[3] >> (TRACE_BYTES_BITS + 8));
    if (words[0] != number + 1 || le32_get(slot + 36) != trace_check(words, page) ||
        op >= KV_OP_COUNT || tier >= KV_TIER_COUNT)
        return false;
    *out = (struct trace_event){.number = number,
                                .time_us = words[1],
                                .key = words[2],
                                .bytes = words[3] & ((UINT64_C(1) << TRACE_BYTES_BITS) - 1),
                                .page = (int32_t)page,
                                .op = (enum kv_op)op,
                                .tier = (enum kv_tier)tier};
    return true;
}

static int read_header(struct trace_ring *r, const uint8_t *data, size_t n, struct err *e)
{
    if (n < TRACE_HEADER_BYTES || memcmp(data, TRACE_MAGIC, 8) != 0)
        return err_set(e, REACH_DOC, ERR_FORMAT, "not a ring of KV events");
    if (le32_get(data + 8) != TRACE_VERSION)
        return err_set(e, REACH_DOC, ERR_FORMAT,
                       "ring of KV events: version %" PRIu32 ", this program reads %d",
                       le32_get(data + 8), TRACE_VERSION);
    r->slots = le64_get(data + 16);
    r->written = le64_get(data + 24);
    r->wall_us = (int64_t)le64_get(data + 32);
    r->pid = le32_get(data + 40);
    if (le32_get(data + 12) != TRACE_SLOT_BYTES || r->slots < 2 || r->slots > TRACE_MAX_SLOTS ||
        (r->slots & (r->slots - 1)) != 0)
        return err_set(e, REACH_DOC, ERR_FORMAT, "ring of KV events: impossible sizes");
    if (n != TRACE_HEADER_BYTES + (size_t)r->slots * TRACE_SLOT_BYTES)
        return err_set(e, REACH_DOC, ERR_FORMAT,
                       "ring of KV events: %zu bytes, expected %zu: cut off?", n,
                       TRACE_HEADER_BYTES + (size_t)r->slots * TRACE_SLOT_BYTES);
    return 0;
}

int trace_read(struct trace_ring *out, const uint8_t *data, size_t n, struct err *e)
{
    struct trace_ring r = {0};
    int rc = read_header(&r, data, n, e);
    if (rc)
        return rc;
    uint64_t in_use = r.written < r.slots ? r.written : r.slots;
    r.events = mem_alloc((size_t)in_use * sizeof(*r.events));
    if (!r.events)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %" PRIu64 " events", in_use);
    for (uint64_t i = r.written - in_use; i != r.written; i++) {
        const uint8_t *slot =
            data + TRACE_HEADER_BYTES + (size_t)(i & (r.slots - 1)) * TRACE_SLOT_BYTES;
        if (read_slot(&r.events[r.n_events], slot, i))
            r.n_events++;
        else
            r.unreadable++;
    }
    *out = r;
    return 0;
}

void trace_ring_release(struct trace_ring *r)
{
    free(r->events);
    *r = (struct trace_ring){0};
}

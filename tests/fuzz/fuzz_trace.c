/* Any bytes: trace_read() either refuses them, or gives at most one event per slot, in the order of their
 * numbers, each with a known operation and tier; events and unreadable slots together are the slots in use. */
#include "stages/kv/trace_read.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_ring r = {0};
    struct err e = {0};
    if (trace_read(&r, data, size, &e) != 0) {
        must(e.code == ERR_FORMAT && e.reach == REACH_DOC && e.msg[0] && !r.events);
        return 0;
    }
    must(r.n_events + r.unreadable == (r.written < r.slots ? r.written : r.slots));
    for (size_t i = 0; i < r.n_events; i++) {
        const struct trace_event *v = &r.events[i];
        must(kv_op_name(v->op) && kv_tier_name(v->tier));
        must(r.written - v->number - 1 < r.slots);
        must(v->bytes >> TRACE_BYTES_BITS == 0);
        must(i == 0 || v->number > v[-1].number);
    }
    trace_ring_release(&r);
    return 0;
}

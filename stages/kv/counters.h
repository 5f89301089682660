/* stages/kv/counters.h - what the KV store did in a run, in numbers.
 *
 * Not:    pages in use now: page_pool_stats(), disk_get_stats(). How they are printed: pipeline/kv_report.h.
 * Rules:  1. Each prompt token is looked up once and is then a hit of at most one tier; what no tier had is
 *            computed. So lookup_tokens - hit_tokens[] = tokens that were computed.
 *         2. bytes_raw and bytes_stored are the same pages, in memory and in a segment: their quotient is the
 *            compression that was reached.
 * Thread: all atomic.
 */
#ifndef QUIRE_KV_COUNTERS_H
#define QUIRE_KV_COUNTERS_H

#include "stages/kv/trace.h"

#include <stdatomic.h>

struct kv_counters {
    atomic_llong lookup_tokens;             /* of prompts */
    atomic_llong hit_tokens[KV_TIER_COUNT]; /* of these, found, by where */
    atomic_llong pages_allocated;
    atomic_llong pages_evicted[KV_TIER_COUNT];
    atomic_llong
        pages_recomputed; /* computed again after they were given up or found corrupt */
    atomic_llong pages_spilled, pages_loaded;
    atomic_llong pages_corrupt;           /* records that failed their check */
    atomic_llong bytes_raw, bytes_stored; /* of pages_spilled */
    atomic_llong bytes_loaded;            /* of pages_loaded, in memory */
    atomic_llong spill_us, load_us;       /* encoding and writing; reading and decoding */
    atomic_llong positions_allocated;     /* in all pages of the sequences that ended */
    atomic_llong positions_unused;        /* of these, behind the end of the sequence */
};

#endif

/* stages/stats.h - counters that stages add to and the progress line reads. Thread: all atomic. */
#ifndef QUIRE_STATS_H
#define QUIRE_STATS_H

#include "stages/kv/counters.h"
#include "stages/kv/stability.h"

#include <stdatomic.h>
#include <stdint.h>

struct run_stats {
    atomic_llong docs_found, docs_done, docs_failed; /* ingest, write, write */
    atomic_llong docs_kept;                  /* write: of those done, found in the ledger */
    atomic_llong answers_found;              /* tokenize: in the ledger */
    atomic_llong tokens_found;               /* of answers that an earlier run had begun */
    atomic_llong bytes_read, bytes_planned;  /* of source files; planned 0 while unknown */
    atomic_llong chunks_made, requests_made; /* chunk, tokenize */
    atomic_llong requests_done;              /* decode */
    atomic_llong prompt_tokens, prefill_tokens, reused_tokens, generated_tokens;
    atomic_llong prefill_us, decode_us,
        decode_steps; /* passes that give each sequence a token */
    atomic_llong kv_pages_used, kv_pages_peak;
    struct kv_counters kv;
    struct stability stability;
    atomic_llong doc_tokens; /* tokens of document text seen by chunk */
};

#endif

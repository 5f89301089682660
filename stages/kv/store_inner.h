/* stages/kv/store_inner.h - what the files of the store share. For store*.c only. */
#ifndef QUIRE_KV_STORE_INNER_H
#define QUIRE_KV_STORE_INNER_H

#include "stages/kv/mover.h"
#include "stages/kv/store.h"

struct page_note {
    int depth;     /* of the page in its prompts: page 0, 1, ... */
    bool spilling; /* a spill of it is under way and holds a reference */
    bool keep;     /* which is for the next run, too, whatever it began as */
};

struct store {
    struct store_options o;
    struct page_pool *pool;
    struct prefix_index *index;
    struct mover *mover;     /* NULL without a disk */
    struct codec *codec;     /* of this thread: rounds or shrinks pages and encodes tails */
    bool shrinks;            /* full pages of prompts become small */
    bool rounds;             /* they are changed, but stay as large */
    uint8_t *encoded;        /* [codec_bound()] */
    struct page_note *notes; /* [pages of the pool] */
    struct store_prompt *held;
    uint32_t next_ordinal;
    size_t page_bytes;
    int n_encoded; /* spills under way that own their bytes */
    int wanted;    /* pages that the last admission asked for in vain; 0: it was granted */
};

/* ---- store.c ---- */

/* How many held prompts have this page, and which comes first (NEXT_USE_NEVER: none). depth: as in page_note; the
 * tail of a prompt comes behind its full pages. */
int store_planned(const struct store *s, const uint8_t key[HASH_BYTES], int depth,
                  uint32_t *next);
bool store_on_disk(const struct store *s, const uint8_t key[HASH_BYTES]);
/* PAGE_NONE: it is not. */
page_id store_in_memory(const struct store *s, const struct store_prompt *p, int page);
static inline uint64_t store_key_number(const uint8_t key[HASH_BYTES])
{
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)key[i] << 8 * i;
    return n;
}
static inline int store_tail_tokens(const struct store_prompt *p)
{
    return p->keys.n_tokens % PAGE_TOKENS;
}

/* Bytes in memory of what a record holds: of a tail, its positions and logits alone. */
static inline int64_t store_raw_bytes(const struct store *s, const struct record_info *info)
{
    size_t page = codec_page_bytes(&s->o.shape, info->codec);
    return (int64_t)(page / PAGE_TOKENS) * info->n_tokens +
           info->n_logits * (int64_t)sizeof(float);
}

/* ---- store_keep.c: what goes to disk ---- */

/* A page of p was found, or is now computed: it counts for the measure of stability, and is stored if worth it. */
void store_consider(struct store *s, struct store_prompt *p, int page, bool found);
/* The job of a spill or load is done. */
void store_spilled(struct store *s, const struct move_job *j);

/* ---- store_admit.c ---- */

void store_loaded(struct store *s, const struct move_job *j);

#endif

/* stages/kv/store.h - the KV pages of all prompts: computed once, in memory or on disk, never wrong.
 *
 * What:   ties together the pool (page.h), the index of what it holds (prefix.h), the folder (disk.h) and the
 *         threads that move pages between the two (mover.h). A page has one name in every tier, its key.
 * Not:    computes no KV, knows no transformer. Which request comes first is decided by who holds them.
 *
 *     store_hold -> store_admit -> [loads] -> store_ready -> compute -> store_computed ... -> store_prompt_done
 *                      ^                          |                                               |
 *                      |    a load failed         |                  store_park <-----------------+
 *                      +--------------------------+---------------------- again                   v
 *                                                                                            store_drop
 *
 * Rules:  1. Nothing that is dropped, evicted or corrupt changes a result: what is missing is computed again, and
 *            gives the same bytes.
 *         2. A prompt is admitted with all pages that it and its answer will ever need, or not at all.
 *         3. Prompts that are held tell the future: their pages are given up last, farthest first.
 *         4. A page goes to disk when it is worth keeping for another run (stability.h), or when a prompt that waits
 *            for decode was parked to make room.
 *         5. A failing disk costs only time.
 * Thread: the owner of the pool calls everything.
 * Source: vLLM's automatic prefix caching and SGLang's HiCache for the tiers; planning by the known requests after
 *         BatchLLM (Zheng et al. 2024).
 */
#ifndef QUIRE_KV_STORE_H
#define QUIRE_KV_STORE_H

#include "stages/kv/codec.h"
#include "stages/kv/counters.h"
#include "stages/kv/disk.h"
#include "stages/kv/prefix.h"
#include "stages/kv/stability.h"

struct store;

enum keep { KEEP_AUTO, KEEP_ALL, KEEP_NONE };

enum {
    STORE_ENCODED = 8, /* pages that are encoded and wait to be written, at most */
    /* Buffers of the size of a page and its logits: those, one being made, and two in each thread and here. */
    STORE_BUFFERS = STORE_ENCODED + 1 + 8,
};

struct store_options {
    struct page_pool *pool;
    struct kv_shape shape;
    uint8_t context[HASH_BYTES]; /* model_context_digest() */
    bool reuse;            /* false: every prompt is computed in full, and nothing is kept */
    enum codec_kind codec; /* how pages are stored; a lossy one rounds every full page, CODEC_Q8
                              makes it small, which the pool must know: page_pool_use_small() */
    enum keep keep;        /* what is stored for the next run */
    int n_vocab;           /* length of logits */
    struct disk *disk;     /* NULL: memory only */
    struct kv_counters *counters;
    struct stability *stability; /* the measure; its expectation is set */
    struct kv_ring *ring;        /* may be NULL */
    int cut_key_bits;            /* tests only: prefix_index_new() */
};

/* The parts of o must outlive it. -ERR_NOMEM, reach JOB. */
int store_open(struct store **out, const struct store_options *o, struct err *e) MUST_CHECK;
/* Waits for loads and for spills, or drops the spills that have not begun; collects everything. Returns whether
 * there was anything to wait for. */
bool store_settle(struct store *s, bool finish_spills);
void store_close(struct store *s); /* NULL is fine; settles without finishing */
/* wake is called from other threads when a load is done or a page became free. NULL: none. */
void store_on_done(struct store *s, void (*wake)(void *ctx), void *ctx);

enum page_flags {
    PAGE_EPHEMERAL = 1, /* spilled only because the prompt was parked */
    PAGE_LOADED = 2,    /* came from disk at the last admission */
    PAGE_MISSED = 4,    /* its record could not be loaded: it is not tried again */
};

/* A prompt that the store knows of. For callers: found, table, logits and has_logits to read, tokens and
 * n_used to set. */
struct store_prompt {
    struct store *store;
    struct store_prompt *next, *prev; /* held prompts */
    const int32_t *tokens; /* the caller's; must stay, or be set anew, until store_drop() */
    struct prefix_keys keys;
    enum prefix_class cls; /* of its pages behind n_shared */
    int n_shared;          /* tokens that all prompts of the job begin with */
    uint32_t ordinal;      /* in order of store_hold(): when its pages are used next */

    struct block_table *table; /* between admission and park or drop */
    int found;                 /* tokens whose KV was there when it became ready */
    float *logits;             /* [n_vocab] next-token logits; heap, a caller may take them */
    bool has_logits;           /* they were stored: nothing needs to be computed */

    int n_sealed;         /* full pages that are sealed */
    int n_loading, n_bad; /* loads under way, and those that failed */
    int n_from_disk;      /* tokens found that are loaded */
    int n_used;           /* positions of prompt and answer that were written in the end */
    int lost;   /* positions up to here were there once: computing them is computing again */
    bool asked; /* it was tried to admit it */
    bool looked_up; /* counted already */
    uint8_t *flags; /* [n_full + 1], of its pages: enum page_flags */
};

/* Tell of a prompt that will come. -ERR_NOMEM, reach DOC. */
int store_hold(struct store *s, struct store_prompt **out, const int32_t *tokens, int n,
               int n_shared, enum prefix_class cls, struct err *e) MUST_CHECK;
/* It is over: everything is released. NULL is fine. */
void store_drop(struct store_prompt *p);

/* Take the pages for n_total tokens (prompt and answer), and begin to load what is on disk. want_logits: also
 * the logits, for which nothing needs to be computed then. 1: admitted; 0: too few pages are free now. */
int store_admit(struct store *s, struct store_prompt *p, int n_total, bool want_logits);
/* 1: ready, p->found says where computing begins (n_tokens only with has_logits, or after a park); 0: loading;
 * -1: something could not be loaded; it is not admitted any more: admit again. */
int store_ready(struct store *s, struct store_prompt *p);

/* Positions up to n of the prompt are computed: full pages become visible to other prompts. */
void store_computed(struct store *s, struct store_prompt *p, int n);
/* The whole prompt is: its end and logits[n_vocab] are stored if they are worth it. */
void store_prompt_done(struct store *s, struct store_prompt *p, const float *logits);
/* Give up the pages of a prompt that is done and waits for decode; admit it again later. */
void store_park(struct store *s, struct store_prompt *p, const float *logits);

/* Take in what the other threads have done. Called by the functions above where it matters. */
void store_poll(struct store *s);
/* Units of the pool (page.h) that could be had now: free or idle. */
int store_room(const struct store *s);
/* Units that a prompt and its answer take, n_total tokens together. */
int store_units(const struct store *s, int n_tokens, int n_total);
bool store_can_park(const struct store *s); /* there is a disk that takes pages */
/* Units that the last store_admit() lacks still, when all spills under way are done; 0: it was admitted, or can be. */
int store_short(const struct store *s);
bool store_is_lossy(const struct store *s); /* then a pass may not go past the end of a page */

#endif

/* tests/unit/store_rig.h - a KV store whose pages hold a sum of all tokens so far, so that a wrong page is seen, also
 * one of the right tokens behind others. */
#ifndef QUIRE_TEST_STORE_RIG_H
#define QUIRE_TEST_STORE_RIG_H

#include "stages/kv/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RIG_VOCAB = 16, RIG_SLICE = 256 };

struct store_rig {
    struct page_pool *pool;
    struct disk *disk;
    struct store *store;
    struct kv_counters counters;
    struct stability stability;
    /* Set before store_rig_open(), or zeroed. */
    struct store_options options;
    struct disk_options disk_options;
    int n_shared;
    bool own; /* prompts are nobody's text but their own */
};

/* folder NULL: memory only. */
static inline void store_rig_open(struct store_rig *g, int n_pages, const char *folder)
{
    struct err e = {0};
    assert_int_equal(page_pool_new(&g->pool, n_pages, 1, RIG_SLICE, &e), 0);
    g->disk = NULL;
    if (folder) {
        g->disk_options.folder = folder;
        if (disk_open(&g->disk, &g->disk_options, &e) != 0)
            fail_msg("%s", e.msg);
    }
    g->options.pool = g->pool;
    g->options.shape = (struct kv_shape){.n_layer = 1, .slice_bytes = RIG_SLICE};
    g->options.reuse = true;
    g->options.n_vocab = RIG_VOCAB;
    g->options.disk = g->disk;
    g->options.counters = &g->counters;
    g->options.stability = &g->stability;
    if (store_open(&g->store, &g->options, &e) != 0)
        fail_msg("%s", e.msg);
}

/* refs: pages that prompts still hold. */
static inline void store_rig_audit(const struct store_rig *g, int64_t refs)
{
    struct err e = {0};
    if (page_pool_audit(g->pool, refs, &e) != 0)
        fail_msg("%s", e.msg);
}

/* All spills are done. */
static inline void rig_settle(struct store_rig *g)
{
    store_settle(g->store, true);
}

static inline void store_rig_close(struct store_rig *g)
{
    rig_settle(g);
    store_rig_audit(g, 0);
    store_close(g->store);
    disk_close(g->disk);
    page_pool_free(g->pool);
}

/* What a model would write at a position, after what it wrote at the one before (0: none). */
static inline int32_t rig_value(int32_t before, int32_t token)
{
    uint32_t x = ((uint32_t)before ^ (uint32_t)token * 2654435761u) * 2246822519u;
    return (int32_t)(x ^ x >> 15);
}

/* The value of position i. */
static inline int32_t *rig_position(struct store_rig *g, const struct store_prompt *p, int i)
{
    int32_t *slice = page_slice(g->pool, p->table->pages[i / PAGE_TOKENS], 0);
    return &slice[i % PAGE_TOKENS];
}

static inline void rig_logits(const int32_t *tokens, int n, float out[RIG_VOCAB])
{
    int32_t value = 0;
    for (int i = 0; i < n; i++)
        value = rig_value(value, tokens[i]);
    for (int i = 0; i < RIG_VOCAB; i++)
        out[i] = (float)(value % 1000 + i);
}

static inline struct store_prompt *rig_hold(struct store_rig *g, const int32_t *tokens, int n)
{
    struct err e = {0};
    struct store_prompt *p;
    enum prefix_class cls = g->own ? PREFIX_OWN : PREFIX_DOCUMENT;
    assert_int_equal(store_hold(g->store, &p, tokens, n, g->n_shared, cls, &e), 0);
    return p;
}

/* Admit, when pages that are on their way to disk are free, and wait for the loads. */
static inline void rig_admit(struct store_rig *g, struct store_prompt *p, bool want_logits)
{
    int ready = -1, tries = 0;
    while (ready != 1) {
        if (ready < 0) {
            assert_true(tries++ <= p->keys.n_full + 2); /* each page can fail once */
            if (store_admit(g->store, p, p->keys.n_tokens, want_logits) == 0) {
                rig_settle(g);
                assert_int_equal(store_admit(g->store, p, p->keys.n_tokens, want_logits), 1);
            }
        }
        ready = store_ready(g->store, p);
    }
}

/* Compute what is missing; every position that was found must hold its value. */
static inline void rig_compute(struct store_rig *g, struct store_prompt *p)
{
    float logits[RIG_VOCAB];
    int32_t value = 0;
    for (int i = 0; i < p->keys.n_tokens; i++) {
        value = rig_value(value, p->tokens[i]);
        if (i >= p->found)
            *rig_position(g, p, i) = value;
        assert_int_equal(*rig_position(g, p, i), value);
    }
    rig_logits(p->tokens, p->keys.n_tokens, logits);
    if (p->has_logits && p->found == p->keys.n_tokens) {
        assert_memory_equal(p->logits, logits, sizeof(logits));
        return;
    }
    int found = p->found;
    store_computed(g->store, p, p->keys.n_tokens);
    store_prompt_done(g->store, p, logits);
    p->found = found; /* for the test to look at */
}

/* The whole way of a prompt. */
static inline struct store_prompt *rig_fill(struct store_rig *g, const int32_t *tokens, int n)
{
    struct store_prompt *p = rig_hold(g, tokens, n);
    rig_admit(g, p, true);
    rig_compute(g, p);
    return p;
}

static inline int rig_found(struct store_rig *g, const int32_t *tokens, int n)
{
    struct store_prompt *p = rig_fill(g, tokens, n);
    int found = p->found;
    store_drop(p);
    return found;
}

#endif

/* The life of prompts in the store; store_admit.c finds and loads their pages, store_keep.c stores them. */
#include "stages/kv/store.h"

#include "stages/kv/store_inner.h"

#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool store_on_disk(const struct store *s, const uint8_t key[HASH_BYTES])
{
    return s->o.disk && disk_has(s->o.disk, key);
}

page_id store_in_memory(const struct store *s, const struct store_prompt *p, int page)
{
    int n = page == p->keys.n_full ? store_tail_tokens(p) : PAGE_TOKENS;
    return prefix_find(s->index, prefix_key(&p->keys, page), prefix_parent(&p->keys, page),
                       p->tokens + (size_t)page * PAGE_TOKENS, n);
}

static bool has_page(const struct store_prompt *p, const uint8_t key[HASH_BYTES], int depth)
{
    return depth <= p->keys.n_full && memcmp(prefix_key(&p->keys, depth), key, HASH_BYTES) == 0;
}

int store_planned(const struct store *s, const uint8_t key[HASH_BYTES], int depth,
                  uint32_t *next)
{
    int n = 0;
    *next = NEXT_USE_NEVER;
    for (const struct store_prompt *p = s->held; p; p = p->next) {
        if (!has_page(p, key, depth))
            continue;
        n++;
        if (p->ordinal < *next)
            *next = p->ordinal;
    }
    return n;
}

/* ---- hooks of the pool ---- */

static void on_evict(void *ctx, page_id id)
{
    struct store *s = ctx;
    prefix_forget(s->index, id);
    atomic_fetch_add(&s->o.counters->pages_evicted[KV_RAM], 1);
}

static uint32_t on_idle(void *ctx, page_id id, bool *on_disk)
{
    const struct store *s = ctx;
    const uint8_t *key = prefix_key_of(s->index, id);
    uint32_t next;
    *on_disk = store_on_disk(s, key);
    store_planned(s, key, s->notes[id].depth, &next);
    return next;
}

/* Prompts came or went: what was planned for the pages of p has changed. */
static void replan(struct store *s, const struct store_prompt *p)
{
    for (int i = 0; s->o.reuse && i <= p->keys.n_full; i++) {
        page_id id = store_in_memory(s, p, i);
        if (id != PAGE_NONE)
            page_replan(s->pool, id);
    }
}

/* ---- opening and closing ---- */

int store_open(struct store **out, const struct store_options *o, struct err *e)
{
    struct page_stats pool;
    struct store *s = mem_need(sizeof(*s));
    page_pool_stats(o->pool, &pool);
    s->o = *o;
    s->pool = o->pool;
    s->page_bytes = page_pool_page_bytes(o->pool);
    s->shrinks = codec_shrinks(&o->shape, o->codec);
    s->rounds = codec_is_lossy(o->codec) && !s->shrinks;
    assert(s->shrinks == (page_full_units(o->pool) > 1));
    s->index = prefix_index_new(o->pool, o->cut_key_bits);
    s->notes = mem_need((size_t)pool.total * sizeof(*s->notes));
    s->codec = codec_new(&o->shape);
    s->encoded = mem_alloc(codec_bound(&o->shape));
    int rc =
        s->encoded ? 0 : err_set(e, REACH_JOB, ERR_NOMEM, "KV store: no memory for a page");
    if (!rc && o->disk)
        rc = mover_open(&s->mover, o->disk, &o->shape, o->n_vocab, e);
    if (rc) {
        store_close(s);
        return rc;
    }
    page_pool_hook(o->pool,
                   &(struct page_hooks){
                       .evict = on_evict, .next_use = on_idle, .ctx = s, .ring = o->ring});
    *out = s;
    return 0;
}

void store_poll(struct store *s)
{
    struct move_job *next;
    for (struct move_job *j = s->mover ? mover_collect(s->mover) : NULL; j; j = next) {
        next = j->next;
        if (j->move == MOVE_SPILL)
            store_spilled(s, j);
        else
            store_loaded(s, j);
        move_job_free(j);
    }
}

static bool wait_for(struct store *s, enum move move)
{
    bool any = mover_pending(s->mover, move) > 0;
    while (mover_pending(s->mover, move) > 0) {
        mover_wait(s->mover);
        store_poll(s);
    }
    return any;
}

bool store_settle(struct store *s, bool finish_spills)
{
    struct page_stats pool;
    page_pool_stats(s->pool, &pool);
    atomic_store(&s->o.counters->pages_allocated, pool.allocs);
    if (!s->mover)
        return false;
    if (!finish_spills)
        mover_drop_spills(s->mover);
    bool loads = wait_for(s, MOVE_LOAD);
    return wait_for(s, MOVE_SPILL) || loads;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    assert(!s->held);
    if (s->mover)
        store_settle(s, false);
    mover_close(s->mover);
    page_pool_hook(s->pool, NULL);
    prefix_index_free(s->index);
    codec_free(s->codec);
    free(s->encoded);
    free(s->notes);
    free(s);
}

void store_on_done(struct store *s, void (*wake)(void *ctx), void *ctx)
{
    if (s->mover)
        mover_on_done(s->mover, wake, ctx);
}

/* ---- prompts ---- */

int store_hold(struct store *s, struct store_prompt **out, const int32_t *tokens, int n,
               int n_shared, enum prefix_class cls, struct err *e)
{
    struct store_prompt *p = mem_need(sizeof(*p));
    *out = NULL;
    int rc = prefix_keys_make(&p->keys, s->o.context, tokens, n, e);
    if (!rc && !(p->flags = mem_alloc((size_t)p->keys.n_full + 1)))
        rc = err_set(e, REACH_DOC, ERR_NOMEM, "no memory for the pages of %d tokens", n);
    if (rc) {
        prefix_keys_release(&p->keys);
        free(p);
        return rc;
    }
    p->store = s;
    p->tokens = tokens;
    p->n_used = n;
    p->n_shared = n_shared;
    p->cls = cls;
    p->ordinal = s->next_ordinal++;
    p->next = s->held;
    if (p->next)
        p->next->prev = p;
    s->held = p;
    replan(s, p);
    *out = p;
    return 0;
}

static void count_positions(const struct store *s, const struct store_prompt *p)
{
    int64_t all = p->table ? (int64_t)p->table->n_pages * PAGE_TOKENS : 0;
    if (all == 0)
        return;
    atomic_fetch_add(&s->o.counters->positions_allocated, all);
    atomic_fetch_add(&s->o.counters->positions_unused, all - p->n_used);
}

/* What was spilled for p alone is of no use to anyone; pages that others have are theirs to remove. */
static void remove_ephemeral(struct store *s, const struct store_prompt *p)
{
    for (int i = 0; i <= p->keys.n_full; i++) {
        if (!(p->flags[i] & PAGE_EPHEMERAL))
            continue;
        struct store_prompt *other = s->held;
        while (other && !has_page(other, prefix_key(&p->keys, i), i))
            other = other->next;
        page_id id = store_in_memory(s, p, i);
        if (other)
            other->flags[i] |= PAGE_EPHEMERAL;
        else if (id == PAGE_NONE || !s->notes[id].spilling) /* or store_spilled() decides */
            disk_drop_ephemeral(s->o.disk, prefix_key(&p->keys, i));
    }
}

void store_drop(struct store_prompt *p)
{
    if (!p)
        return;
    struct store *s = p->store;
    while (p->n_loading > 0) {
        mover_wait(s->mover);
        store_poll(s);
    }
    if (p->prev)
        p->prev->next = p->next;
    else
        s->held = p->next;
    if (p->next)
        p->next->prev = p->prev;
    count_positions(s, p);
    block_table_free(p->table);
    remove_ephemeral(s, p);
    replan(s, p);
    prefix_keys_release(&p->keys);
    free(p->flags);
    free(p->logits);
    free(p);
}

int store_room(const struct store *s)
{
    struct page_stats pool;
    page_pool_stats(s->pool, &pool);
    return pool.total - pool.used;
}

bool store_can_park(const struct store *s)
{
    struct disk_stats d;
    if (!s->mover || !s->o.reuse || s->rounds) /* what was rounded cannot be encoded again */
        return false;
    disk_get_stats(s->o.disk, &d);
    return d.writing;
}

int store_short(const struct store *s)
{
    int soon = store_room(s) + (s->mover ? mover_pending(s->mover, MOVE_SPILL) : 0);
    return s->wanted > soon ? s->wanted - soon : 0;
}

bool store_is_lossy(const struct store *s)
{
    return codec_is_lossy(s->o.codec);
}

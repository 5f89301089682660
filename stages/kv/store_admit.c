/* From a prompt to its pages: those in memory get a reference, those on disk a load, the rest is empty. */
#include "stages/kv/store_inner.h"

#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const int32_t *tokens_of(const struct store_prompt *p, int page)
{
    return p->tokens + (size_t)page * PAGE_TOKENS;
}

/* Is there a record to load? One that failed is not tried again: it may be there still, of other tokens. */
static bool can_load(const struct store *s, const struct store_prompt *p, int page)
{
    return !(p->flags[page] & PAGE_MISSED) && store_on_disk(s, prefix_key(&p->keys, page));
}

/* Full pages at the beginning that are somewhere. */
static int pages_known(const struct store *s, const struct store_prompt *p)
{
    int i = 0;
    while (s->o.reuse && i < p->keys.n_full &&
           (store_in_memory(s, p, i) != PAGE_NONE || can_load(s, p, i)))
        i++;
    return i;
}

/* Of the first `most` pages, those in use, so that they need no new page. */
static int pages_shared(const struct store *s, const struct store_prompt *p, int most)
{
    int n = 0;
    for (int i = 0; i < most; i++) {
        page_id id = store_in_memory(s, p, i);
        n += id != PAGE_NONE && page_refs(s->pool, id) > 0;
    }
    return n;
}

/* ---- loads ---- */

static struct move_job *load_job(const struct store *s, struct store_prompt *p, int page)
{
    bool tail = page == p->keys.n_full;
    struct move_job *j = move_job_new(MOVE_LOAD);
    j->info.kind = tail ? RECORD_TAIL : RECORD_PAGE;
    j->info.codec = tail && codec_is_lossy(s->o.codec) ? CODEC_SPLIT : s->o.codec;
    j->info.n_tokens = tail ? store_tail_tokens(p) : PAGE_TOKENS;
    memcpy(j->info.key, prefix_key(&p->keys, page), HASH_BYTES);
    memcpy(j->info.parent, prefix_parent(&p->keys, page), HASH_BYTES);
    memcpy(j->info.context, s->o.context, HASH_BYTES);
    memcpy(j->info.tokens, tokens_of(p, page), (size_t)j->info.n_tokens * sizeof(int32_t));
    j->owner = p;
    j->index = page;
    return j;
}

static void submit_load(struct store *s, struct store_prompt *p, struct move_job *j, page_id id)
{
    j->page = id;
    j->bytes = id == PAGE_NONE ? NULL : page_data(s->pool, id);
    p->n_loading++;
    p->n_from_disk += j->info.n_tokens;
    p->flags[j->index] |= PAGE_LOADED;
    mover_submit(s->mover, j);
}

static bool load_page(struct store *s, struct store_prompt *p, int page)
{
    page_id id = page_alloc_small(s->pool);
    if (id == PAGE_NONE)
        return false;
    if (s->shrinks)
        page_shrink(s->pool, id); /* it is stored as it is in memory */
    block_table_append(p->table, id);
    submit_load(s, p, load_job(s, p, page), id);
    return true;
}

static bool has_room_for_logits(const struct store *s, struct store_prompt *p)
{
    if (!p->logits)
        p->logits = mem_alloc((size_t)s->o.n_vocab * sizeof(float));
    return p->logits != NULL;
}

/* The end of the prompt and its logits. */
static bool load_tail(struct store *s, struct store_prompt *p)
{
    page_id id = PAGE_NONE;
    if (!has_room_for_logits(s, p))
        return false;
    if (store_tail_tokens(p) > 0 && (id = page_alloc(s->pool)) == PAGE_NONE)
        return false;
    if (id != PAGE_NONE)
        block_table_append(p->table, id);
    struct move_job *j = load_job(s, p, p->keys.n_full);
    j->info.n_logits = s->o.n_vocab;
    j->logits = p->logits;
    submit_load(s, p, j, id);
    return true;
}

void store_loaded(struct store *s, const struct move_job *j)
{
    struct store_prompt *p = j->owner;
    struct kv_counters *c = s->o.counters;
    uint64_t key = store_key_number(j->info.key);
    p->n_loading--;
    if (j->result != 1) {
        p->n_bad++;
        p->flags[j->index] |= PAGE_MISSED;
        int end = j->index * PAGE_TOKENS + j->info.n_tokens;
        if (end > p->lost)
            p->lost = end;
        if (j->result < 0) {
            atomic_fetch_add(&c->pages_corrupt, 1);
            kv_trace(s->o.ring, KV_CORRUPT, KV_DISK, j->page, key, 0);
        }
        return;
    }
    atomic_fetch_add(&c->pages_loaded, 1);
    atomic_fetch_add(&c->bytes_loaded, store_raw_bytes(s, &j->info));
    atomic_fetch_add(&c->load_us, j->us);
    kv_trace(s->o.ring, KV_LOAD, KV_DISK, j->page, key, (uint64_t)j->stored_bytes);
    if (j->info.kind == RECORD_TAIL) {
        p->has_logits = true; /* its page stays OPEN: the answer goes on in it */
        return;
    }
    s->notes[j->page].depth = j->index;
    prefix_publish(s->index, j->page, j->info.key, j->info.parent, j->info.tokens, PAGE_TOKENS,
                   !codec_is_lossy(s->o.codec));
}

/* ---- admission ---- */

/* A reference to each of the first pages that is in memory, or none any more: or a load might evict it. */
static void pin_known(struct store *s, const struct store_prompt *p, int from, int most,
                      bool pin)
{
    for (int i = from; i < most; i++) {
        page_id id = store_in_memory(s, p, i);
        if (id != PAGE_NONE && pin)
            page_ref(s->pool, id);
        else if (id != PAGE_NONE)
            page_unref(s->pool, id);
    }
}

/* The pages in front, with references or loads. Returns how many. */
static int take_known(struct store *s, struct store_prompt *p, int most)
{
    int i = 0;
    pin_known(s, p, 0, most, true);
    for (; i < most; i++) {
        page_id id = store_in_memory(s, p, i);
        if (id != PAGE_NONE) {
            block_table_append(p->table, id);
        } else if (!can_load(s, p, i) || !load_page(s, p, i)) {
            break;
        }
    }
    pin_known(s, p, i, most, false);
    return i;
}

/* A private copy of the tail, which waits in memory. */
static bool copy_tail(struct store *s, struct store_prompt *p, page_id tail)
{
    page_ref(s->pool, tail); /* or page_alloc() might evict it */
    page_id id = page_alloc(s->pool);
    if (id != PAGE_NONE) {
        page_copy(s->pool, id, tail);
        block_table_append(p->table, id);
    }
    page_unref(s->pool, tail);
    return id != PAGE_NONE;
}

/* What is known behind the full pages, of which all that the prompt has were found. True: nothing is left to compute. */
static bool take_tail(struct store *s, struct store_prompt *p, bool want_logits)
{
    page_id tail = store_in_memory(s, p, p->keys.n_full);
    if (!want_logits && store_tail_tokens(p) == 0)
        return true;
    if (!want_logits && tail != PAGE_NONE)
        return copy_tail(s, p, tail);
    return can_load(s, p, p->keys.n_full) && load_tail(s, p);
}

/* As much as is known, in tokens. `most` full pages at most. */
static int take(struct store *s, struct store_prompt *p, int most, bool tail_known,
                bool want_logits)
{
    int pages = take_known(s, p, most), done = pages * PAGE_TOKENS;
    if (tail_known && pages == p->keys.n_full && take_tail(s, p, want_logits))
        return p->keys.n_tokens;
    if (done == p->keys.n_tokens) { /* its end was evicted this moment: once more, without */
        p->flags[p->keys.n_full] |= PAGE_MISSED;
        p->n_bad++;
        return done;
    }
    /* One token at least is computed, for the logits. */
    return done + prefix_copy(s->index, prefix_parent(&p->keys, pages), tokens_of(p, pages),
                              p->keys.n_tokens - 1 - done, p->table);
}

/* How many of a prompt's first pages are counted as small from the beginning. While one of them is filled it is as large
 * as others, in the room of a page behind them that nobody has written yet (page_alloc_small). Where no page is behind
 * them, the last one is counted in full until it is small. */
static int pages_small(const struct store *s, int n_tokens, int n_total)
{
    int full = n_tokens / PAGE_TOKENS;
    return !s->shrinks ? 0 : full > 0 && n_total <= full * PAGE_TOKENS ? full - 1 : full;
}

int store_units(const struct store *s, int n_tokens, int n_total)
{
    int pages = (int)(((int64_t)n_total + PAGE_TOKENS - 1) / PAGE_TOKENS);
    int small = pages_small(s, n_tokens, n_total);
    return small + (pages - small) * page_full_units(s->pool);
}

/* Is the end of the prompt there, too, and memory for its logits? */
static bool knows_tail(const struct store *s, struct store_prompt *p, bool want_logits)
{
    int tail = p->keys.n_full;
    if (!want_logits && (store_tail_tokens(p) == 0 || store_in_memory(s, p, tail) != PAGE_NONE))
        return true;
    return can_load(s, p, tail) && has_room_for_logits(s, p);
}

int store_admit(struct store *s, struct store_prompt *p, int n_total, bool want_logits)
{
    store_poll(s);
    if (s->o.disk && !p->asked) {
        disk_refresh(s->o.disk); /* another run may have stored it since */
        p->asked = true;
    }
    assert(!p->table && p->n_loading == 0 && n_total >= p->keys.n_tokens);
    int known = pages_known(s, p);
    bool tail_known = s->o.reuse && known == p->keys.n_full && knows_tail(s, p, want_logits);
    if (!tail_known && known > 0 && known * PAGE_TOKENS == p->keys.n_tokens)
        known--; /* something is to be computed, for the logits */
    s->wanted = store_units(s, p->keys.n_tokens, n_total) - pages_shared(s, p, known);
    if (s->wanted > store_room(s))
        return 0;
    s->wanted = 0;
    for (int i = 0; i <= p->keys.n_full; i++)
        p->flags[i] &= (uint8_t)~PAGE_LOADED;
    p->table = block_table_new(s->pool);
    p->n_bad = p->n_from_disk = p->found = 0;
    p->has_logits = false;
    if (s->o.reuse)
        p->found = take(s, p, known, tail_known, want_logits);
    p->n_sealed = p->found / PAGE_TOKENS;
    struct err none = {0};
    /* A donor is pinned while it is copied, which can cost the last page: then once more. */
    int small = pages_small(s, p->keys.n_tokens, n_total) * PAGE_TOKENS;
    if (block_table_reserve_small(p->table, small, &none) != 0 ||
        block_table_reserve(p->table, n_total, &none) != 0)
        p->n_bad++;
    return 1;
}

static void count_lookup(struct store *s, struct store_prompt *p)
{
    struct kv_counters *c = s->o.counters;
    if (p->looked_up)
        return;
    p->looked_up = true;
    atomic_fetch_add(&c->lookup_tokens, p->keys.n_tokens);
    atomic_fetch_add(&c->hit_tokens[KV_DISK], p->n_from_disk);
    atomic_fetch_add(&c->hit_tokens[KV_RAM], p->found - p->n_from_disk);
    for (int i = 0; i < p->n_sealed; i++)
        store_consider(s, p, i, true);
    if (p->has_logits)
        disk_touch(s->o.disk, prefix_key(&p->keys, p->keys.n_full));
}

int store_ready(struct store *s, struct store_prompt *p)
{
    store_poll(s);
    assert(p->table);
    if (p->n_loading > 0)
        return 0;
    if (p->n_bad > 0) {
        block_table_free(p->table);
        p->table = NULL;
        return -1;
    }
    count_lookup(s, p);
    return 1;
}

/* From memory to disk: what the next run will want, and what has to make room for a while. */
#include "stages/kv/store_inner.h"

#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct move_job *spill_job(const struct store *s, const uint8_t key[HASH_BYTES],
                                  const uint8_t parent[HASH_BYTES], const int32_t *tokens,
                                  int n)
{
    struct move_job *j = move_job_new(MOVE_SPILL);
    j->info.kind = n < PAGE_TOKENS ? RECORD_TAIL : RECORD_PAGE;
    j->info.codec = n < PAGE_TOKENS && codec_is_lossy(s->o.codec) ? CODEC_SPLIT : s->o.codec;
    j->info.n_tokens = n;
    memcpy(j->info.key, key, HASH_BYTES);
    memcpy(j->info.parent, parent, HASH_BYTES);
    memcpy(j->info.context, s->o.context, HASH_BYTES);
    memcpy(j->info.tokens, tokens, (size_t)n * sizeof(*tokens));
    return j;
}

/* A sealed page, encoded by the thread that writes it. logits: owned by the job, or NULL. */
static bool spill_page(struct store *s, page_id id, bool ephemeral, float *logits)
{
    int n;
    const int32_t *tokens = prefix_tokens_of(s->index, id, &n);
    const uint8_t *key = prefix_key_of(s->index, id);
    if (s->notes[id].spilling || store_on_disk(s, key)) {
        free(logits);
        s->notes[id].keep |= !ephemeral;
        if (!ephemeral)
            disk_keep(s->o.disk, key);
        return false;
    }
    struct move_job *j = spill_job(s, key, prefix_parent_of(s->index, id), tokens, n);
    j->info.ephemeral = ephemeral;
    j->info.n_logits = logits ? s->o.n_vocab : 0;
    j->logits = logits;
    j->page = id;
    j->bytes = page_data(s->pool, id);
    page_ref(s->pool, id);
    s->notes[id].spilling = true;
    s->notes[id].keep = !ephemeral;
    mover_submit(s->mover, j);
    return true;
}

/* Bytes that are encoded already. They are memory of their own: a disk that is slower than the model makes it wait. */
static void spill_encoded(struct store *s, struct move_job *j, uint8_t *body, size_t n)
{
    j->body = body;
    j->n_body = n;
    while (s->n_encoded >= STORE_ENCODED) {
        mover_wait(s->mover);
        store_poll(s);
    }
    s->n_encoded++;
    mover_submit(s->mover, j);
}

/* Much can happen while a page is spilled. */
static void settle_ephemeral(struct store *s, const struct move_job *j)
{
    uint32_t next;
    if (s->notes[j->page].keep)
        disk_keep(s->o.disk, j->info.key);
    else if (store_planned(s, j->info.key, s->notes[j->page].depth, &next) == 0)
        disk_drop_ephemeral(s->o.disk, j->info.key);
}

void store_spilled(struct store *s, const struct move_job *j)
{
    struct kv_counters *c = s->o.counters;
    s->n_encoded -= j->body != NULL;
    if (j->page != PAGE_NONE) {
        s->notes[j->page].spilling = false;
        if (j->info.ephemeral)
            settle_ephemeral(s, j);
        page_unref(s->pool, j->page);
    }
    if (j->result != 1)
        return;
    atomic_fetch_add(&c->pages_spilled, 1);
    atomic_fetch_add(&c->bytes_raw, store_raw_bytes(s, &j->info));
    atomic_fetch_add(&c->bytes_stored, j->stored_bytes);
    atomic_fetch_add(&c->spill_us, j->us);
    kv_trace(s->o.ring, KV_SPILL, KV_DISK, j->page, store_key_number(j->info.key),
             (uint64_t)j->stored_bytes);
}

/* ---- is it worth it? ---- */

static enum prefix_class class_of(const struct store_prompt *p, int page)
{
    int n_document = p->cls == PREFIX_DOCUMENT ? p->keys.n_tokens : p->n_shared;
    return stability_class((page + 1) * PAGE_TOKENS, p->n_shared, n_document);
}

/* Enter the look-up of a page into the measure, and say whether the page is to be stored. */
static bool is_worth(struct store *s, struct store_prompt *p, int page, bool found)
{
    const uint8_t *key = prefix_key(&p->keys, page);
    uint32_t next;
    bool seen =
        found || store_planned(s, key, page, &next) > 1 || disk_was_used(s->o.disk, key);
    enum prefix_class cls = class_of(p, page);
    bool worth = stability_keeps(s->o.stability, cls, seen);
    stability_count(s->o.stability, cls, seen);
    disk_touch(s->o.disk, key);
    return s->o.keep == KEEP_ALL || (s->o.keep == KEEP_AUTO && worth);
}

void store_consider(struct store *s, struct store_prompt *p, int page, bool found)
{
    page_id id = p->table->pages[page];
    const uint8_t *key = prefix_key(&p->keys, page);
    enum kv_tier tier = p->flags[page] & PAGE_LOADED ? KV_DISK : KV_RAM;
    kv_trace(s->o.ring, found ? KV_HIT : KV_MISS, tier, id, store_key_number(key),
             s->page_bytes);
    if (!s->o.disk || !s->o.reuse)
        return;
    /* A rounded page was encoded when it was computed, and cannot be again. */
    if (is_worth(s, p, page, found) && !s->rounds)
        spill_page(s, id, false, NULL);
}

/* ---- pages that are computed ---- */

/* Replace a page by what decoding gives back. The encoded bytes are stored now, or never. */
static void round_page(struct store *s, struct store_prompt *p, int page, page_id id)
{
    void *bytes = page_data(s->pool, id);
    size_t n = codec_encode(s->codec, s->o.codec, bytes, PAGE_TOKENS, s->encoded);
    struct err e = {0};
    int rc = codec_decode(s->codec, s->o.codec, s->encoded, n, bytes, PAGE_TOKENS, &e);
    assert(rc == 0);
    (void)rc;
    if (!s->o.disk || !s->o.reuse || !is_worth(s, p, page, false) ||
        store_on_disk(s, prefix_key(&p->keys, page)))
        return;
    uint8_t *body = mem_alloc(n);
    if (!body)
        return; /* not stored: computed again, some day */
    memcpy(body, s->encoded, n);
    struct move_job *j = spill_job(s, prefix_key(&p->keys, page), prefix_parent(&p->keys, page),
                                   p->tokens + (size_t)page * PAGE_TOKENS, PAGE_TOKENS);
    j->info.page_hash = disk_page_hash(bytes, s->page_bytes, NULL, 0);
    spill_encoded(s, j, body, n);
}

static void shrink_page(struct store *s, page_id id)
{
    codec_shrink(s->codec, page_data(s->pool, id));
    page_shrink(s->pool, id);
}

void store_computed(struct store *s, struct store_prompt *p, int n)
{
    for (; (p->n_sealed + 1) * PAGE_TOKENS <= n; p->n_sealed++) {
        int i = p->n_sealed;
        page_id id = p->table->pages[i];
        if (page_is_sealed(s->pool, id))
            continue;
        if (s->rounds)
            round_page(s, p, i, id);
        else if (s->shrinks)
            shrink_page(s, id);
        if (!s->o.reuse)
            continue;
        s->notes[id].depth = i;
        bool is_new = prefix_publish(
            s->index, id, prefix_key(&p->keys, i), prefix_parent(&p->keys, i),
            p->tokens + (size_t)i * PAGE_TOKENS, PAGE_TOKENS, !codec_is_lossy(s->o.codec));
        if (is_new && !s->rounds)
            store_consider(s, p, i, false);
        if ((i + 1) * PAGE_TOKENS <= p->lost) {
            atomic_fetch_add(&s->o.counters->pages_recomputed, 1);
            kv_trace(s->o.ring, KV_RECOMPUTE, KV_RAM, id,
                     store_key_number(prefix_key(&p->keys, i)), s->page_bytes);
        }
    }
}

static float *copy_logits(const struct store *s, const float *logits)
{
    size_t bytes = (size_t)s->o.n_vocab * sizeof(*logits);
    float *copy = mem_alloc(bytes);
    if (copy)
        memcpy(copy, logits, bytes);
    return copy;
}

/* ---- the end of a prompt ---- */

/* Encoded here: the page goes on to be written, by decode, behind these positions. */
static void spill_tail(struct store *s, struct store_prompt *p, const float *logits)
{
    int full = p->keys.n_full, n = store_tail_tokens(p);
    size_t floats = (size_t)s->o.n_vocab * sizeof(float), len = 0;
    uint8_t *body = mem_alloc(codec_bound(&s->o.shape) + floats);
    void *page = mem_aligned(s->page_bytes);
    struct move_job *j = spill_job(s, prefix_key(&p->keys, full), prefix_parent(&p->keys, full),
                                   p->tokens + (size_t)full * PAGE_TOKENS, n);
    struct err e = {0};
    int rc = body && page ? 0 : -ERR_NOMEM;
    if (!rc && n > 0) {
        len = codec_encode(s->codec, j->info.codec, page_data(s->pool, p->table->pages[full]),
                           n, body);
        rc = codec_decode(s->codec, j->info.codec, body, len, page, n, &e);
    }
    if (rc) { /* no memory: not stored */
        free(body);
        move_job_free(j);
    } else {
        memcpy(body + len, logits, floats);
        j->info.n_logits = s->o.n_vocab;
        j->info.page_hash =
            disk_page_hash(page, n > 0 ? s->page_bytes : 0, logits, s->o.n_vocab);
        spill_encoded(s, j, body, len + floats);
    }
    free(page);
}

void store_prompt_done(struct store *s, struct store_prompt *p, const float *logits)
{
    int full = p->keys.n_full;
    p->found = p->keys.n_tokens;
    /* Its pages were used at one time: or eviction would take the first ones first, and with them all. */
    for (int i = 0; s->o.disk && s->o.reuse && i < full; i++)
        disk_touch(s->o.disk, prefix_key(&p->keys, i));
    if (!s->o.disk || !s->o.reuse || store_on_disk(s, prefix_key(&p->keys, full)))
        return;
    const uint8_t *key = prefix_key(&p->keys, full);
    bool seen = disk_was_used(s->o.disk, key);
    disk_touch(s->o.disk, key);
    /* A whole prompt comes again only when the same job does: no class of pages foretells that. */
    if (s->o.keep == KEEP_ALL || (s->o.keep == KEEP_AUTO && seen))
        spill_tail(s, p, logits);
}

void store_park(struct store *s, struct store_prompt *p, const float *logits)
{
    int full = p->keys.n_full, n = store_tail_tokens(p);
    bool whole = p->found == p->keys.n_tokens; /* or not all that was lost is computed again */
    assert(p->table && p->n_loading == 0 && (!whole || p->n_sealed == full));
    for (int i = 0; i <= full; i++)
        p->flags[i] &= (uint8_t)~PAGE_MISSED;
    if (n > 0 && whole && !page_is_sealed(s->pool, p->table->pages[full])) {
        s->notes[p->table->pages[full]].depth = full;
        prefix_publish(s->index, p->table->pages[full], prefix_key(&p->keys, full),
                       prefix_parent(&p->keys, full), p->tokens + (size_t)full * PAGE_TOKENS, n,
                       !codec_is_lossy(s->o.codec));
    }
    for (int i = 0; i < p->n_sealed; i++)
        if (spill_page(s, p->table->pages[i], true, NULL))
            p->flags[i] |= PAGE_EPHEMERAL;
    float *copy = n > 0 && whole ? copy_logits(s, logits) : NULL;
    if (copy && spill_page(s, p->table->pages[full], true, copy))
        p->flags[full] |= PAGE_EPHEMERAL;
    p->lost = p->keys.n_tokens;
    block_table_free(p->table);
    p->table = NULL;
}

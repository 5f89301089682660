/* A page is encoded layer by layer, with nothing before, between or after: the shape says all. */
#include "stages/kv/codec.h"

#include "stages/base/mem.h"
#include "stages/kv/codec_exact.h"
#include "stages/kv/codec_lossy.h"
#include "stages/kv/codec_policy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct codec {
    struct kv_shape shape;
    struct frames frames;
    struct exact_parts exact;
    struct lossy_parts lossy;
};

static const char *const names[CODEC_COUNT] = {"raw", "split", "q8", "k8v4", "q4", "layered"};

bool codec_is_lossy(enum codec_kind kind)
{
    return kind >= CODEC_Q8 && kind < CODEC_COUNT;
}

const char *codec_name(enum codec_kind kind)
{
    return (unsigned)kind < CODEC_COUNT ? names[kind] : NULL;
}

/* Bytes of a slice that mean something; the rest is padding. */
static size_t used_bytes(const struct kv_shape *s)
{
    return 4 * exact_halves(s, PAGE_TOKENS);
}

struct codec *codec_new(const struct kv_shape *s)
{
    assert(s->n_layer > 0 && s->n_kv_head >= 0 && s->head_dim % 2 == 0);
    assert(used_bytes(s) <= s->slice_bytes);
    struct codec *c = mem_need(sizeof(*c));
    size_t half = exact_halves(s, PAGE_TOKENS), scales = lossy_max_scales(s);
    c->shape = *s;
    c->exact.half = mem_need(half * sizeof(*c->exact.half));
    c->exact.tops = mem_need(2 * exact_halves(s, 1));
    c->lossy.scales = mem_need(scales * sizeof(*c->lossy.scales));
    c->lossy.codes = mem_need(lossy_max_codes(s));
    frames_init(&c->frames, half > scales ? half : scales);
    return c;
}

void codec_free(struct codec *c)
{
    if (!c)
        return;
    frames_release(&c->frames);
    free(c->lossy.scales);
    free(c->lossy.codes);
    free(c->exact.half);
    free(c->exact.tops);
    free(c);
}

size_t codec_bound(const struct kv_shape *s)
{
    if (s->n_kv_head == 0)
        return (size_t)s->n_layer * s->slice_bytes;
    size_t exact = exact_bound(s), lossy = lossy_bound(s);
    return (size_t)s->n_layer * (exact > lossy ? exact : lossy);
}

size_t codec_encode(struct codec *c, enum codec_kind kind, const void *page, int n_tokens,
                    uint8_t *out)
{
    const struct kv_shape *s = &c->shape;
    size_t page_bytes = (size_t)s->n_layer * s->slice_bytes;
    assert(codec_name(kind) && n_tokens >= 0 && n_tokens <= PAGE_TOKENS);
    assert(!codec_is_lossy(kind) || n_tokens == PAGE_TOKENS || s->n_kv_head == 0);
    if (s->n_kv_head == 0) {
        memcpy(out, page, page_bytes);
        return page_bytes;
    }
    uint8_t *end = out;
    for (int i = 0; i < s->n_layer; i++) {
        const void *slice = (const uint8_t *)page + (size_t)i * s->slice_bytes;
        if (codec_is_lossy(kind))
            end = lossy_put(&c->frames, &c->lossy, s, codec_policy(kind, i, s->n_layer), end,
                            slice);
        else
            end =
                exact_put(&c->frames, &c->exact, s, kind == CODEC_SPLIT, end, slice, n_tokens);
    }
    return (size_t)(end - out);
}

int codec_decode(struct codec *c, enum codec_kind kind, const uint8_t *in, size_t n, void *page,
                 int n_tokens, struct err *e)
{
    const struct kv_shape *s = &c->shape;
    size_t page_bytes = (size_t)s->n_layer * s->slice_bytes;
    struct span left = {in, n};
    bool ok = codec_name(kind) && n_tokens >= 0 && n_tokens <= PAGE_TOKENS &&
              (!codec_is_lossy(kind) || n_tokens == PAGE_TOKENS || s->n_kv_head == 0);
    if (ok && s->n_kv_head == 0) {
        const uint8_t *from = span_take(&left, page_bytes);
        ok = from != NULL;
        if (ok)
            memcpy(page, from, page_bytes);
    }
    for (int i = 0; ok && s->n_kv_head && i < s->n_layer; i++) {
        uint8_t *slice = (uint8_t *)page + (size_t)i * s->slice_bytes;
        size_t used = n_tokens == PAGE_TOKENS ? used_bytes(s) : 0;
        memset(slice + used, 0, s->slice_bytes - used);
        if (codec_is_lossy(kind))
            ok = lossy_get(&c->frames, &c->lossy, s, codec_policy(kind, i, s->n_layer), &left,
                           (uint16_t *)(void *)slice);
        else
            ok = exact_get(&c->frames, &c->exact, s, kind == CODEC_SPLIT, &left,
                           (uint16_t *)(void *)slice, n_tokens);
    }
    if (!ok || left.n)
        return err_set(e, REACH_DOC, ERR_CORRUPT,
                       "KV page: these %zu bytes are no %s page of %d tokens", n,
                       codec_name(kind) ? codec_name(kind) : "known", n_tokens);
    return 0;
}

/* A page is encoded layer by layer, with nothing before, between or after: the shape says all. */
#include "stages/kv/codec.h"

#include "kernels/kernels.h"
#include "stages/base/mem.h"
#include "stages/kv/codec_exact.h"
#include "stages/kv/codec_lossy.h"
#include "stages/kv/codec_policy.h"
#include "stages/kv/codec_q8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct codec {
    struct kv_shape shape;
    struct frames frames;
    struct exact_parts exact;
    struct lossy_parts lossy;
    uint8_t *small; /* a slice of CODEC_Q8 */
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

bool codec_shrinks(const struct kv_shape *s, enum codec_kind kind)
{
    return kind == CODEC_Q8 && s->n_kv_head > 0;
}

size_t codec_slice_bytes(const struct kv_shape *s, enum codec_kind kind)
{
    return codec_shrinks(s, kind) ? kern_q8_slice_bytes(s->n_kv_head, s->head_dim)
                                  : s->slice_bytes;
}

size_t codec_page_bytes(const struct kv_shape *s, enum codec_kind kind)
{
    return (size_t)s->n_layer * codec_slice_bytes(s, kind);
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
    c->small = mem_need(codec_slice_bytes(s, CODEC_Q8));
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
    free(c->small);
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

/* Layer by layer; what is written of one is never past where the next is read. */
void codec_shrink(struct codec *c, void *page)
{
    const struct kv_shape *s = &c->shape;
    size_t small = codec_slice_bytes(s, CODEC_Q8);
    assert(codec_shrinks(s, CODEC_Q8) && small <= s->slice_bytes);
    for (int i = 0; i < s->n_layer; i++) {
        const uint8_t *from = (const uint8_t *)page + (size_t)i * s->slice_bytes;
        q8_shrink(c->small, (const uint16_t *)(const void *)from, s);
        memcpy((uint8_t *)page + (size_t)i * small, c->small, small);
    }
}

static uint8_t *layer_put(struct codec *c, enum codec_kind kind, int layer, const void *slice,
                          int n_tokens, uint8_t *out)
{
    const struct kv_shape *s = &c->shape;
    if (codec_shrinks(s, kind))
        return q8_put(&c->frames, &c->lossy, s, out, slice);
    if (codec_is_lossy(kind))
        return lossy_put(&c->frames, &c->lossy, s, codec_policy(kind, layer, s->n_layer), out,
                         slice);
    return exact_put(&c->frames, &c->exact, s, kind == CODEC_SPLIT, out, slice, n_tokens);
}

static bool layer_get(struct codec *c, enum codec_kind kind, int layer, struct span *in,
                      void *slice, int n_tokens)
{
    const struct kv_shape *s = &c->shape;
    if (codec_shrinks(s, kind))
        return q8_get(&c->frames, &c->lossy, s, in, slice);
    size_t used = n_tokens == PAGE_TOKENS ? used_bytes(s) : 0;
    memset((uint8_t *)slice + used, 0, s->slice_bytes - used);
    if (codec_is_lossy(kind))
        return lossy_get(&c->frames, &c->lossy, s, codec_policy(kind, layer, s->n_layer), in,
                         slice);
    return exact_get(&c->frames, &c->exact, s, kind == CODEC_SPLIT, in, slice, n_tokens);
}

size_t codec_encode(struct codec *c, enum codec_kind kind, const void *page, int n_tokens,
                    uint8_t *out)
{
    const struct kv_shape *s = &c->shape;
    size_t slice_bytes = codec_slice_bytes(s, kind), page_bytes = codec_page_bytes(s, kind);
    assert(codec_name(kind) && n_tokens >= 0 && n_tokens <= PAGE_TOKENS);
    assert(!codec_is_lossy(kind) || n_tokens == PAGE_TOKENS || s->n_kv_head == 0);
    if (s->n_kv_head == 0) {
        memcpy(out, page, page_bytes);
        return page_bytes;
    }
    uint8_t *end = out;
    for (int i = 0; i < s->n_layer; i++)
        end = layer_put(c, kind, i, (const uint8_t *)page + (size_t)i * slice_bytes, n_tokens,
                        end);
    return (size_t)(end - out);
}

int codec_decode(struct codec *c, enum codec_kind kind, const uint8_t *in, size_t n, void *page,
                 int n_tokens, struct err *e)
{
    const struct kv_shape *s = &c->shape;
    size_t slice_bytes = codec_slice_bytes(s, kind), page_bytes = codec_page_bytes(s, kind);
    struct span left = {in, n};
    bool ok = codec_name(kind) && n_tokens >= 0 && n_tokens <= PAGE_TOKENS &&
              (!codec_is_lossy(kind) || n_tokens == PAGE_TOKENS || s->n_kv_head == 0);
    if (ok && s->n_kv_head == 0) {
        const uint8_t *from = span_take(&left, page_bytes);
        ok = from != NULL;
        if (ok)
            memcpy(page, from, page_bytes);
    }
    for (int i = 0; ok && s->n_kv_head && i < s->n_layer; i++)
        ok = layer_get(c, kind, i, &left, (uint8_t *)page + (size_t)i * slice_bytes, n_tokens);
    if (!ok || left.n)
        return err_set(e, REACH_DOC, ERR_CORRUPT,
                       "KV page: these %zu bytes are no %s page of %d tokens", n,
                       codec_name(kind) ? codec_name(kind) : "known", n_tokens);
    return 0;
}

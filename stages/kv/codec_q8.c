#include "stages/kv/codec_q8.h"

#include "kernels/cpu/kv_slice.h"
#include "stages/kv/codec_quant.h"

#include <string.h>

enum {
    LANES = 16, /* keys of one channel that lie side by side in a slice of halves */
    V_SCALE_BYTES = PAGE_TOKENS * sizeof(uint16_t)
};

/* Where a head's numbers are in a slice of 8 bits: bytes from its beginning. */
struct places {
    size_t k, v, k_scales, v_scales;
};

static struct places places_of(const struct kv_shape *s, size_t head)
{
    size_t d = (size_t)s->head_dim, n = PAGE_TOKENS * d, at = head * q8_head_bytes(s->head_dim);
    return (struct places){at, at + n, at + 2 * n, at + 2 * n + d * sizeof(uint16_t)};
}

void q8_shrink(uint8_t *to, const uint16_t *from, const struct kv_shape *s)
{
    int d = s->head_dim;
    memset(to, 0, kern_q8_slice_bytes(s->n_kv_head, d));
    for (int i = 0; i < s->n_kv_head; i++) {
        struct places at = places_of(s, (size_t)i);
        uint16_t x[PAGE_TOKENS], *k_scales = (void *)(to + at.k_scales),
                                 *v_scales = (void *)(to + at.v_scales);
        const uint16_t *halves = from + page_head_at(i, d);
        for (int c = 0; c < d; c++) {
            for (int t = 0; t < PAGE_TOKENS; t += LANES)
                memcpy(x + t, halves + page_key_at(t, c, d), LANES * sizeof(*x));
            quant8_put(x, PAGE_TOKENS, &k_scales[c], to + at.k + c * PAGE_TOKENS);
        }
        for (int t = 0; t < PAGE_TOKENS; t++)
            quant8_put(halves + page_value_at(t, 0, d), d, &v_scales[t], to + at.v + t * d);
    }
}

uint8_t *q8_put(struct frames *f, const struct lossy_parts *p, const struct kv_shape *s,
                uint8_t *out, const uint8_t *slice)
{
    size_t d = (size_t)s->head_dim, n = PAGE_TOKENS * d, heads = (size_t)s->n_kv_head;
    uint16_t *v_scales = p->scales + heads * d;
    for (size_t i = 0; i < heads; i++) {
        struct places at = places_of(s, i);
        memcpy(p->scales + i * d, slice + at.k_scales, d * sizeof(uint16_t));
        memcpy(v_scales + i * PAGE_TOKENS, slice + at.v_scales, V_SCALE_BYTES);
        memcpy(p->codes + i * n, slice + at.k, n);
        memcpy(p->codes + (heads + i) * n, slice + at.v, n);
    }
    out = halves_put(f, out, p->scales, heads * (d + PAGE_TOKENS));
    out = frame_put(f, out, p->codes, heads * n);
    return frame_put(f, out, p->codes + heads * n, heads * n);
}

static bool are_scales(const uint16_t *x, size_t n)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        ok &= x[i] < 0x7c00;
    return ok;
}

bool q8_get(struct frames *f, const struct lossy_parts *p, const struct kv_shape *s,
            struct span *in, uint8_t *slice)
{
    size_t d = (size_t)s->head_dim, n = PAGE_TOKENS * d, heads = (size_t)s->n_kv_head;
    size_t n_scales = heads * (d + PAGE_TOKENS);
    if (!halves_get(f, in, p->scales, n_scales) || !are_scales(p->scales, n_scales) ||
        !frame_get(f, in, p->codes, heads * n) ||
        !frame_get(f, in, p->codes + heads * n, heads * n))
        return false;
    memset(slice, 0, kern_q8_slice_bytes(s->n_kv_head, s->head_dim));
    const uint16_t *v_scales = p->scales + heads * d;
    for (size_t i = 0; i < heads; i++) {
        struct places at = places_of(s, i);
        memcpy(slice + at.k_scales, p->scales + i * d, d * sizeof(uint16_t));
        memcpy(slice + at.v_scales, v_scales + i * PAGE_TOKENS, V_SCALE_BYTES);
        memcpy(slice + at.k, p->codes + i * n, n);
        memcpy(slice + at.v, p->codes + (heads + i) * n, n);
    }
    return true;
}

#include "stages/kv/codec_lossy.h"

#include "stages/kv/codec_quant.h"

#include <string.h>

enum {
    LANES = 16,    /* tokens of one channel that lie side by side in K */
    K4_GROUP = 32, /* tokens of a channel that share scale and minimum */
    V4_GROUP = 32, /* channels of a token */
    GROUP_MAX = PAGE_TOKENS
};

static size_t v4_groups(const struct kv_shape *s)
{
    return ((size_t)s->head_dim + V4_GROUP - 1) / V4_GROUP;
}

/* Halves of one head: scales, minima, or both. */
static size_t k_scales(const struct kv_shape *s, struct codec_layer bits)
{
    return (size_t)s->head_dim * (bits.k_bits == 8 ? 1 : 2 * PAGE_TOKENS / K4_GROUP);
}

static size_t v_scales(const struct kv_shape *s, struct codec_layer bits)
{
    size_t groups = bits.v_bits == 8 ? 1 : v4_groups(s);
    return PAGE_TOKENS * groups * (bits.v_bits == 8 || bits.v_zero ? 1 : 2);
}

static size_t n_scales(const struct kv_shape *s, struct codec_layer bits)
{
    return (size_t)s->n_kv_head * (k_scales(s, bits) + v_scales(s, bits));
}

/* Bytes of a plane, all heads. */
static size_t plane_bytes(const struct kv_shape *s, int n_bits)
{
    return (size_t)s->n_kv_head * PAGE_TOKENS * (size_t)s->head_dim * (size_t)n_bits / 8;
}

size_t lossy_max_scales(const struct kv_shape *s)
{
    return n_scales(s, (struct codec_layer){4, 4, 0});
}

size_t lossy_max_codes(const struct kv_shape *s)
{
    return 2 * plane_bytes(s, 8); /* K and V */
}

/* Where a head's K begins in a slice; its V follows. */
static size_t head_at(const struct kv_shape *s, int head)
{
    return (size_t)head * 2 * PAGE_TOKENS * (size_t)s->head_dim;
}

/* Tokens [begin, begin + n) of a channel: they lie in pieces of LANES. */
static void channel_take(uint16_t *x, const uint16_t *k, int head_dim, int c, int begin, int n)
{
    for (int t = begin; t < begin + n; t += LANES, x += LANES)
        memcpy(x, k + ((size_t)(t / LANES) * (size_t)head_dim + (size_t)c) * LANES,
               LANES * sizeof(*x));
}

static void channel_give(uint16_t *k, const uint16_t *x, int head_dim, int c, int begin, int n)
{
    for (int t = begin; t < begin + n; t += LANES, x += LANES)
        memcpy(k + ((size_t)(t / LANES) * (size_t)head_dim + (size_t)c) * LANES, x,
               LANES * sizeof(*x));
}

static void k_put(const uint16_t *k, int head_dim, int n_bits, uint16_t *scales, uint8_t *codes)
{
    uint16_t x[GROUP_MAX];
    for (int c = 0; c < head_dim; c++) {
        if (n_bits == 8) {
            channel_take(x, k, head_dim, c, 0, PAGE_TOKENS);
            quant8_put(x, PAGE_TOKENS, scales++, codes);
            codes += PAGE_TOKENS;
            continue;
        }
        for (int t = 0; t < PAGE_TOKENS; t += K4_GROUP, scales += 2, codes += K4_GROUP / 2) {
            channel_take(x, k, head_dim, c, t, K4_GROUP);
            quant4_put(x, K4_GROUP, scales, codes);
        }
    }
}

static void k_get(uint16_t *k, int head_dim, int n_bits, const uint16_t *scales,
                  const uint8_t *codes)
{
    uint16_t x[GROUP_MAX];
    for (int c = 0; c < head_dim; c++) {
        if (n_bits == 8) {
            quant8_get(x, PAGE_TOKENS, *scales++, codes);
            channel_give(k, x, head_dim, c, 0, PAGE_TOKENS);
            codes += PAGE_TOKENS;
            continue;
        }
        for (int t = 0; t < PAGE_TOKENS; t += K4_GROUP, scales += 2, codes += K4_GROUP / 2) {
            quant4_get(x, K4_GROUP, scales, codes);
            channel_give(k, x, head_dim, c, t, K4_GROUP);
        }
    }
}

/* The last group of a token is smaller when head_dim is no multiple; head_dim is even. */
static int v4_group(int head_dim, int c)
{
    return head_dim - c < V4_GROUP ? head_dim - c : V4_GROUP;
}

static void v_put(const uint16_t *v, int head_dim, struct codec_layer bits, uint16_t *scales,
                  uint8_t *codes)
{
    for (int t = 0; t < PAGE_TOKENS; t++, v += head_dim) {
        if (bits.v_bits == 8) {
            quant8_put(v, head_dim, scales++, codes);
            codes += head_dim;
            continue;
        }
        for (int c = 0, n; c < head_dim; c += n, codes += n / 2) {
            n = v4_group(head_dim, c);
            if (bits.v_zero)
                quant4_sparse_put(v + c, n, bits.v_zero, scales, codes);
            else
                quant4_put(v + c, n, scales, codes);
            scales += bits.v_zero ? 1 : 2;
        }
    }
}

static void v_get(uint16_t *v, int head_dim, struct codec_layer bits, const uint16_t *scales,
                  const uint8_t *codes)
{
    for (int t = 0; t < PAGE_TOKENS; t++, v += head_dim) {
        if (bits.v_bits == 8) {
            quant8_get(v, head_dim, *scales++, codes);
            codes += head_dim;
            continue;
        }
        for (int c = 0, n; c < head_dim; c += n, codes += n / 2) {
            n = v4_group(head_dim, c);
            if (bits.v_zero)
                quant4_sparse_get(v + c, n, *scales, codes);
            else
                quant4_get(v + c, n, scales, codes);
            scales += bits.v_zero ? 1 : 2;
        }
    }
}

uint8_t *lossy_put(struct frames *f, const struct lossy_parts *p, const struct kv_shape *s,
                   struct codec_layer bits, uint8_t *out, const uint16_t *slice)
{
    size_t k_bytes = plane_bytes(s, bits.k_bits), v_bytes = plane_bytes(s, bits.v_bits);
    size_t heads = (size_t)s->n_kv_head, value_at = PAGE_TOKENS * (size_t)s->head_dim;
    uint16_t *v_scale = p->scales + heads * k_scales(s, bits);
    uint8_t *v_codes = p->codes + k_bytes;
    for (size_t h = 0; h < heads; h++) {
        const uint16_t *k = slice + head_at(s, (int)h);
        k_put(k, s->head_dim, bits.k_bits, p->scales + h * k_scales(s, bits),
              p->codes + h * (k_bytes / heads));
        v_put(k + value_at, s->head_dim, bits, v_scale + h * v_scales(s, bits),
              v_codes + h * (v_bytes / heads));
    }
    out = halves_put(f, out, p->scales, n_scales(s, bits));
    out = frame_put(f, out, p->codes, k_bytes);
    return frame_put(f, out, v_codes, v_bytes);
}

bool lossy_get(struct frames *f, const struct lossy_parts *p, const struct kv_shape *s,
               struct codec_layer bits, struct span *in, uint16_t *slice)
{
    size_t k_bytes = plane_bytes(s, bits.k_bits), v_bytes = plane_bytes(s, bits.v_bits);
    size_t heads = (size_t)s->n_kv_head, value_at = PAGE_TOKENS * (size_t)s->head_dim;
    const uint16_t *v_scale = p->scales + heads * k_scales(s, bits);
    const uint8_t *v_codes = p->codes + k_bytes;
    if (!halves_get(f, in, p->scales, n_scales(s, bits)) ||
        !frame_get(f, in, p->codes, k_bytes) || !frame_get(f, in, p->codes + k_bytes, v_bytes))
        return false;
    for (size_t h = 0; h < heads; h++) {
        uint16_t *k = slice + head_at(s, (int)h);
        k_get(k, s->head_dim, bits.k_bits, p->scales + h * k_scales(s, bits),
              p->codes + h * (k_bytes / heads));
        v_get(k + value_at, s->head_dim, bits, v_scale + h * v_scales(s, bits),
              v_codes + h * (v_bytes / heads));
    }
    return true;
}

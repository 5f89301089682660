#include "stages/kv/codec_frame.h"

#include "stages/base/le.h"
#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define PACKED 0x80000000u

void frames_init(struct frames *f, size_t max_halves)
{
    f->deflate = ZSTD_createCCtx();
    f->inflate = ZSTD_createDCtx();
    if (!f->deflate || !f->inflate)
        mem_none("a context of zstd");
    /* Nothing repeats in a plane, so all that zstd has to do is Huffman: higher levels search longer for less. */
    ZSTD_CCtx_setParameter(f->deflate, ZSTD_c_compressionLevel, 1);
    f->high = mem_need(max_halves);
}

void frames_release(struct frames *f)
{
    ZSTD_freeCCtx(f->deflate);
    ZSTD_freeDCtx(f->inflate);
    free(f->high);
    *f = (struct frames){0};
}

const uint8_t *span_take(struct span *s, size_t n)
{
    const uint8_t *at = s->at;
    if (n > s->n)
        return NULL;
    s->at += n;
    s->n -= n;
    return at;
}

uint8_t *frame_put(struct frames *f, uint8_t *out, const uint8_t *plane, size_t n)
{
    uint8_t *body = out + FRAME_HEAD_BYTES;
    /* Room for less than the plane: a frame that does not shrink fails, and is stored. */
    size_t packed = n ? ZSTD_compress2(f->deflate, body, n - 1, plane, n) : 0;
    if (n && !ZSTD_isError(packed)) {
        le32_put(out, (uint32_t)packed | PACKED);
        return body + packed;
    }
    le32_put(out, (uint32_t)n);
    memcpy(body, plane, n);
    return body + n;
}

bool frame_get(struct frames *f, struct span *in, uint8_t *plane, size_t n)
{
    const uint8_t *head = span_take(in, FRAME_HEAD_BYTES);
    if (!head)
        return false;
    uint32_t stored = le32_get(head);
    const uint8_t *body = span_take(in, stored & ~PACKED);
    if (!body)
        return false;
    if (!(stored & PACKED)) {
        if (stored != n)
            return false;
        memcpy(plane, body, n);
        return true;
    }
    /* The magic number: libraries may also know older formats, which are not for hostile bytes. */
    stored &= ~PACKED;
    return stored >= 4 && le32_get(body) == ZSTD_MAGICNUMBER &&
           ZSTD_decompressDCtx(f->inflate, plane, n, body, stored) == n;
}

void halves_split(const uint16_t *restrict x, size_t n, uint8_t *restrict low,
                  uint8_t *restrict high)
{
    for (size_t i = 0; i < n; i++) {
        low[i] = (uint8_t)x[i];
        high[i] = (uint8_t)(x[i] >> 8);
    }
}

void halves_merge(uint16_t *restrict x, size_t n, const uint8_t *restrict low,
                  const uint8_t *restrict high)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (uint16_t)(high[i] << 8 | low[i]);
}

uint8_t *halves_put(struct frames *f, uint8_t *out, const uint16_t *x, size_t n)
{
    halves_split(x, n, out, f->high);
    return frame_put(f, out + n, f->high, n);
}

bool halves_get(struct frames *f, struct span *in, uint16_t *x, size_t n)
{
    const uint8_t *low = span_take(in, n);
    if (!low || !frame_get(f, in, f->high, n))
        return false;
    halves_merge(x, n, low, f->high);
    return true;
}

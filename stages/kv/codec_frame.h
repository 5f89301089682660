/* stages/kv/codec_frame.h - the two things encoded pages are made of: byte planes and arrays of halves.
 *
 *     frame    u32 n, little-endian; then n bytes as they are, or with bit 31 of n set one zstd frame
 *     halves   the low bytes of n halves, then a frame of their high bytes
 *
 * The high byte has the exponent, and compresses; the low byte is noise. (Turning the sign out of the high byte, which
 * bfloat16 needs to have its exponent in one piece, changes nothing here.)
 * Rules:  the reader knows every decoded length beforehand; one that differs is corrupt.
 */
#ifndef QUIRE_KV_CODEC_FRAME_H
#define QUIRE_KV_CODEC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FRAME_HEAD_BYTES = 4 };

struct frames {
    void *deflate, *inflate; /* of zstd */
    uint8_t *high;           /* [max_halves] scratch */
};

void frames_init(struct frames *f, size_t max_halves);
void frames_release(struct frames *f);

/* Most bytes that are written, for any content. */
static inline size_t frame_bound(size_t n)
{
    return FRAME_HEAD_BYTES + n;
}

static inline size_t halves_bound(size_t n)
{
    return n + frame_bound(n);
}

/* What is left to read. */
struct span {
    const uint8_t *at;
    size_t n;
};

/* The next n bytes, or NULL when there are fewer. */
const uint8_t *span_take(struct span *s, size_t n);

/* put returns the end of what it wrote; get returns false for bytes that put does not write. */
uint8_t *frame_put(struct frames *f, uint8_t *out, const uint8_t *plane, size_t n);
bool frame_get(struct frames *f, struct span *in, uint8_t *plane, size_t n);
uint8_t *halves_put(struct frames *f, uint8_t *out, const uint16_t *x, size_t n);
bool halves_get(struct frames *f, struct span *in, uint16_t *x, size_t n);

void halves_split(const uint16_t *x, size_t n, uint8_t *low, uint8_t *high);
void halves_merge(uint16_t *x, size_t n, const uint8_t *low, const uint8_t *high);

#endif

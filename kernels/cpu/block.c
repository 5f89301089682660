#include "kernels/cpu/block.h"

#include "kernels/cpu/half.h"

#include <string.h>

/* Bytes are handled eight at a time; each of the eight stays in its place in memory. */
#define BYTES(x) (UINT64_C(0x0101010101010101) * (x))

static uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void store64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

/* 16 bytes: low nibbles are values 0..15, high nibbles 16..31. */
static void read_nibbles(uint8_t *q, const uint8_t *p)
{
    for (int i = 0; i < 16; i += 8) {
        uint64_t v = load64(p + i);
        store64(q + i, v & BYTES(15));
        store64(q + 16 + i, v >> 4 & BYTES(15));
    }
}

/* Bit i of four to the lowest bit of byte i, counted from the low end: copies 7 bits apart do not meet. */
static uint32_t spread4(uint32_t bits)
{
    return (bits & 15) * 0x204081 & 0x01010101;
}

static void add_fifth_bits(uint8_t *q, uint32_t h)
{
    for (int i = 0; i < 32; i += 4) {
        uint32_t v = load32(q + i) | spread4(h >> i) << 4;
        for (int j = 0; j < 4; j++)
            q[i + j] = (uint8_t)(v >> 8 * j);
    }
}

static void set_scale(struct block32 *out, float d)
{
    out->d[0] = d;
    out->d[1] = d;
}

/* Scale and minimum of sub-block s of Q4_K and Q5_K, 6 bits each. Of 12 bytes the first four hold the
 * scales 0..3 in their low six bits, the next four the minima 0..3; the last four hold the low nibbles of
 * scales and minima 4..7, whose top two bits are the top two of the bytes before. */
static void read_scale6(const uint8_t *p, int s, int *scale, int *min)
{
    if (s < 4) {
        *scale = p[s] & 63;
        *min = p[s + 4] & 63;
    } else {
        *scale = (p[s + 4] & 15) | (p[s - 4] >> 6) << 4;
        *min = p[s + 4] >> 4 | (p[s] >> 6) << 4;
    }
}

/* Q4_K and Q5_K: 32 bytes serve two sub-blocks, low nibbles the even one, high nibbles the odd one.
 * Fifth bits: byte i of 32, bit s, belongs to value i of sub-block s. */
static void read_k4_k5(struct block32 *out, const uint8_t *p, int s, bool fifth)
{
    int scale, min;
    read_scale6(p + 4, s, &scale, &min);
    const uint8_t *h = p + 16, *q = p + (fifth ? 48 : 16) + s / 2 * 32;
    for (int i = 0; i < 32; i += 8) {
        uint64_t v = load64(q + i) >> 4 * (s % 2) & BYTES(15);
        if (fifth)
            v |= (load64(h + i) >> s & BYTES(1)) << 4;
        store64(out->q + i, v);
    }
    set_scale(out, half_to_float(load16(p)) * (float)scale);
    out->m = -(half_to_float(load16(p + 2)) * (float)min);
    out->shared_d = load16(p);
    out->shared_m = load16(p + 2) ^ 0x8000; /* a product with its sign turned */
    out->small[0] = (int8_t)scale;
    out->small[1] = (int8_t)min;
}

/* Q6_K, two halves of 128 values: 64 bytes of low nibbles and 32 of top bits each. Of the four sub-blocks
 * of 32 in a half, s = 0, 1 are low nibbles of bytes 0..31, 32..63, and 2, 3 the high ones; the top
 * bits of sub-block s are bits 2s, 2s+1. Scales: one int8 for 16 values. */
static void read_k6(struct block32 *out, const uint8_t *p, int b)
{
    int half = b / 4, s = b % 4;
    const uint8_t *low = p + 64 * half + 32 * (s % 2), *high = p + 128 + 32 * half;
    for (int i = 0; i < 32; i += 8) {
        uint64_t nibbles = load64(low + i) >> 4 * (s / 2) & BYTES(15);
        store64(out->q + i, nibbles | (load64(high + i) >> 2 * s & BYTES(3)) << 4);
    }
    float d = half_to_float(load16(p + 208));
    for (int i = 0; i < 2; i++) {
        int scale = p[192 + 2 * b + i];
        out->small[i] = (int8_t)(scale < 128 ? scale : scale - 256);
        out->d[i] = d * (float)out->small[i];
    }
    out->shared_d = load16(p + 208);
}

void block32_read(struct block32 *out, enum kern_type t, const void *row, int b)
{
    int per_block = kern_types[t].block_values / 32, sub = b % per_block;
    const uint8_t *p =
        (const uint8_t *)row + (size_t)(b / per_block) * (size_t)kern_types[t].block_bytes;
    out->m = 0.0f;
    switch (t) {
    case KERN_Q4_0:
        read_nibbles(out->q, p + 2);
        set_scale(out, half_to_float(load16(p)));
        break;
    case KERN_Q4_1:
        read_nibbles(out->q, p + 4);
        set_scale(out, half_to_float(load16(p)));
        out->m = half_to_float(load16(p + 2));
        break;
    case KERN_Q5_0:
        read_nibbles(out->q, p + 6);
        add_fifth_bits(out->q, load32(p + 2));
        set_scale(out, half_to_float(load16(p)));
        break;
    case KERN_Q5_1:
        read_nibbles(out->q, p + 8);
        add_fifth_bits(out->q, load32(p + 4));
        set_scale(out, half_to_float(load16(p)));
        out->m = half_to_float(load16(p + 2));
        break;
    case KERN_Q8_0:
        for (int i = 0; i < 32; i += 8)
            store64(out->q + i, load64(p + 2 + i) ^ BYTES(0x80)); /* int8 + 128 */
        set_scale(out, half_to_float(load16(p)));
        break;
    case KERN_Q4_K:
        read_k4_k5(out, p, sub, false);
        break;
    case KERN_Q5_K:
        read_k4_k5(out, p, sub, true);
        break;
    case KERN_Q6_K:
        read_k6(out, p, sub);
        break;
    default: /* float types have no blocks */
        memset(out, 0, sizeof *out);
    }
}

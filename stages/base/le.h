/* stages/base/le.h - little-endian integers in byte arrays, at any alignment. Pure. */
#ifndef QUIRE_BASE_LE_H
#define QUIRE_BASE_LE_H

#include <stdint.h>

static inline uint16_t le16_get(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t le32_get(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t le64_get(const void *p)
{
    const uint8_t *b = p;
    return (uint64_t)le32_get(b) | (uint64_t)le32_get(b + 4) << 32;
}

static inline void le32_put(void *p, uint32_t v)
{
    uint8_t *b = p;
    for (int i = 0; i < 4; i++)
        b[i] = (uint8_t)(v >> 8 * i);
}

static inline void le64_put(void *p, uint64_t v)
{
    le32_put(p, (uint32_t)v);
    le32_put((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

#endif

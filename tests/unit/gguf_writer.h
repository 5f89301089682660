/* Builds GGUF files in memory, byte by byte, wrong ones too. For tests: no checks, a fixed buffer. */
#ifndef QUIRE_TESTS_GGUF_WRITER_H
#define QUIRE_TESTS_GGUF_WRITER_H

#include "stages/base/le.h"

#include <assert.h>
#include <string.h>

struct gguf_writer {
    uint8_t data[1 << 17];
    size_t len;
};

static inline void put_bytes(struct gguf_writer *w, const void *p, size_t n)
{
    assert(w->len + n <= sizeof(w->data));
    memcpy(w->data + w->len, p, n);
    w->len += n;
}

static inline void put_u8(struct gguf_writer *w, uint8_t v)
{
    put_bytes(w, &v, 1);
}

static inline void put_u32(struct gguf_writer *w, uint32_t v)
{
    uint8_t b[4];
    le32_put(b, v);
    put_bytes(w, b, 4);
}

static inline void put_u64(struct gguf_writer *w, uint64_t v)
{
    uint8_t b[8];
    le64_put(b, v);
    put_bytes(w, b, 8);
}

static inline void put_f32(struct gguf_writer *w, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    put_u32(w, bits);
}

static inline void put_text(struct gguf_writer *w, const char *s, size_t n)
{
    put_u64(w, n);
    put_bytes(w, s, n);
}

static inline void put_str(struct gguf_writer *w, const char *s)
{
    put_text(w, s, strlen(s));
}

static inline void put_header(struct gguf_writer *w, uint32_t version, uint64_t tensors,
                              uint64_t pairs)
{
    w->len = 0;
    put_bytes(w, "GGUF", 4);
    put_u32(w, version);
    put_u64(w, tensors);
    put_u64(w, pairs);
}

static inline void put_key(struct gguf_writer *w, const char *key, uint32_t type)
{
    put_str(w, key);
    put_u32(w, type);
}

static inline void put_array(struct gguf_writer *w, const char *key, uint32_t item, uint64_t n)
{
    put_key(w, key, 9);
    put_u32(w, item);
    put_u64(w, n);
}

static inline void put_tensor(struct gguf_writer *w, const char *name, uint32_t n_dims,
                              const uint64_t *dims, uint32_t type, uint64_t offset)
{
    put_str(w, name);
    put_u32(w, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_u64(w, dims[i]);
    put_u32(w, type);
    put_u64(w, offset);
}

static inline void put_padding(struct gguf_writer *w, size_t alignment)
{
    while (w->len % alignment)
        put_u8(w, 0);
}

#endif

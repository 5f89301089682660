/* stages/model/gguf.h - a GGUF file as checked metadata and a checked tensor directory.
 *
 * What:   a pure reader over a byte range: versions 2 and 3, little-endian. No I/O, no copies: strings and
 *         arrays point into the bytes, which must outlive the struct.
 * Rules:  every count, length, offset, type and product is checked against the bytes before use. Duplicate
 *         keys or tensor names, names that are empty, over 64 bytes or not UTF-8, zero dimensions, tensors that
 *         overlap, leave the file or are out of alignment: refused. Nested arrays: refused.
 * Source: the GGUF specification (ggml-org/ggml docs/gguf.md).
 */
#ifndef QUIRE_MODEL_GGUF_H
#define QUIRE_MODEL_GGUF_H

#include "kernels/qtypes.h"
#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>

enum gguf_type { /* the file's numbers */
                 GGUF_U8,
                 GGUF_I8,
                 GGUF_U16,
                 GGUF_I16,
                 GGUF_U32,
                 GGUF_I32,
                 GGUF_F32,
                 GGUF_BOOL,
                 GGUF_STRING,
                 GGUF_ARRAY,
                 GGUF_U64,
                 GGUF_I64,
                 GGUF_F64,
                 GGUF_TYPE_COUNT
};

struct gguf_string {
    const char *s; /* not NUL-terminated */
    size_t len;
};

struct gguf_kv {
    struct gguf_string key;
    enum gguf_type type;
    enum gguf_type item_type; /* GGUF_ARRAY */
    uint64_t count;           /* GGUF_ARRAY: items; else 1 */
    const uint8_t *data;      /* first byte of the value (of the first item) */
};

struct gguf_tensor {
    char name[65];
    int gguf_type_id; /* as in the file */
    int type; /* enum kern_type, -1: a type that is not read here (the directory is still valid) */
    int n_dims;
    int64_t dims[4]; /* dims[0] is the row length; unused are 1; each 1..2^40 */
    const uint8_t *data;
    uint64_t bytes; /* 0 when type is -1 */
};

struct gguf {
    int version;
    uint64_t alignment;
    struct gguf_kv *kv;
    size_t n_kv;
    struct gguf_tensor *tensors;
    size_t n_tensors;
    const uint8_t *bytes; /* the whole file */
    size_t len;
};

/* Parse len bytes. Errors: FORMAT or LIMIT, reach JOB, with the offset and the name in the message.
 * On failure *g is released. Cost: linear in the metadata. */
int gguf_parse(struct gguf *g, const uint8_t *bytes, size_t len, struct err *e) MUST_CHECK;
void gguf_release(struct gguf *g);

/* NULL when absent. */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* Typed access with conversion between integer widths; 0 ok, 1 absent (out untouched), -ERR_FORMAT when the
 * value has another type or does not fit. */
int gguf_u64(const struct gguf *g, const char *key, uint64_t max, uint64_t *out,
             struct err *e) MUST_CHECK;
int gguf_f64(const struct gguf *g, const char *key, double *out, struct err *e) MUST_CHECK;
int gguf_bool(const struct gguf *g, const char *key, bool *out, struct err *e) MUST_CHECK;
int gguf_str(const struct gguf *g, const char *key, struct gguf_string *out,
             struct err *e) MUST_CHECK;

/* Walk the strings of a string array: starts with *p = kv->data; checked by gguf_parse already. */
struct gguf_string gguf_next_string(const uint8_t **p);

#endif

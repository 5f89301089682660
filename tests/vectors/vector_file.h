/* tests/vectors/vector_file.h - reads the files that make_logits.py writes (its head draws the bytes).
 *
 * Rule: a broken file ends the test program; it is part of the tree.
 */
#ifndef QUIRE_TESTS_VECTOR_FILE_H
#define QUIRE_TESTS_VECTOR_FILE_H

#include "stages/base/buf.h"
#include "stages/base/file.h"
#include "stages/base/hash.h"
#include "stages/base/le.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vector_prompt {
    char name[17];
    int n;
    int32_t *ids, *greedy;   /* [n] */
    const uint8_t *lead;     /* [n] f32 */
    const uint8_t *expected; /* records of positions step-1, 2*step-1, ... */
};

struct vector_file {
    struct buf bytes;
    const uint8_t *digest;
    int n_vocab, n_prompts, step, top;
    struct vector_prompt *prompts;
};

static inline float f32_at(const uint8_t *p)
{
    uint32_t bits = le32_get(p);
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline size_t record_bytes(const struct vector_file *v)
{
    return (size_t)v->top * 8 + 4;
}

static inline int32_t *ints_at(const uint8_t *p, int n)
{
    int32_t *out = malloc((size_t)n * sizeof(*out));
    for (int i = 0; out && i < n; i++)
        out[i] = (int32_t)le32_get(p + 4 * (size_t)i);
    return out;
}

static inline void vector_file_need(bool ok, const char *path, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

static inline void vector_file_open(struct vector_file *v, const char *path)
{
    struct err e = {0};
    *v = (struct vector_file){0};
    buf_init(&v->bytes, 64 << 20);
    vector_file_need(file_read(path, &v->bytes, &e) == 0, path, e.msg);
    const uint8_t *p = (const uint8_t *)v->bytes.data, *end = p + v->bytes.len;
    vector_file_need(v->bytes.len >= 56 && memcmp(p, "QVEC0001", 8) == 0, path,
                     "no vector file");
    v->digest = p + 8;
    v->n_vocab = (int)le32_get(p + 40);
    v->n_prompts = (int)le32_get(p + 44);
    v->step = (int)le32_get(p + 48);
    v->top = (int)le32_get(p + 52);
    vector_file_need(v->n_prompts > 0 && v->n_prompts < 1000 && v->step > 0 && v->top > 0 &&
                         v->top <= v->n_vocab,
                     path, "numbers out of range");
    v->prompts = calloc((size_t)v->n_prompts, sizeof(*v->prompts));
    p += 56;
    for (int i = 0; i < v->n_prompts; i++) {
        struct vector_prompt *q = &v->prompts[i];
        vector_file_need(end - p >= 20, path, "cut short");
        memcpy(q->name, p, 16);
        uint32_t n = le32_get(p + 16);
        size_t records = n / (uint32_t)v->step * record_bytes(v);
        vector_file_need(n > 0 && (size_t)(end - p) >= 20 + 12 * (size_t)n + records, path,
                         "cut short");
        q->n = (int)n;
        q->ids = ints_at(p + 20, q->n);
        q->greedy = ints_at(p + 20 + 4 * (size_t)n, q->n);
        q->lead = p + 20 + 8 * (size_t)n;
        q->expected = q->lead + 4 * (size_t)n;
        p = q->expected + records;
    }
    vector_file_need(p == end, path, "longer than it says");
}

static inline void vector_file_close(struct vector_file *v)
{
    for (int i = 0; i < v->n_prompts; i++) {
        free(v->prompts[i].ids);
        free(v->prompts[i].greedy);
    }
    free(v->prompts);
    buf_release(&v->bytes);
}

#endif

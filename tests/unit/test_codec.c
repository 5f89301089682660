/* Codecs of KV pages: exact ones give the bytes back, lossy ones stay within what their steps allow and give the same
 * bytes everywhere, and no input makes decode write out of bounds (run it with asan). */
#include "kernels/cpu/half.h"
#include "kernels/cpu/kv_slice.h"
#include "stages/base/hash.h"
#include "stages/kv/codec.h"
#include "stages/kv/codec_policy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct kv_shape shapes[] = {
    {3, 3, 64, 3 * 64 * 256}, {3, 1, 256, 256 * 256}, {6, 2, 80, 2 * 80 * 256},
    {1, 1, 2, 512},           {4, 2, 34, 17408 + 64}, {2, 0, 0, 128},
};
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static uint32_t random_state;

static uint32_t random_bits(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

enum fill {
    ZERO,
    NEGATIVE_ZERO,
    INFINITE,
    NOT_A_NUMBER,
    GREATEST,
    DENORMAL,
    ANY_BITS,
    USUAL,
    N_FILLS
};

/* Usual: like what models hold, a bell around a different size for every few values. */
static uint16_t half_of(enum fill fill, size_t i)
{
    switch (fill) {
    case ZERO:
        return 0;
    case NEGATIVE_ZERO:
        return 0x8000;
    case INFINITE:
        return (uint16_t)(0x7c00 | (random_bits() & 0x8000));
    case NOT_A_NUMBER:
        return (uint16_t)(0x7c01 | (random_bits() & 0x83ff));
    case GREATEST:
        return (uint16_t)(0x7bff | (random_bits() & 0x8000));
    case DENORMAL:
        return (uint16_t)(random_bits() & 0x83ff);
    case ANY_BITS:
        return (uint16_t)random_bits();
    default: {
        int sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (int)(random_bits() & 1023) - 512;
        return float_to_half((float)sum * (float)(1 + i / 16 % 7) * 0x1p-10f);
    }
    }
}

static size_t full_bytes(const struct kv_shape *s)
{
    return (size_t)s->n_layer * s->slice_bytes;
}

static uint16_t *page_of(const struct kv_shape *s, enum fill fill)
{
    uint16_t *page = malloc(full_bytes(s));
    random_state = 1 + (uint32_t)fill;
    for (size_t i = 0; i < full_bytes(s) / 2; i++)
        page[i] = half_of(fill, i);
    return page;
}

/* What decode has to give: positions from n on are zero, and so is what pads a slice. */
static void clear_from(uint16_t *page, const struct kv_shape *s, int n)
{
    for (int l = 0; l < s->n_layer && s->n_kv_head; l++) {
        uint16_t *slice = page + (size_t)l * s->slice_bytes / 2;
        size_t used = page_head_at(s->n_kv_head, s->head_dim);
        memset(slice + used, 0, s->slice_bytes - 2 * used);
        for (int h = 0; h < s->n_kv_head; h++)
            for (int t = n; t < PAGE_TOKENS; t++)
                for (int c = 0; c < s->head_dim; c++) {
                    slice[page_head_at(h, s->head_dim) + page_key_at(t, c, s->head_dim)] = 0;
                    slice[page_head_at(h, s->head_dim) + page_value_at(t, c, s->head_dim)] = 0;
                }
    }
}

/* Of a page of halves, which is shrunk first where the kind does that. */
static size_t encode(struct codec *c, const struct kv_shape *s, enum codec_kind kind,
                     const uint16_t *page, int n, uint8_t **out)
{
    *out = malloc(codec_bound(s));
    uint16_t *copy = malloc(full_bytes(s));
    memcpy(copy, page, full_bytes(s));
    if (codec_shrinks(s, kind))
        codec_shrink(c, copy);
    size_t size = codec_encode(c, kind, copy, n, *out);
    free(copy);
    assert_true(size <= codec_bound(s));
    uint8_t *exact = malloc(size ? size : 1); /* asan sees a read past the end */
    memcpy(exact, *out, size);
    free(*out);
    *out = exact;
    return size;
}

/* The slice of halves that one of 8 bits stands for; what is greater than a half can be is the greatest half. */
static void grow_slice(const struct kv_shape *s, uint16_t *to, const uint8_t *from)
{
    size_t d = (size_t)s->head_dim, n = PAGE_TOKENS * d;
    for (int h = 0; h < s->n_kv_head; h++) {
        struct kv_part p = q8_part(from, h, s->head_dim);
        uint16_t *head = to + page_head_at(h, s->head_dim);
        for (size_t i = 0; i < 2 * n; i++) {
            bool key = i < n;
            size_t c = key ? i / PAGE_TOKENS : i % d, t = key ? i % PAGE_TOKENS : (i - n) / d;
            uint16_t scale = key ? p.key_scales[c] : p.value_scales[t];
            assert_true(scale < 0x7c00);
            int8_t code = key ? ((const int8_t *)p.keys)[i] : ((const int8_t *)p.values)[i - n];
            float x = (float)code * half_to_float(scale);
            head[key ? page_key_at((int)t, (int)c, s->head_dim)
                     : page_value_at((int)t, (int)c, s->head_dim)] =
                float_to_half(fmaxf(-65504, fminf(x, 65504)));
        }
    }
}

/* What a lossy kind makes of a page, as halves. */
static void decode(struct codec *c, const struct kv_shape *s, enum codec_kind kind,
                   const uint8_t *in, size_t n, uint16_t *page)
{
    struct err e = {0};
    assert_int_equal(codec_decode(c, kind, in, n, page, PAGE_TOKENS, &e), 0);
    if (!codec_shrinks(s, kind))
        return;
    uint8_t *small = malloc(codec_page_bytes(s, kind));
    memcpy(small, page, codec_page_bytes(s, kind));
    memset(page, 0, full_bytes(s));
    for (int l = 0; l < s->n_layer; l++)
        grow_slice(s, page + (size_t)l * s->slice_bytes / 2,
                   small + (size_t)l * codec_slice_bytes(s, kind));
    free(small);
}

static void exact_codecs_give_every_bit_back(void **state)
{
    (void)state;
    static const int tokens[] = {0, 1, 15, 16, 17, 63, 64};
    for (int i = 0; i < N_SHAPES; i++) {
        const struct kv_shape *s = &shapes[i];
        struct codec *c = codec_new(s);
        uint16_t *back = malloc(full_bytes(s));
        for (int f = 0; f < N_FILLS; f++)
            for (size_t t = 0; t < ARRAY_LEN(tokens); t++)
                for (int kind = CODEC_RAW; kind <= CODEC_SPLIT; kind++) {
                    struct err e = {0};
                    uint16_t *page = page_of(s, (enum fill)f);
                    uint8_t *out;
                    size_t n = encode(c, s, (enum codec_kind)kind, page, tokens[t], &out);
                    memset(back, 0xaa, full_bytes(s));
                    assert_int_equal(
                        codec_decode(c, (enum codec_kind)kind, out, n, back, tokens[t], &e), 0);
                    clear_from(page, s, tokens[t]);
                    assert_memory_equal(page, back, full_bytes(s));
                    free(page);
                    free(out);
                }
        free(back);
        codec_free(c);
    }
}

static void encode_does_not_look_at_positions_that_are_not_valid(void **state)
{
    (void)state;
    const struct kv_shape *s = &shapes[2];
    struct codec *c = codec_new(s);
    for (int kind = CODEC_RAW; kind <= CODEC_SPLIT; kind++) {
        uint16_t *page = page_of(s, USUAL);
        uint8_t *a, *b;
        size_t n = encode(c, s, (enum codec_kind)kind, page, 17, &a);
        clear_from(page, s, 17);
        assert_int_equal(encode(c, s, (enum codec_kind)kind, page, 17, &b), n);
        assert_memory_equal(a, b, n);
        assert_true(n <= full_bytes(s) * 17 / 64 + 64 * (size_t)s->n_layer);
        free(a);
        free(b);
        free(page);
    }
    codec_free(c);
}

/* Every channel of K has a size and a sign of its own, and noise below: nothing is left of the high bytes. */
static void split_finds_the_size_and_the_sign_of_a_channel(void **state)
{
    (void)state;
    const struct kv_shape *s = &shapes[0];
    struct codec *c = codec_new(s);
    uint16_t *page = page_of(s, ZERO);
    for (int l = 0; l < s->n_layer; l++)
        for (int h = 0; h < s->n_kv_head; h++)
            for (int d = 0; d < s->head_dim; d++) {
                uint16_t high = (uint16_t)(random_bits() << 8);
                uint16_t *k =
                    page + (size_t)l * s->slice_bytes / 2 + page_head_at(h, s->head_dim);
                for (int t = 0; t < PAGE_TOKENS; t++)
                    k[page_key_at(t, d, s->head_dim)] =
                        (uint16_t)((high & 0xfc00) | (random_bits() & 0xff));
            }
    uint8_t *out;
    size_t n = encode(c, s, CODEC_SPLIT, page, PAGE_TOKENS, &out);
    size_t low = full_bytes(s) / 2, tops = (size_t)(s->n_layer * s->n_kv_head * s->head_dim);
    assert_true(n < low + tops + 200 * (size_t)s->n_layer);
    free(out);
    free(page);
    codec_free(c);
}

static void every_codec_keeps_bytes_without_a_meaning(void **state)
{
    (void)state;
    const struct kv_shape *s = &shapes[5];
    struct codec *c = codec_new(s);
    uint16_t *page = page_of(s, ANY_BITS), *back = malloc(full_bytes(s));
    for (int kind = 0; kind < CODEC_COUNT; kind++) {
        struct err e = {0};
        uint8_t *out;
        size_t n = encode(c, s, (enum codec_kind)kind, page, 5, &out);
        memset(back, 0, full_bytes(s));
        assert_int_equal(codec_decode(c, (enum codec_kind)kind, out, n, back, 5, &e), 0);
        assert_memory_equal(page, back, full_bytes(s));
        free(out);
    }
    free(page);
    free(back);
    codec_free(c);
}

/* A group: n halves from x on. stride: from one piece of 16 to the next, 0: side by side. */
static void group_is_close(const uint16_t *x, const uint16_t *y, int n, int stride, int n_bits,
                           int zero)
{
    float low = zero ? 0 : INFINITY, high = zero ? 0 : -INFINITY, most = 0;
    for (int i = 0; i < n; i++) {
        float v = half_to_float(x[stride ? i / 16 * stride + i % 16 : i]);
        low = fminf(low, v);
        high = fmaxf(high, v);
        most = fmaxf(most, fabsf(v));
    }
    float step = n_bits == 8 ? most / 127 : (high - low) / 15;
    /* The scale is a half, rounded up; the last four bits of a sparse group's are taken. */
    step += zero ? fmaxf(step * 0x1p-6f, 0x1p-20f) : fmaxf(step * 0x1p-10f, 0x1p-24f);
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)(stride ? i / 16 * stride + i % 16 : i);
        float a = half_to_float(x[at]), b = half_to_float(y[at]);
        float may =
            fmaxf(step / 2 * (1 + 0x1p-20f), fabsf(a) < most * (float)zero / 64 ? fabsf(a) : 0);
        may += fmaxf(fabsf(b) * 0x1p-11f, 0x1p-25f) + (most * 2 + step) * 0x1p-23f;
        if (!(fabsf(a - b) <= may))
            fail_msg("%a became %a: off by %a, may be %a", a, b, a - b, may);
    }
}

static void slice_is_close(const struct kv_shape *s, struct codec_layer bits, const uint16_t *x,
                           const uint16_t *y)
{
    int dim = s->head_dim;
    for (int h = 0; h < s->n_kv_head; h++) {
        size_t at = page_head_at(h, dim);
        for (int c = 0; c < dim; c++)
            for (int t = 0, n = bits.k_bits == 8 ? 64 : 32; t < PAGE_TOKENS; t += n)
                group_is_close(x + at + page_key_at(t, c, dim), y + at + page_key_at(t, c, dim),
                               n, dim * 16, bits.k_bits, 0);
        for (int t = 0; t < PAGE_TOKENS; t++)
            for (int c = 0, n; c < dim; c += n) {
                n = bits.v_bits == 8 ? dim : dim - c < 32 ? dim - c : 32;
                group_is_close(x + at + page_value_at(t, c, dim),
                               y + at + page_value_at(t, c, dim), n, 0, bits.v_bits,
                               bits.v_zero);
            }
    }
}

static void lossy_codecs_stay_within_half_a_step(void **state)
{
    (void)state;
    static const enum fill fills[] = {ZERO, NEGATIVE_ZERO, GREATEST, DENORMAL, USUAL};
    for (int i = 0; i < N_SHAPES - 1; i++)
        for (int kind = CODEC_Q8; kind < CODEC_COUNT; kind++)
            for (size_t f = 0; f < ARRAY_LEN(fills); f++) {
                const struct kv_shape *s = &shapes[i];
                struct codec *c = codec_new(s);
                uint16_t *page = page_of(s, fills[f]), *back = malloc(full_bytes(s));
                uint8_t *out;
                size_t n = encode(c, s, (enum codec_kind)kind, page, PAGE_TOKENS, &out);
                decode(c, s, (enum codec_kind)kind, out, n, back);
                for (int l = 0; l < s->n_layer; l++) {
                    size_t at = (size_t)l * s->slice_bytes / 2;
                    struct codec_layer bits = {8, 8, 0};
                    if (kind != CODEC_Q8)
                        bits = codec_policy((enum codec_kind)kind, l, s->n_layer);
                    slice_is_close(s, bits, page + at, back + at);
                }
                free(out);
                free(page);
                free(back);
                codec_free(c);
            }
}

static void lossy_codecs_give_finite_halves_whatever_they_are_given(void **state)
{
    (void)state;
    static const enum fill fills[] = {INFINITE, NOT_A_NUMBER, ANY_BITS};
    const struct kv_shape *s = &shapes[2];
    struct codec *c = codec_new(s);
    for (int kind = CODEC_Q8; kind < CODEC_COUNT; kind++)
        for (size_t f = 0; f < ARRAY_LEN(fills); f++) {
            uint16_t *page = page_of(s, fills[f]);
            uint8_t *out;
            size_t n = encode(c, s, (enum codec_kind)kind, page, PAGE_TOKENS, &out);
            decode(c, s, (enum codec_kind)kind, out, n, page);
            for (size_t i = 0; i < full_bytes(s) / 2; i++)
                assert_int_not_equal(page[i] & 0x7c00, 0x7c00);
            free(page);
            free(out);
        }
    codec_free(c);
}

/* One digest for every compiler, optimisation and CPU: pages on disk and answers depend on it. When a formula or the
 * table of layers changes on purpose, the codec needs another name, and then this another digest. */
static void what_a_page_decodes_to_is_pinned(void **state)
{
    (void)state;
    static const char *const digests[CODEC_COUNT] = {
        [CODEC_Q8] = "46e0543d3dfc9ad8",
        [CODEC_K8V4] = "4262c8645548c4f1",
        [CODEC_Q4] = "416f44e8e616a742",
        [CODEC_LAYERED] = "075a589216e4298a",
    };
    const struct kv_shape *s = &shapes[2];
    struct codec *c = codec_new(s);
    uint16_t *page = page_of(s, USUAL), *back = malloc(full_bytes(s));
    for (int kind = CODEC_Q8; kind < CODEC_COUNT; kind++) {
        uint8_t *out, digest[HASH_BYTES];
        char hex[HASH_HEX];
        size_t n = encode(c, s, (enum codec_kind)kind, page, PAGE_TOKENS, &out);
        decode(c, s, (enum codec_kind)kind, out, n, back);
        hash_bytes(back, full_bytes(s), digest);
        hash_hex(digest, hex);
        hex[16] = 0;
        assert_string_equal(hex, digests[kind]);
        free(out);
    }
    free(page);
    free(back);
    codec_free(c);
}

static void truncated_and_flipped_bytes_are_refused_or_decode_to_some_page(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        const struct kv_shape *s = &shapes[i];
        struct codec *c = codec_new(s);
        uint16_t *page = page_of(s, USUAL), *back = malloc(full_bytes(s));
        for (int kind = 0; kind < CODEC_COUNT; kind++) {
            uint8_t *out;
            size_t n = encode(c, s, (enum codec_kind)kind, page, PAGE_TOKENS, &out);
            for (int k = 0; k < 60; k++) {
                struct err e = {0};
                size_t cut = k < 20 ? (size_t)k : random_bits() % n;
                uint8_t *some = malloc(cut ? cut : 1);
                memcpy(some, out, cut < n ? cut : n);
                if (cut < n) {
                    assert_int_equal(codec_decode(c, (enum codec_kind)kind, some, cut, back,
                                                  PAGE_TOKENS, &e),
                                     -ERR_CORRUPT);
                    assert_int_equal(e.reach, REACH_DOC);
                }
                free(some);
            }
            for (int k = 0; k < 300; k++) {
                struct err e = {0};
                size_t at = k < 40 ? n - 1 - (size_t)k : random_bits() % n;
                uint8_t was = out[at];
                out[at] ^= (uint8_t)(1u << (random_bits() & 7));
                int rc = codec_decode(c, (enum codec_kind)kind, out, n, back, PAGE_TOKENS, &e);
                assert_true(rc == 0 || rc == -ERR_CORRUPT);
                out[at] = was;
            }
            free(out);
        }
        free(page);
        free(back);
        codec_free(c);
    }
}

static void bytes_behind_a_page_are_refused(void **state)
{
    (void)state;
    const struct kv_shape *s = &shapes[0];
    struct codec *c = codec_new(s);
    uint16_t *page = page_of(s, USUAL), *back = malloc(full_bytes(s));
    for (int kind = 0; kind < CODEC_COUNT; kind++) {
        struct err e = {0};
        uint8_t *out;
        size_t n = encode(c, s, (enum codec_kind)kind, page, PAGE_TOKENS, &out);
        uint8_t *more = malloc(n + 1);
        memcpy(more, out, n);
        more[n] = 0;
        assert_int_equal(codec_decode(c, (enum codec_kind)kind, more, n, back, PAGE_TOKENS, &e),
                         0);
        assert_int_equal(
            codec_decode(c, (enum codec_kind)kind, more, n + 1, back, PAGE_TOKENS, &e),
            -ERR_CORRUPT);
        free(more);
        free(out);
    }
    free(back);
    free(page);
    codec_free(c);
}

static void the_lossy_codecs_refuse_a_page_that_is_not_full(void **state)
{
    (void)state;
    const struct kv_shape *s = &shapes[0];
    struct codec *c = codec_new(s);
    uint16_t *page = page_of(s, USUAL);
    uint8_t *out;
    struct err e = {0};
    size_t n = encode(c, s, CODEC_Q8, page, PAGE_TOKENS, &out);
    assert_int_equal(codec_decode(c, CODEC_Q8, out, n, page, 63, &e), -ERR_CORRUPT);
    free(out);
    free(page);
    codec_free(c);
}

/* What is stored of a small page is the small page. */
static void a_page_of_8_bits_comes_back_as_it_is(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES - 1; i++) {
        const struct kv_shape *s = &shapes[i];
        struct codec *c = codec_new(s);
        size_t small = codec_page_bytes(s, CODEC_Q8);
        assert_true(small < full_bytes(s) && small % 64 == 0);
        uint8_t *page = (void *)page_of(s, USUAL), *back = malloc(small), *out;
        size_t n = encode(c, s, CODEC_Q8, (void *)page, PAGE_TOKENS, &out);
        codec_shrink(c, page);
        struct err e = {0};
        assert_int_equal(codec_decode(c, CODEC_Q8, out, n, back, PAGE_TOKENS, &e), 0);
        assert_memory_equal(page, back, small);
        free(out);
        free(back);
        free(page);
        codec_free(c);
    }
    assert_false(codec_shrinks(&shapes[5], CODEC_Q8)); /* nobody knows what its bytes are */
    assert_false(codec_shrinks(&shapes[0], CODEC_K8V4));
    assert_int_equal(codec_page_bytes(&shapes[0], CODEC_Q4), full_bytes(&shapes[0]));
}

/* A scale of a hostile page that is no number would make every sum one. */
static void scales_that_are_no_number_are_refused(void **state)
{
    (void)state;
    static const uint16_t bad[] = {0x7c00, 0x7e00, 0xfc00, 0x8000, 0xbc00};
    const struct kv_shape *s = &shapes[0];
    struct codec *c = codec_new(s);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};
        uint16_t *page = page_of(s, USUAL), *back = malloc(full_bytes(s));
        uint8_t *out = malloc(codec_bound(s));
        codec_shrink(c, page);
        size_t at = PAGE_TOKENS * (size_t)s->head_dim + 3; /* in halves: behind K and V */
        page[at] = bad[i];
        size_t n = codec_encode(c, CODEC_Q8, page, PAGE_TOKENS, out);
        assert_int_equal(codec_decode(c, CODEC_Q8, out, n, back, PAGE_TOKENS, &e),
                         -ERR_CORRUPT);
        free(out);
        free(back);
        free(page);
    }
    codec_free(c);
}

static void names_and_losses_are_known(void **state)
{
    (void)state;
    assert_string_equal(codec_name(CODEC_SPLIT), "split");
    assert_null(codec_name(CODEC_COUNT));
    assert_false(codec_is_lossy(CODEC_SPLIT));
    assert_true(codec_is_lossy(CODEC_Q8) && codec_is_lossy(CODEC_LAYERED));
    codec_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_codecs_give_every_bit_back),
        cmocka_unit_test(encode_does_not_look_at_positions_that_are_not_valid),
        cmocka_unit_test(split_finds_the_size_and_the_sign_of_a_channel),
        cmocka_unit_test(every_codec_keeps_bytes_without_a_meaning),
        cmocka_unit_test(lossy_codecs_stay_within_half_a_step),
        cmocka_unit_test(lossy_codecs_give_finite_halves_whatever_they_are_given),
        cmocka_unit_test(what_a_page_decodes_to_is_pinned),
        cmocka_unit_test(truncated_and_flipped_bytes_are_refused_or_decode_to_some_page),
        cmocka_unit_test(bytes_behind_a_page_are_refused),
        cmocka_unit_test(the_lossy_codecs_refuse_a_page_that_is_not_full),
        cmocka_unit_test(a_page_of_8_bits_comes_back_as_it_is),
        cmocka_unit_test(scales_that_are_no_number_are_refused),
        cmocka_unit_test(names_and_losses_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

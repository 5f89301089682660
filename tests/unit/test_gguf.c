#include "stages/model/gguf.h"

#include "tests/unit/gguf_writer.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

static struct gguf_writer w;

/* Parses an exact-size copy, so that the address sanitizer sees a read past the end. */
static int parse(struct gguf *g, const uint8_t *data, size_t len, uint8_t **copy, struct err *e)
{
    *copy = malloc(len ? len : 1);
    assert_non_null(*copy);
    memcpy(*copy, data, len);
    memset(e, 0, sizeof(*e));
    return gguf_parse(g, *copy, len, e);
}

/* The file in w is refused with a message that holds `says`. */
static void refused(const char *says)
{
    struct gguf g;
    struct err e;
    uint8_t *copy;
    int rc = parse(&g, w.data, w.len, &copy, &e);
    free(copy);
    if (rc >= 0 || !strstr(e.msg, says))
        fail_msg("returned %d, said \"%s\", expected \"%s\"", rc, e.msg, says);
    assert_true(rc == -ERR_FORMAT || rc == -ERR_LIMIT);
    assert_int_equal(e.reach, REACH_JOB);
    assert_null(g.kv);
}

static void accepted(void)
{
    struct gguf g;
    struct err e;
    uint8_t *copy;
    if (parse(&g, w.data, w.len, &copy, &e) != 0)
        fail_msg("%s", e.msg);
    gguf_release(&g);
    free(copy);
}

/* Every value type, an array of each kind, two tensors. */
static void good_file(uint32_t version)
{
    put_header(&w, version, 2, 15);
    put_key(&w, "general.alignment", GGUF_U32), put_u32(&w, 64);
    put_key(&w, "a.u8", GGUF_U8), put_u8(&w, 200);
    put_key(&w, "a.i8", GGUF_I8), put_u8(&w, 0xff);
    put_key(&w, "a.u16", GGUF_U16), put_bytes(&w, "\x34\x12", 2);
    put_key(&w, "a.i16", GGUF_I16), put_bytes(&w, "\xfe\xff", 2);
    put_key(&w, "a.u32", GGUF_U32), put_u32(&w, 0xfffffffe);
    put_key(&w, "a.i32", GGUF_I32), put_u32(&w, 77);
    put_key(&w, "a.f32", GGUF_F32), put_f32(&w, 1.5f);
    put_key(&w, "a.bool", GGUF_BOOL), put_u8(&w, 1);
    put_key(&w, "a.str", GGUF_STRING), put_str(&w, "text");
    put_key(&w, "a.u64", GGUF_U64), put_u64(&w, UINT64_MAX);
    put_key(&w, "a.i64", GGUF_I64), put_u64(&w, (uint64_t)-5);
    put_key(&w, "a.f64", GGUF_F64), put_bytes(&w, "\0\0\0\0\0\0\xf8\x7f", 8); /* not a number */
    put_array(&w, "a.strings", GGUF_STRING, 3), put_str(&w, "x"), put_str(&w, ""),
        put_str(&w, "yz");
    put_array(&w, "a.flags", GGUF_BOOL, 2), put_u8(&w, 0), put_u8(&w, 1);
    put_tensor(&w, "one", 2, (uint64_t[]){32, 3}, 2, 0); /* Q4_0: 3 x 18 bytes */
    put_tensor(&w, "two", 1, (uint64_t[]){5}, 0, 64);
    put_padding(&w, 64);
    put_bytes(&w, (char[64]){0}, 64);
    put_bytes(&w, "12345678901234567890", 20);
}

static void a_whole_file_is_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf g;
        struct err e;
        uint8_t *copy;
        good_file(version);
        assert_int_equal(parse(&g, w.data, w.len, &copy, &e), 0);
        assert_int_equal(g.version, version);
        assert_int_equal(g.alignment, 64);
        assert_int_equal(g.n_kv, 15);
        const struct gguf_tensor *one = gguf_tensor(&g, "one"), *two = gguf_tensor(&g, "two");
        assert_int_equal(one->type, KERN_Q4_0);
        assert_int_equal(one->bytes, 54);
        assert_int_equal(one->dims[1], 3);
        assert_int_equal(one->dims[3], 1);
        assert_int_equal((uintptr_t)(one->data - copy) % 64, 0);
        assert_int_equal(two->bytes, 20);
        assert_memory_equal(two->data, "12345678901234567890", 20);
        assert_null(gguf_tensor(&g, "three"));
        const struct gguf_kv *kv = gguf_find(&g, "a.strings");
        const uint8_t *p = kv->data;
        assert_int_equal(kv->count, 3);
        assert_int_equal(gguf_next_string(&p).len, 1);
        assert_int_equal(gguf_next_string(&p).len, 0);
        assert_memory_equal(gguf_next_string(&p).s, "yz", 2);
        gguf_release(&g);
        free(copy);
    }
}

static void values_convert_only_when_they_fit(void **state)
{
    (void)state;
    struct gguf g;
    struct err e;
    uint8_t *copy;
    uint64_t u = 9;
    double d = 9;
    bool b = false;
    struct gguf_string s = {0};
    good_file(3);
    assert_int_equal(parse(&g, w.data, w.len, &copy, &e), 0);
    assert_int_equal(gguf_u64(&g, "a.u8", 255, &u, &e), 0);
    assert_int_equal(u, 200);
    assert_int_equal(gguf_u64(&g, "a.u16", UINT64_MAX, &u, &e), 0);
    assert_int_equal(u, 0x1234);
    assert_int_equal(gguf_u64(&g, "a.i32", 77, &u, &e), 0);
    assert_int_equal(u, 77);
    assert_int_equal(gguf_u64(&g, "a.u64", UINT64_MAX, &u, &e), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(gguf_u64(&g, "absent", 1, &u, &e), 1);
    assert_int_equal(gguf_f64(&g, "a.f32", &d, &e), 0);
    assert_true(d == 1.5);
    assert_int_equal(gguf_bool(&g, "a.bool", &b, &e), 0);
    assert_true(b);
    assert_int_equal(gguf_str(&g, "a.str", &s, &e), 0);
    assert_int_equal(s.len, 4);
    assert_int_equal(e.code, ERR_NONE);
    const char *bad[] = {"a.i8", "a.i16", "a.i64", "a.f32", "a.bool", "a.str", "a.strings"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        u = 9;
        assert_int_equal(gguf_u64(&g, bad[i], UINT64_MAX, &u, &e), -ERR_FORMAT);
        assert_non_null(strstr(e.msg, bad[i]));
        assert_int_equal(u, 9);
        err_clear(&e);
    }
    assert_int_equal(gguf_u64(&g, "a.u32", 4000000000u, &u, &e), -ERR_FORMAT);
    err_clear(&e);
    assert_int_equal(gguf_f64(&g, "a.f64", &d, &e), -ERR_FORMAT); /* a NaN */
    err_clear(&e);
    assert_int_equal(gguf_f64(&g, "a.u8", &d, &e), -ERR_FORMAT);
    err_clear(&e);
    assert_int_equal(gguf_bool(&g, "a.u8", &b, &e), -ERR_FORMAT);
    err_clear(&e);
    assert_int_equal(gguf_str(&g, "a.strings", &s, &e), -ERR_FORMAT);
    gguf_release(&g);
    free(copy);
}

static void every_prefix_of_a_file_is_an_error(void **state)
{
    (void)state;
    good_file(3);
    size_t whole = w.len;
    for (w.len = 0; w.len < whole; w.len++)
        refused("gguf: ");
    accepted();
}

static void any_changed_byte_is_read_or_refused(void **state)
{
    (void)state;
    good_file(3);
    size_t directory = w.len - 84;
    for (size_t i = 0; i < directory; i++)
        for (unsigned v = 0; v < 256; v += i < 400 ? 1 : 17) {
            struct gguf g;
            struct err e;
            uint8_t *copy, had = w.data[i];
            w.data[i] = (uint8_t)v;
            if (parse(&g, w.data, w.len, &copy, &e) == 0)
                gguf_release(&g);
            else
                assert_true(e.msg[0] != '\0');
            w.data[i] = had;
            free(copy);
        }
}

static void headers_that_lie_are_refused(void **state)
{
    (void)state;
    put_header(&w, 3, 0, 0), w.data[0] = 'g', refused("not a GGUF file");
    put_header(&w, 0, 0, 0), refused("version 0");
    put_header(&w, 1, 0, 0), refused("version 1");
    put_header(&w, 4, 0, 0), refused("version 4");
    put_header(&w, UINT32_MAX, 0, 0), refused("version 4294967295");
    put_header(&w, 3u << 24, 0, 0), refused("big-endian");
    put_header(&w, 2u << 24, 0, 0), refused("big-endian");
    put_header(&w, 3, UINT64_C(1) << 63, 0), refused("do not fit");
    put_header(&w, 3, 0, UINT64_C(1) << 63), refused("do not fit");
    put_header(&w, 3, UINT64_MAX, UINT64_MAX), refused("do not fit");
    put_header(&w, 3, 1, 0), refused("do not fit");
    put_header(&w, 3, 0, 1), refused("do not fit");
    put_header(&w, 3, 0, 0), accepted();
}

static void too_many_entries_are_a_limit(void **state)
{
    (void)state;
    size_t n = 14 * 70000 + 100;
    uint8_t *data = calloc(1, n);
    struct gguf g;
    struct err e = {0};
    assert_non_null(data);
    put_header(&w, 3, 0, 70000);
    memcpy(data, w.data, w.len);
    assert_int_equal(gguf_parse(&g, data, n, &e), -ERR_LIMIT);
    free(data);
}

/* A file with one pair whose key and value the caller adds. */
static void one_pair(void)
{
    put_header(&w, 3, 0, 1);
}

static void end_pair(const char *says)
{
    put_bytes(&w, (char[64]){0}, 64); /* so that "ends here" is not the reason */
    refused(says);
}

static void keys_and_values_that_lie_are_refused(void **state)
{
    (void)state;
    one_pair(), put_text(&w, "", 0), put_u32(&w, GGUF_U8), put_u8(&w, 1),
        end_pair("empty name");
    one_pair(), put_u64(&w, UINT64_MAX), end_pair("ends here");
    one_pair(), put_u64(&w, UINT64_C(1) << 40), end_pair("ends here");
    one_pair(), put_text(&w, "a\0b", 3), put_u32(&w, GGUF_U8), end_pair("control character");
    one_pair(), put_text(&w, "a\x1b[0m", 5), put_u32(&w, GGUF_U8),
        end_pair("control character");
    one_pair(), put_text(&w, "\xff\xfe", 2), put_u32(&w, GGUF_U8), end_pair("not UTF-8");
    one_pair(), put_text(&w, "\xed\xa0\x80", 3), put_u32(&w, GGUF_U8), end_pair("not UTF-8");
    one_pair(), put_key(&w, "k", 13), end_pair("value type 13");
    one_pair(), put_key(&w, "k", UINT32_MAX), end_pair("value type 4294967295");
    one_pair(), put_key(&w, "k", GGUF_BOOL), put_u8(&w, 2), end_pair("neither 0 nor 1");
    one_pair(), put_key(&w, "k", GGUF_STRING), put_u64(&w, UINT64_MAX), end_pair("ends here");
    one_pair(), put_key(&w, "k", GGUF_STRING), put_u64(&w, UINT64_MAX - 7),
        end_pair("ends here");
    one_pair(), put_array(&w, "k", GGUF_ARRAY, 1), end_pair("inside an array");
    one_pair(), put_array(&w, "k", 99, 1), end_pair("value type 99");
    one_pair(), put_array(&w, "k", GGUF_U64, UINT64_C(1) << 61), end_pair("do not fit");
    one_pair(), put_array(&w, "k", GGUF_U32, UINT64_C(1) << 62), end_pair("do not fit");
    one_pair(), put_array(&w, "k", GGUF_STRING, UINT64_C(1) << 61), end_pair("do not fit");
    one_pair(), put_array(&w, "k", GGUF_STRING, 2), put_str(&w, "a"), put_u64(&w, 1 << 30),
        end_pair("ends here");
    one_pair(), put_array(&w, "k", GGUF_BOOL, 3), put_bytes(&w, "\0\1\7", 3),
        end_pair("neither 0 nor 1");
    put_header(&w, 3, 0, 2);
    put_key(&w, "twice", GGUF_U8), put_u8(&w, 1), put_key(&w, "twice", GGUF_U8), put_u8(&w, 1);
    end_pair("key twice appears twice");
    char *key = calloc(1, 70000);
    assert_non_null(key);
    memset(key, 'k', 70000);
    one_pair(), put_text(&w, key, 65536), put_u32(&w, GGUF_U8),
        end_pair("a name of 65536 bytes");
    one_pair(), put_text(&w, key, 65535), put_u32(&w, GGUF_U8), put_u8(&w, 0), accepted();
    free(key);
}

static void alignment(uint32_t type, uint64_t value)
{
    one_pair(), put_key(&w, "general.alignment", type);
    if (type == GGUF_U64)
        put_u64(&w, value);
    else
        put_u32(&w, (uint32_t)value);
}

static void alignment_is_a_power_of_two_in_range(void **state)
{
    (void)state;
    alignment(GGUF_U32, 0), refused("alignment is 0");
    alignment(GGUF_U32, 3), refused("alignment is 3");
    alignment(GGUF_U32, 4), refused("alignment is 4");
    alignment(GGUF_U32, 1u << 17), refused("alignment is 131072");
    alignment(GGUF_U32, 1u << 31), refused("alignment is 2147483648");
    alignment(GGUF_U64, 32), refused("not a u32");
    one_pair(), put_key(&w, "general.alignment", GGUF_STRING), put_str(&w, "32"),
        refused("not a u32");
    one_pair(), put_array(&w, "general.alignment", GGUF_U32, 1), put_u32(&w, 32),
        refused("not a u32");
    alignment(GGUF_U32, 8), accepted();
    alignment(GGUF_U32, 65536), accepted();
}

/* One tensor with room behind it. */
static void one_tensor(const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset)
{
    put_header(&w, 3, 1, 0);
    put_tensor(&w, name, n_dims, dims, type, offset);
    put_padding(&w, 32);
    for (int i = 0; i < 256; i++)
        put_u8(&w, 0);
}

static void tensors_that_lie_are_refused(void **state)
{
    (void)state;
    const uint64_t one[1] = {8}, big = UINT64_C(1) << 40;
    char name[66];
    memset(name, 'n', 65);
    name[65] = '\0';
    one_tensor(name, 1, one, 0, 0), refused("a name of 65 bytes");
    one_tensor(name + 1, 1, one, 0, 0), accepted();
    one_tensor("", 1, one, 0, 0), refused("empty name");
    one_tensor("\xc3", 1, one, 0, 0), refused("not UTF-8");
    one_tensor("n", 1, one, 0, 0),
        w.data[32] = 0, refused("control character"); /* NUL for the name's only byte */
    one_tensor("t", 0, NULL, 0, 0), refused("0 dimensions");
    one_tensor("t", 5, (uint64_t[]){1, 1, 1, 1, 1}, 0, 0), refused("5 dimensions");
    put_header(&w, 3, 1, 0), put_str(&w, "t"), put_u32(&w, UINT32_MAX),
        put_bytes(&w, (char[64]){0}, 64);
    refused("4294967295 dimensions");
    one_tensor("t", 1, (uint64_t[]){0}, 0, 0), refused("dimension 0 is 0");
    one_tensor("t", 2, (uint64_t[]){8, 0}, 0, 0), refused("dimension 1 is 0");
    one_tensor("t", 1, (uint64_t[]){(UINT64_C(1) << 42) + 1}, 0, 0), refused("2^40");
    one_tensor("t", 1, (uint64_t[]){UINT64_MAX}, 0, 0), refused("2^40");
    one_tensor("t", 2, (uint64_t[]){big, big}, 0, 0), refused("more than 2^63");
    one_tensor("t", 4, (uint64_t[]){1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0, 0),
        refused("more than 2^63");
    one_tensor("t", 2, (uint64_t[]){big, 1 << 22}, 0, 0),
        refused("too large"); /* 2^62 values of 4 bytes */
    one_tensor("t", 1, (uint64_t[]){big}, 0, 0), refused("the file holds");
    one_tensor("t", 1, (uint64_t[]){33}, 2, 0), refused("multiple of 32, the block of Q4_0");
    one_tensor("t", 1, (uint64_t[]){128}, 12, 0), refused("multiple of 256");
    one_tensor("t", 1, (uint64_t[]){65}, 0, 0), refused("the file holds 256");
    one_tensor("t", 1, (uint64_t[]){64}, 0, 0), accepted();
    one_tensor("t", 1, (uint64_t[]){64}, 0, 32), refused("the file holds 256");
    one_tensor("t", 1, one, 0, 256), refused("the file holds 256");
    one_tensor("t", 1, one, 0, 1), refused("not a multiple of the alignment");
    one_tensor("t", 1, one, 0, UINT64_MAX - 31), refused("the file holds");
    one_tensor("t", 1, one, 0, UINT64_C(1) << 63), refused("the file holds");
    one_tensor("t", 1, one, UINT32_MAX, 0), refused("type number");
}

static void a_type_that_is_not_read_leaves_the_directory_valid(void **state)
{
    (void)state;
    struct gguf g;
    struct err e;
    uint8_t *copy;
    one_tensor("t", 1, (uint64_t[]){77}, 29, 0);
    assert_int_equal(parse(&g, w.data, w.len, &copy, &e), 0);
    assert_int_equal(g.tensors[0].type, -1);
    assert_int_equal(g.tensors[0].gguf_type_id, 29);
    assert_int_equal(g.tensors[0].bytes, 0);
    gguf_release(&g);
    free(copy);
    one_tensor("t", 1, (uint64_t[]){77}, 29, 256), refused("the file holds");
}

static void two_tensors(const char *a, uint64_t at_a, const char *b, uint64_t at_b)
{
    put_header(&w, 3, 2, 0);
    put_tensor(&w, a, 1, (uint64_t[]){16}, 0, at_a);
    put_tensor(&w, b, 1, (uint64_t[]){16}, 0, at_b);
    put_padding(&w, 32);
    put_bytes(&w, (char[256]){0}, 256);
}

static void tensors_do_not_overlap_and_have_names_of_their_own(void **state)
{
    (void)state;
    two_tensors("a", 0, "a", 64), refused("tensor a appears twice");
    two_tensors("a", 0, "b", 0), refused("overlap");
    two_tensors("a", 0, "b", 32), refused("overlap");
    two_tensors("a", 32, "b", 0), refused("overlap");
    two_tensors("a", 0, "b", 64), accepted();
    two_tensors("a", 128, "b", 0), accepted(); /* any order, gaps too */
}

static void sixty_thousand_tensors_take_no_time(void **state)
{
    (void)state;
    size_t n = 60000, cap = n * 64 + n * 32 + 1000, len;
    uint8_t *data = calloc(1, cap);
    struct gguf g;
    struct err e = {0};
    assert_non_null(data);
    put_header(&w, 3, n, 0);
    memcpy(data, w.data, len = w.len);
    for (size_t i = 0; i < n; i++) {
        char name[16];
        w.len = 0;
        snprintf(name, sizeof(name), "t%08zu", n - i);
        put_tensor(&w, name, 1, (uint64_t[]){8}, 0, (n - 1 - i) * 32);
        memcpy(data + len, w.data, w.len);
        len += w.len;
    }
    assert_int_equal(gguf_parse(&g, data, cap, &e), 0);
    gguf_release(&g);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file_is_read),
        cmocka_unit_test(values_convert_only_when_they_fit),
        cmocka_unit_test(every_prefix_of_a_file_is_an_error),
        cmocka_unit_test(any_changed_byte_is_read_or_refused),
        cmocka_unit_test(headers_that_lie_are_refused),
        cmocka_unit_test(too_many_entries_are_a_limit),
        cmocka_unit_test(keys_and_values_that_lie_are_refused),
        cmocka_unit_test(alignment_is_a_power_of_two_in_range),
        cmocka_unit_test(tensors_that_lie_are_refused),
        cmocka_unit_test(a_type_that_is_not_read_leaves_the_directory_valid),
        cmocka_unit_test(tensors_do_not_overlap_and_have_names_of_their_own),
        cmocka_unit_test(sixty_thousand_tensors_take_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

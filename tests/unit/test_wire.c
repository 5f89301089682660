/* Messages of readers: what is put is what is taken, and what no honest reader sends is refused. */
#include "stages/base/le.h"
#include "stages/base/mem.h"
#include "stages/ingest/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char **list(const char *a, const char *b)
{
    char **out = mem_need(3 * sizeof(char *));
    out[0] = a ? mem_strdup(a) : NULL;
    out[1] = b ? mem_strdup(b) : NULL;
    return out;
}

static struct doc *a_doc(void)
{
    struct doc *d = doc_new();
    strcpy(d->id, "00112233445566778899aabbccddeeff");
    memset(d->sha256, 0xa5, sizeof(d->sha256));
    d->bytes = 1234567890123;
    d->chain = list("a.zip", "b\xc3\xa9.txt");
    d->title = mem_strdup("");
    d->media_type = mem_strdup("text/plain");
    d->encoding = mem_strdup("UTF-8");
    d->status = DOC_PARTIAL;
    d->warnings = list("One.", NULL);
    d->text = mem_strdup("\xc3\xa9 one\n\ntwo");
    d->text_len = strlen(d->text);
    d->n_blocks = 2;
    d->blocks = mem_need(2 * sizeof(*d->blocks));
    d->blocks[0] = (struct block){.kind = BLOCK_HEADING, .level = 2, .end = 6, .part = -1};
    d->blocks[1] = (struct block){.kind = BLOCK_QUOTE, .begin = 8, .end = 11, .page = 3};
    return d;
}

static void put(struct buf *b, const struct doc *d)
{
    struct err e = {0};
    buf_init(b, 1 << 20);
    assert_int_equal(wire_put_head(b, d, &e), 0);
}

static int get(struct doc *d, const void *bytes, size_t n)
{
    struct err e = {0};
    int rc = wire_get_head(d, bytes, n, &e);
    assert_int_equal(rc, -(int)e.code);
    return rc;
}

static void a_head_comes_back_as_it_was(void **state)
{
    (void)state;
    struct doc *d = a_doc(), *back = doc_new();
    struct buf b, again;
    put(&b, d);
    assert_int_equal(get(back, b.data, b.len), 0);
    assert_string_equal(back->id, d->id);
    assert_memory_equal(back->sha256, d->sha256, sizeof(d->sha256));
    assert_int_equal(back->bytes, d->bytes);
    assert_int_equal(back->status, DOC_PARTIAL);
    assert_string_equal(back->title, "");
    assert_string_equal(back->chain[1], d->chain[1]);
    assert_null(back->chain[2]);
    assert_null(back->parts);
    assert_string_equal(back->warnings[0], "One.");
    put(&again, back);
    assert_int_equal(again.len, b.len);
    assert_memory_equal(again.data, b.data, b.len);
    buf_release(&b);
    buf_release(&again);
    doc_unref(d);
    doc_unref(back);
}

static void a_head_that_is_cut_or_longer_is_refused(void **state)
{
    (void)state;
    struct doc *d = a_doc();
    struct buf b;
    struct err e = {0};
    put(&b, d);
    for (size_t n = 0; n < b.len; n++) {
        struct doc *back = doc_new();
        uint8_t *exact = malloc(n ? n : 1); /* the sanitizer sees a read past it */
        memcpy(exact, b.data, n);
        assert_int_equal(get(back, exact, n), -ERR_CORRUPT);
        free(exact);
        doc_unref(back);
    }
    struct doc *back = doc_new();
    assert_int_equal(buf_addc(&b, '\0', &e), 0);
    assert_int_equal(get(back, b.data, b.len), -ERR_CORRUPT);
    doc_unref(back);
    buf_release(&b);
    doc_unref(d);
}

/* The same document with one byte changed from `was`. */
static void refuses(size_t at, uint8_t was, uint8_t now)
{
    struct doc *d = a_doc(), *back = doc_new();
    struct buf b;
    put(&b, d);
    assert_int_equal((uint8_t)b.data[at], was);
    b.data[at] = (char)now;
    assert_int_equal(get(back, b.data, b.len), -ERR_CORRUPT);
    buf_release(&b);
    doc_unref(d);
    doc_unref(back);
}

static void fields_out_of_range_are_refused(void **state)
{
    (void)state;
    refuses(56, DOC_PARTIAL, DOC_STATUS_COUNT);
    refuses(56, DOC_PARTIAL, DOC_FAILED); /* without a reason */
    refuses(57, ERR_NONE, ERR_IO);        /* a reason without a failure */
    refuses(57, ERR_NONE, ERR_CODE_COUNT);
    refuses(61, 0, 0xff);   /* a string longer than all */
    refuses(70, 't', 0xff); /* not UTF-8 */
    refuses(70, 't', '\0'); /* a NUL inside a string */
}

static int check(struct doc *d)
{
    struct err e = {0};
    int rc = wire_check_doc(d, &e);
    doc_unref(d);
    return rc;
}

static void texts_and_blocks_are_checked(void **state)
{
    (void)state;
    struct doc *d = a_doc();
    assert_int_equal(check(d), 0);
    (d = a_doc())->blocks[0].begin = 1; /* inside a character */
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->blocks[1].end = 12;
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->blocks[1].begin = 5; /* before the end of the other */
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->blocks[1].end = SIZE_MAX;
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->blocks[1].kind = (enum block_kind)99;
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->blocks[0].level = -1;
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->text[3] = '\0';
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->text[0] = 'x';
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->n_blocks = 0;
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->status = DOC_OK; /* but with warnings */
    assert_int_equal(check(d), -ERR_CORRUPT);
    (d = a_doc())->status = DOC_FAILED; /* but with a text */
    assert_int_equal(check(d), -ERR_CORRUPT);
}

static int header(uint32_t kind, uint64_t head, uint64_t text, uint64_t blocks)
{
    uint8_t bytes[WIRE_HEADER];
    struct wire_limits l = wire_limits(1 << 20);
    struct wire_header h = {kind, 7, head, text, blocks}, back;
    struct err e = {0};
    wire_put_header(bytes, &h);
    int rc = wire_get_header(&back, bytes, &l, &e);
    if (rc == 0) {
        assert_int_equal(back.bytes_read, 7);
        assert_int_equal(back.head_bytes, head);
        assert_int_equal(back.text_bytes, text);
        assert_int_equal(back.n_blocks, blocks);
    }
    return rc;
}

static void headers_over_the_limits_are_refused(void **state)
{
    (void)state;
    struct wire_limits l = wire_limits(1 << 20);
    assert_int_equal(header(WIRE_DOC, 10, 20, 1), 0);
    assert_int_equal(header(WIRE_DOC, l.head, l.text, l.blocks), 0);
    assert_int_equal(header(WIRE_END, 0, 0, 0), 0);
    assert_int_equal(header(WIRE_END, 1, 0, 0), -ERR_CORRUPT);
    assert_int_equal(header(0, 0, 0, 0), -ERR_CORRUPT);
    assert_int_equal(header(3, 0, 0, 0), -ERR_CORRUPT);
    assert_int_equal(header(WIRE_DOC, l.head + 1, 0, 0), -ERR_CORRUPT);
    assert_int_equal(header(WIRE_DOC, 0, l.text + 1, 0), -ERR_CORRUPT);
    assert_int_equal(header(WIRE_DOC, 0, 0, UINT64_MAX), -ERR_CORRUPT);
}

static void a_request_comes_back_as_it_was(void **state)
{
    (void)state;
    struct blame blames[2] = {
        {.spot = {.n = 2, .path = {3, 1LL << 40}}, .why = {ERR_LIMIT, REACH_DOC, "slow"}},
        {.spot = {.n = 1, .head = true, .path = {9}}, .why = {ERR_BUG, REACH_DOC, "gone"}}};
    struct wire_request q = {.file = 5,
                             .known = 77,
                             .path = "in/a\xff.zip",
                             .name_at = 3,
                             .blames = blames,
                             .n_blames = 2};
    for (int closed = 0; closed < 2; closed++) {
        struct blame got[WIRE_BLAMES];
        struct wire_request back;
        struct err e = {0};
        struct buf b;
        q.why = closed ? "cannot" : NULL;
        buf_init(&b, WIRE_REQUEST_MAX);
        assert_int_equal(wire_put_request(&b, &q, &e), 0);
        assert_int_equal(wire_get_request(&back, got, (uint8_t *)b.data, b.len, &e), 0);
        assert_int_equal(back.file, 5);
        assert_int_equal(back.known, 77);
        assert_string_equal(back.path, q.path);
        assert_int_equal(back.name_at, 3);
        assert_int_equal(back.n_blames, 2);
        assert_true(spot_equal(&got[0].spot, &blames[0].spot));
        assert_true(spot_equal(&got[1].spot, &blames[1].spot));
        assert_false(spot_equal(&got[0].spot, &got[1].spot));
        assert_string_equal(got[0].why.msg, "slow");
        assert_int_equal(got[1].why.code, ERR_BUG);
        assert_true(closed ? back.why && strcmp(back.why, "cannot") == 0 : !back.why);
        for (size_t n = 0; n < b.len; n++) {
            struct err bad = {0};
            assert_int_equal(wire_get_request(&back, got, (uint8_t *)b.data, n, &bad),
                             -ERR_BUG);
        }
        buf_release(&b);
    }
}

static void a_board_gives_the_last_spot_that_was_whole(void **state)
{
    (void)state;
    struct board b = {0};
    struct spot s = {.n = 1, .path = {4}}, back;
    uint64_t file;
    char said[16];
    assert_false(board_read(&b, &file, &s));
    s = (struct spot){.n = 1, .path = {4}};
    board_post(&b, 9, &s);
    b.posts[(board_turn(&b) + 1) % 2].spot.n = 77; /* the next, cut by death */
    assert_true(board_read(&b, &file, &back));
    assert_int_equal(file, 9);
    assert_true(spot_equal(&s, &back));
    b.posts[board_turn(&b) % 2].spot.n = SPOT_DEPTH + 1;
    assert_false(board_read(&b, &file, &back));
    b.posts[board_turn(&b) % 2].spot.n = -1;
    assert_false(board_read(&b, &file, &back));
    memset(b.said, 'x', sizeof(b.said)); /* no end */
    board_said(&b, said, sizeof(said));
    assert_string_equal(said, "xxxxxxxxxxxxxxx");
    board_clear(&b);
    board_said(&b, said, sizeof(said));
    assert_string_equal(said, "");
    assert_false(board_read(&b, &file, &back));
}

/* Every string of both kinds of message, in turn. */
static void a_want_of_memory_is_not_taken_for_nonsense(void **state)
{
    (void)state;
    struct doc *d = a_doc();
    struct blame blame = {.spot = {.n = 1, .path = {3}}, .why = {ERR_LIMIT, REACH_DOC, "slow"}},
                 got[WIRE_BLAMES];
    struct wire_request q = {.file = 1, .path = "a", .blames = &blame, .n_blames = 1}, taken;
    struct buf b, request;
    struct err e = {0};
    int rc = -ERR_NOMEM;
    long k = 0;
    put(&b, d);
    buf_init(&request, WIRE_REQUEST_MAX);
    assert_int_equal(wire_put_request(&request, &q, &e), 0);
    while (rc == -ERR_NOMEM) {
        struct doc *back = doc_new();
        mem_fail_after(++k);
        rc = get(back, b.data, b.len);
        mem_fail_after(0);
        doc_unref(back);
    }
    assert_int_equal(rc, 0);
    assert_true(k > 5);
    mem_fail_after(1);
    rc = wire_get_request(&taken, got, (uint8_t *)request.data, request.len, &e);
    mem_fail_after(0);
    assert_int_equal(rc, -ERR_NOMEM);
    buf_release(&request);
    buf_release(&b);
    doc_unref(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_comes_back_as_it_was),
        cmocka_unit_test(a_head_that_is_cut_or_longer_is_refused),
        cmocka_unit_test(fields_out_of_range_are_refused),
        cmocka_unit_test(texts_and_blocks_are_checked),
        cmocka_unit_test(headers_over_the_limits_are_refused),
        cmocka_unit_test(a_request_comes_back_as_it_was),
        cmocka_unit_test(a_want_of_memory_is_not_taken_for_nonsense),
        cmocka_unit_test(a_board_gives_the_last_spot_that_was_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

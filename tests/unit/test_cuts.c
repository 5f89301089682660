/* Pieces cover the text once, stay in their room, and cost a linear amount of counting. */
#include "stages/chunk/cuts.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/chunk/headings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A counter for tests: a token per word (with the space before it), four letters at most; bytes counted. */
struct counter {
    int64_t room;
    size_t bytes;
    int calls;
};

static int64_t count_words(void *ctx, const char *text, size_t len)
{
    struct counter *c = ctx;
    c->bytes += len;
    c->calls++;
    int64_t n = 0;
    for (size_t i = 0, run = 4; i < len; i++, run++)
        if (text[i] == ' ' || text[i] == '\n' || run >= 4) {
            n++;
            run = 0;
        }
    return n;
}

/* Cheap lower-case, dear everything else: bytes per token jump by 24. */
static int64_t count_uneven(void *ctx, const char *text, size_t len)
{
    struct counter *c = ctx;
    c->bytes += len;
    c->calls++;
    int64_t thirds = 0;
    for (size_t i = 0; i < len; i++)
        thirds += text[i] >= 'a' && text[i] <= 'z' ? 1 : 24;
    return (thirds + 7) / 8;
}

static int64_t room(void *ctx, size_t begin)
{
    (void)begin;
    return ((struct counter *)ctx)->room;
}

static struct piece_list cut(const char *text, size_t len, struct counter *c,
                             int64_t (*count)(void *, const char *, size_t), int min_tokens)
{
    struct cut_text t = {.text = text, .len = len};
    struct cut_rules r = {.ctx = c, .count = count, .room = room, .min_tokens = min_tokens};
    struct piece_list l = {0};
    struct err e = {0};
    assert_int_equal(cuts_make(&t, &r, 0, &l, &e), 0);
    size_t at = 0;
    struct counter check = {0};
    for (size_t i = 0; i < l.n; i++) {
        assert_int_equal(l.items[i].begin, at);
        assert_true(l.items[i].end > at);
        assert_true(utf8_is_boundary(text, len, l.items[i].end));
        assert_int_equal(l.items[i].tokens, count(&check, text + at, l.items[i].end - at));
        assert_true(l.items[i].tokens <= c->room);
        at = l.items[i].end;
    }
    assert_int_equal(at, len);
    return l;
}

static char *sentences(size_t n, size_t *len)
{
    char *text = malloc(n * 80 + 1), *p = text;
    for (size_t i = 0; i < n; i++)
        p += sprintf(p, "Sentence %zu has %s words than the one before it.%s", i,
                     i % 3 ? "more" : "fewer", i % 7 == 6 ? "\n\n" : " ");
    *len = (size_t)(p - text);
    return text;
}

static void prose_is_cut_at_sentences_and_paragraphs(void **state)
{
    (void)state;
    size_t len;
    char *text = sentences(2000, &len);
    struct counter c = {.room = 150};
    struct piece_list l = cut(text, len, &c, count_words, 0);
    assert_true(l.n > 100);
    for (size_t i = 0; i < l.n; i++)
        assert_true(l.items[i].rank >= BOUNDARY_SENTENCE);
    for (size_t i = 0; i + 1 < l.n; i++)
        assert_true(l.items[i].tokens >= 60); /* the second half of the room is used */
    piece_list_release(&l);
    free(text);
}

static void what_fits_is_one_piece(void **state)
{
    (void)state;
    struct counter c = {.room = 6};
    struct piece_list l = cut("one two three", 13, &c, count_words, 0);
    assert_int_equal(l.n, 1);
    piece_list_release(&l);
}

static void a_word_of_half_a_megabyte_and_a_text_of_ten_work_in_linear_time(void **state)
{
    (void)state;
    size_t len = 512 << 10;
    char *word = malloc(len);
    memset(word, 'x', len);
    struct counter c = {.room = 1500};
    struct piece_list l = cut(word, len, &c, count_words, 64);
    assert_true(l.n >= len / 6000 && l.n <= len / 5000);
    assert_true(c.bytes < 5 * len);
    piece_list_release(&l);
    free(word);

    char *text = sentences(10000000 / 54, &len);
    c = (struct counter){.room = 1500};
    l = cut(text, len, &c, count_words, 64);
    assert_true(c.bytes < 5 * len);
    piece_list_release(&l);
    free(text);
}

static void a_text_that_changes_its_nature_costs_a_few_counts_more(void **state)
{
    (void)state;
    size_t len = 400000;
    char *text = malloc(len);
    for (size_t i = 0; i < len; i++)
        text[i] = i / 3000 % 2 ? 'x' : '#';
    struct counter c = {.room = 500};
    struct piece_list l = cut(text, len, &c, count_uneven, 0);
    assert_true(c.bytes < 20 * len);
    piece_list_release(&l);
    free(text);
}

static void one_byte_tokens_and_rooms_of_one_work(void **state)
{
    (void)state;
    struct counter c = {.room = 4};
    struct piece_list l =
        cut("\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 12, &c, count_words, 0);
    piece_list_release(&l);
    c.room = 1;
    l = cut("abcdefghij", 10, &c, count_words, 0);
    assert_int_equal(l.n, 3);
    piece_list_release(&l);
}

static void a_character_over_the_room_is_a_named_failure(void **state)
{
    (void)state;
    struct counter c = {.room = 2};
    struct cut_text t = {.text = "##", .len = 2};
    struct cut_rules r = {.ctx = &c, .count = count_uneven, .room = room};
    struct piece_list l = {0};
    struct err e = {0};
    assert_int_equal(cuts_make(&t, &r, 0, &l, &e), -ERR_LIMIT);
    assert_non_null(strstr(e.msg, "room for 2 tokens"));
    assert_non_null(strstr(e.msg, "model.context"));
    piece_list_release(&l);
}

static void a_short_last_piece_is_evened_out(void **state)
{
    (void)state;
    size_t len;
    char *text = sentences(12, &len);
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == '\n' ? ' ' : text[i];
    struct counter c = {.room = 1};
    int64_t all = count_words(&c, text, len);
    c.room = all - 8;
    struct piece_list l = cut(text, len, &c, count_words, 0);
    assert_int_equal(l.n, 2);
    assert_true(l.items[1].tokens < 40);
    piece_list_release(&l);
    l = cut(text, len, &c, count_words, 60);
    assert_int_equal(l.n, 2);
    assert_true(l.items[1].tokens >= all / 3);
    piece_list_release(&l);
    free(text);
}

static void the_limit_stops_early(void **state)
{
    (void)state;
    size_t len;
    char *text = sentences(200000, &len);
    struct counter c = {.room = 100};
    struct cut_text t = {.text = text, .len = len};
    struct cut_rules r = {.ctx = &c, .count = count_words, .room = room};
    struct piece_list l = {0};
    struct err e = {0};
    assert_int_equal(cuts_make(&t, &r, 1, &l, &e), 0);
    assert_int_equal(l.n, 1);
    assert_true(l.items[0].end < len);
    assert_true(c.bytes < 4000);
    piece_list_release(&l);
    free(text);
}

static void heading_paths_name_what_is_open_and_stay_short(void **state)
{
    (void)state;
    char text[2048] = "";
    struct block b[12];
    int n = 0;
    size_t at = 0;
    int levels[] = {1, 2, 3, 2, 0};
    for (int i = 0; i < 5; i++) {
        b[n] = (struct block){.kind = levels[i] ? BLOCK_HEADING : BLOCK_PARAGRAPH,
                              .level = levels[i],
                              .begin = at};
        at += (size_t)sprintf(text + at, "H%d of\n level  %d", i, levels[i]);
        b[n++].end = at;
        text[at++] = '\n';
    }
    struct doc d = {.text = text, .text_len = at, .blocks = b, .n_blocks = (size_t)n};
    struct headings h = {.doc = &d};
    char *path = heading_path(&h, b[2].begin + 1);
    assert_string_equal(path, "H0 of level 1 > H1 of level 2 > H2 of level 3");
    free(path);
    path = heading_path(&h, b[4].begin);
    assert_string_equal(path, "H0 of level 1 > H3 of level 2");
    free(path);
    path = heading_path(&h, b[1].begin); /* back again */
    assert_string_equal(path, "H0 of level 1 > H1 of level 2");
    free(path);
    d.n_blocks = 0;
    h = (struct headings){.doc = &d};
    assert_null(heading_path(&h, 5));

    n = 0;
    at = 0;
    for (int i = 0; i < 9; i++) {
        b[n] = (struct block){.kind = BLOCK_HEADING, .level = i + 1, .begin = at};
        for (int k = 0; k < 60; k++)
            at += (size_t)sprintf(text + at, "\xc3\xa9");
        b[n++].end = at;
        text[at++] = '\n';
    }
    d = (struct doc){.text = text, .text_len = at, .blocks = b, .n_blocks = 9};
    h = (struct headings){.doc = &d};
    path = heading_path(&h, at);
    assert_true(strlen(path) <= HEADING_PATH_BYTES);
    assert_non_null(strstr(path, " > ... > "));
    assert_int_equal(utf8_valid_prefix(path, strlen(path)), strlen(path));
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prose_is_cut_at_sentences_and_paragraphs),
        cmocka_unit_test(what_fits_is_one_piece),
        cmocka_unit_test(a_word_of_half_a_megabyte_and_a_text_of_ten_work_in_linear_time),
        cmocka_unit_test(a_text_that_changes_its_nature_costs_a_few_counts_more),
        cmocka_unit_test(one_byte_tokens_and_rooms_of_one_work),
        cmocka_unit_test(a_character_over_the_room_is_a_named_failure),
        cmocka_unit_test(a_short_last_piece_is_evened_out),
        cmocka_unit_test(the_limit_stops_early),
        cmocka_unit_test(heading_paths_name_what_is_open_and_stay_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

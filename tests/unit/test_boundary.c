/* Where a text may be cut: ranks of single places, and the choice among them. */
#include "stages/chunk/boundary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Rank of the place marked with '|' in the text; no blocks. */
static enum boundary rank_of(const char *marked)
{
    static char text[4096];
    const char *bar = strchr(marked, '|');
    size_t p = (size_t)(bar - marked);
    memcpy(text, marked, p);
    strcpy(text + p, bar + 1);
    /* One paragraph block over all of it, as ingest would make. */
    struct block b = {.kind = BLOCK_PARAGRAPH, .begin = 0, .end = strlen(text), .part = -1};
    struct cut_text t = {.text = text, .len = strlen(text), .blocks = &b, .n_blocks = 1};
    return boundary_rank(&t, p);
}

static void sentences_end_at_full_stops_and_other_marks(void **state)
{
    (void)state;
    assert_int_equal(rank_of("It rained. |We stayed."), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("Did it rain? |Yes."), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("Rain!  |Again."), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("He said \"stop.\" |She went on."), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("(It rained.) |We stayed."), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("And then... |Nothing."), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("It rained.\n|We stayed."), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("Это дождь. |Мы остались."), BOUNDARY_SENTENCE);
}

static void abbreviations_capitals_and_numbers_end_no_sentence(void **state)
{
    (void)state;
    assert_int_equal(rank_of("Dr. |Smith came."), BOUNDARY_WORD);
    assert_int_equal(rank_of("See e.g. |Smith."), BOUNDARY_WORD);
    assert_int_equal(rank_of("J. |Smith came."), BOUNDARY_WORD);
    assert_int_equal(rank_of("See (Fig. |A) there."), BOUNDARY_WORD);
    assert_int_equal(rank_of("1. |Introduction"), BOUNDARY_WORD);
    assert_int_equal(rank_of("version 3.|5 is out"), BOUNDARY_CODE_POINT);
    assert_int_equal(rank_of("It stopped. |then went on"), BOUNDARY_WORD);
    assert_int_equal(rank_of("Vgl. |Band zwei."), BOUNDARY_WORD);
}

static void wide_marks_need_no_space(void **state)
{
    (void)state;
    assert_int_equal(rank_of("今天下雨。|我们留下。"), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("下雨了吗？|是的。"), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("「下雨。」|我们留下。"), BOUNDARY_SENTENCE);
    assert_int_equal(rank_of("「下雨。|」我们留下。"), BOUNDARY_CODE_POINT);
    assert_int_equal(rank_of("今天，|下雨。"), BOUNDARY_CLAUSE);
    assert_int_equal(rank_of("今|天下雨。"), BOUNDARY_CODE_POINT);
}

static void clauses_words_and_the_inside_of_words(void **state)
{
    (void)state;
    assert_int_equal(rank_of("It rained, |we stayed."), BOUNDARY_CLAUSE);
    assert_int_equal(rank_of("It rained; |we stayed."), BOUNDARY_CLAUSE);
    assert_int_equal(rank_of("It |rained"), BOUNDARY_WORD);
    assert_int_equal(rank_of("It| rained"), BOUNDARY_CODE_POINT);
    assert_int_equal(rank_of("It ra|ined"), BOUNDARY_CODE_POINT);
    assert_int_equal(rank_of("1,|000"), BOUNDARY_CODE_POINT);
    assert_int_equal(rank_of("one\n\n|two"), BOUNDARY_PARAGRAPH);
    assert_int_equal(rank_of("hard wrapped\n|text"), BOUNDARY_WORD);
}

static void inside_of_a_code_point_is_no_boundary(void **state)
{
    (void)state;
    const char *text = "a\xc3\xa9z";
    struct cut_text t = {.text = text, .len = 4};
    assert_int_equal(boundary_rank(&t, 1), BOUNDARY_CODE_POINT);
    assert_int_equal(boundary_rank(&t, 2), BOUNDARY_NONE);
    assert_int_equal(boundary_rank(&t, 3), BOUNDARY_CODE_POINT);
}

static const char page[] = "Title\n\nIntro text.\n\nSection\n\nBody one.\n\n- item\n- "
                           "item\n\na|b\nc|d\n\ncode;\nmore;\n";
enum { TITLE, INTRO, SECTION, BODY, ITEM_1, ITEM_2, ROW_1, ROW_2, CODE, N_BLOCKS };

static struct cut_text blocks_of_page(struct block b[N_BLOCKS])
{
    static const struct {
        const char *begin, *end;
        enum block_kind kind;
        int level;
    } spans[N_BLOCKS] = {
        {"Title", "Title", BLOCK_HEADING, 1},
        {"Intro", "text.", BLOCK_PARAGRAPH, 0},
        {"Section", "Section", BLOCK_HEADING, 2},
        {"Body", "one.", BLOCK_PARAGRAPH, 0},
        {"- item\n- ", "- item", BLOCK_LIST_ITEM, 1},
        {"- item\n\n", "- item", BLOCK_LIST_ITEM, 1},
        {"a|b", "a|b", BLOCK_TABLE_ROW, 0},
        {"c|d", "c|d", BLOCK_TABLE_ROW, 0},
        {"code;", "more;", BLOCK_CODE, 0},
    };
    for (int i = 0; i < N_BLOCKS; i++) {
        const char *begin = strstr(page, spans[i].begin), *end = strstr(begin, spans[i].end);
        b[i] = (struct block){.kind = spans[i].kind,
                              .level = spans[i].level,
                              .begin = (size_t)(begin - page),
                              .end = (size_t)(end - page) + strlen(spans[i].end),
                              .part = -1};
    }
    return (struct cut_text){
        .text = page, .len = strlen(page), .blocks = b, .n_blocks = N_BLOCKS};
}

static void blocks_rank_by_kind_and_headings_keep_what_follows(void **state)
{
    (void)state;
    struct block b[N_BLOCKS];
    struct cut_text t = blocks_of_page(b);
    assert_int_equal(boundary_rank(&t, b[INTRO].begin), BOUNDARY_WORD);
    assert_int_equal(boundary_rank(&t, b[SECTION].begin), BOUNDARY_HEADING + 7);
    assert_int_equal(boundary_rank(&t, b[BODY].begin), BOUNDARY_WORD);
    assert_int_equal(boundary_rank(&t, b[ITEM_1].begin), BOUNDARY_PARAGRAPH);
    assert_int_equal(boundary_rank(&t, b[ITEM_2].begin), BOUNDARY_LINE);
    assert_int_equal(boundary_rank(&t, b[ROW_1].begin), BOUNDARY_PARAGRAPH);
    assert_int_equal(boundary_rank(&t, b[ROW_2].begin), BOUNDARY_LINE);
    assert_int_equal(boundary_rank(&t, b[CODE].begin + 6), BOUNDARY_LINE);
}

static void the_highest_of_the_second_half_is_chosen(void **state)
{
    (void)state;
    struct block b[N_BLOCKS];
    struct cut_text t = blocks_of_page(b);
    enum boundary rank;
    size_t at = boundary_choose(&t, 0, b[BODY].end, &rank);
    assert_int_equal(at, b[SECTION].begin);
    at = boundary_choose(&t, b[BODY].begin, b[ROW_2].end, &rank);
    assert_int_equal(at, b[ROW_1].begin);
    assert_int_equal(rank, BOUNDARY_PARAGRAPH);
}

static void without_a_better_place_a_cluster_stays_whole(void **state)
{
    (void)state;
    /* e + combining acute, a family of three joined by ZWJ, a flag: no cut inside of any. */
    const char *text =
        "xxxxe\xcc\x81\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"
        "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa";
    struct cut_text t = {.text = text, .len = strlen(text)};
    enum boundary rank;
    for (size_t limit = 1; limit < t.len; limit++) {
        size_t at = boundary_choose(&t, 0, limit, &rank);
        bool border = at <= 4 || at == 7 || at == 25;
        assert_true(border);
    }
    /* One cluster alone: better a cut at a code point than none. */
    assert_int_equal(boundary_choose(&t, 7, 20, &rank), 18);
    assert_int_equal(rank, BOUNDARY_CODE_POINT);
    assert_int_equal(boundary_choose(&t, 7, 9, &rank), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_end_at_full_stops_and_other_marks),
        cmocka_unit_test(abbreviations_capitals_and_numbers_end_no_sentence),
        cmocka_unit_test(wide_marks_need_no_space),
        cmocka_unit_test(clauses_words_and_the_inside_of_words),
        cmocka_unit_test(inside_of_a_code_point_is_no_boundary),
        cmocka_unit_test(blocks_rank_by_kind_and_headings_keep_what_follows),
        cmocka_unit_test(the_highest_of_the_second_half_is_chosen),
        cmocka_unit_test(without_a_better_place_a_cluster_stays_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

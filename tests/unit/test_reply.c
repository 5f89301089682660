/* How an answer ends and what of it is kept. The vocabulary is a token per byte, so every stop string and
 * every code point falls on token borders of the worst kind. */
#include "stages/decode/reply.h"

#include "stages/base/mem.h"
#include "stages/decode/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EOS = 257 };

struct fixture {
    struct vocab *vocab;
    struct decode_config config;
    struct reply_rules rules;
    char stop_texts[3][16];
    char *stops[3];
};

static void add_stop(struct fixture *f, const char *text)
{
    size_t i = f->config.stop.n++;
    strcpy(f->stop_texts[i], text);
    f->stops[i] = f->stop_texts[i];
}

static void set_up(struct fixture *f, bool thinks)
{
    memset(f, 0, sizeof(*f));
    f->vocab = vocab_bytes();
    f->config = (struct decode_config){.stop_repetition = true, .stop = {.items = f->stops}};
    reply_rules_init(&f->rules, &f->config, f->vocab, NULL);
    if (thinks) {
        f->rules.think_open = "<think>";
        f->rules.think_close = "</think>";
    }
}

/* Feeds text byte by byte and then the end token, until the answer ends. */
static struct answer write_answer(struct fixture *f, const char *prompt, const char *text,
                                  int max_tokens)
{
    int32_t *tokens = mem_alloc((size_t)max_tokens * sizeof(*tokens)), p[64];
    int n_prompt = 0;
    for (; prompt[n_prompt]; n_prompt++)
        p[n_prompt] = (unsigned char)prompt[n_prompt];
    struct reply r;
    struct err e = {0};
    struct answer a;
    assert_int_equal(reply_open(&r, &f->rules, p, n_prompt, tokens, max_tokens, &e), 0);
    for (const char *c = text; r.stopped_by == STOP_NONE; c += *c != '\0')
        assert_int_equal(reply_add(&r, *c ? (unsigned char)*c : EOS, &e), 0);
    assert_int_equal(reply_answer(&r, &a, &e), 0);
    reply_close(&r);
    free(tokens);
    return a;
}

static void check(struct fixture *f, const char *prompt, const char *text, int max_tokens,
                  const char *want, enum stopped_by by, unsigned flags)
{
    struct answer a = write_answer(f, prompt, text, max_tokens);
    assert_string_equal(a.text, want);
    assert_int_equal(a.len, strlen(want));
    assert_int_equal(a.stopped_by, by);
    assert_int_equal(a.flags, flags);
    free(a.text);
}

static void an_end_token_ends_and_is_counted(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    struct answer a = write_answer(&f, "", "  A short answer.\n", 100);
    assert_string_equal(a.text, "A short answer.");
    assert_int_equal(a.n_tokens, 19);
    assert_int_equal(a.stopped_by, STOP_EOS);
    assert_int_equal(a.flags, 0);
    free(a.text);
    check(&f, "", " \n ", 100, "", STOP_EOS, ANSWER_EMPTY);
    vocab_free(f.vocab);
}

static void max_tokens_truncates_and_says_so(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    check(&f, "", "0123456789", 4, "0123", STOP_MAX_TOKENS, ANSWER_TRUNCATED);
    check(&f, "", "0123", 5, "0123", STOP_EOS, 0);
    /* Inside of a code point: the part of it is dropped. */
    check(&f, "", "ab\xf0\x9f\x98\x80", 5, "ab", STOP_MAX_TOKENS, ANSWER_TRUNCATED);
    check(&f, "", "ab\xf0\x9f\x98\x80", 6, "ab\xf0\x9f\x98\x80", STOP_MAX_TOKENS,
          ANSWER_TRUNCATED);
    vocab_free(f.vocab);
}

static void stop_strings_end_across_tokens_and_code_points(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    add_stop(&f, "END");
    add_stop(&f, "\xc3\xa9\xc3\xa9");
    add_stop(&f, "");
    check(&f, "", "text E EN END more", 100, "text E EN", STOP_STRING, 0);
    check(&f, "", "caf\xc3\xa9 \xc3\xa9\xc3\xa9 more", 100, "caf\xc3\xa9", STOP_STRING, 0);
    check(&f, "", "EEND", 100, "E", STOP_STRING, 0);
    check(&f, "", "END", 100, "", STOP_STRING, ANSWER_EMPTY);
    check(&f, "", "EN", 100, "EN", STOP_EOS, 0);
    /* At the last token that is allowed the stop string wins. */
    check(&f, "", "abEND", 5, "ab", STOP_STRING, 0);
    vocab_free(f.vocab);
}

static void thinking_is_dropped_or_kept_and_counted(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, true);
    add_stop(&f, "stop");
    struct answer a = write_answer(&f, "", "\n<think>do not stop</think>\n\nAnswer.", 100);
    assert_string_equal(a.text, "Answer.");
    assert_int_equal(a.n_thinking, 27);
    assert_int_equal(a.flags, ANSWER_THINKING);
    free(a.text);
    check(&f, "", "No thinking.", 100, "No thinking.", STOP_EOS, 0);
    check(&f, "", "A <think> later is text", 100, "A <think> later is text", STOP_EOS, 0);
    check(&f, "", "<thin ice", 100, "<thin ice", STOP_EOS, 0);
    check(&f, "", "<think>x</think>a stop", 100, "a", STOP_STRING, ANSWER_THINKING);
    check(&f, "header<think>\n", "reason</think>Answer", 100, "Answer", STOP_EOS,
          ANSWER_THINKING);
    check(&f, "header", "reason</think>Answer", 100, "reason</think>Answer", STOP_EOS, 0);
    f.config.thinking = THINKING_KEEP;
    check(&f, "", "<think>x</think> Answer.", 100, "<think>x</think> Answer.", STOP_EOS, 0);
    vocab_free(f.vocab);
}

static void thinking_without_end_leaves_an_empty_answer_with_its_tokens_counted(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, true);
    struct answer a = write_answer(&f, "", "<think>on and on", 12);
    assert_string_equal(a.text, "");
    assert_int_equal(a.n_tokens, 12);
    assert_int_equal(a.n_thinking, 12);
    assert_int_equal(a.flags, ANSWER_EMPTY | ANSWER_THINKING | ANSWER_TRUNCATED);
    free(a.text);
    vocab_free(f.vocab);
}

static void a_loop_is_stopped_in_time_and_one_instance_stays(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    char text[4000] = "It begins well. ";
    for (int i = 0; i < 40; i++)
        strcat(text, "And then it says the same thing. ");
    struct answer a = write_answer(&f, "", text, 3000);
    assert_string_equal(a.text, "It begins well. And then it says the same thing.");
    assert_int_equal(a.stopped_by, STOP_REPETITION);
    assert_int_equal(a.flags, ANSWER_REPETITIVE);
    assert_true(a.n_tokens <= 16 + 3 * 33); /* three copies */
    free(a.text);
    f.config.stop_repetition = false;
    a = write_answer(&f, "", text, 3000);
    assert_int_equal(a.stopped_by, STOP_EOS);
    free(a.text);
    /* A loop inside of thinking: nothing is left. */
    vocab_free(f.vocab);
    set_up(&f, true);
    strcpy(text, "<think>");
    for (int i = 0; i < 40; i++)
        strcat(text, "And then it says the same thing. ");
    check(&f, "", text, 3000, "", STOP_REPETITION,
          ANSWER_EMPTY | ANSWER_REPETITIVE | ANSWER_THINKING);
    vocab_free(f.vocab);
}

static void answers_are_valid_utf8_without_nul(void **state)
{
    (void)state;
    static const struct {
        const char *raw;
        size_t len;
        const char *want;
    } cases[] = {
        {"a\xff\x62", 3, "a\xef\xbf\xbd\x62"},
        {"a\0b", 3, "ab"},
        {"\xe2\x82", 2, ""},
        {"\xe2\x82 x", 4, "\xef\xbf\xbd x"},
        {"x\xed\xa0\x80y", 5, "x\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdy"},
        {"  \t\n", 4, ""},
        {"", 0, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t len;
        char *s = answer_clean(cases[i].raw, cases[i].len, &len);
        assert_string_equal(s, cases[i].want);
        assert_int_equal(len, strlen(cases[i].want));
        free(s);
    }
}

static void the_earliest_of_several_stop_strings_counts(void **state)
{
    (void)state;
    char later[] = "later", ate[] = "ate", x[] = "x", *items[] = {later, ate, x};
    struct opt_list stops = {.items = items, .n = 3};
    size_t at;
    assert_true(stop_find(&stops, "a later x", 9, 0, &at));
    assert_int_equal(at, 2);
    assert_true(stop_find(&stops, "a later x", 9, 7, &at));
    assert_int_equal(at, 8);
    assert_false(stop_find(&stops, "a later x", 9, 9, &at));
    assert_false(stop_find(&stops, "", 0, 0, &at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_token_ends_and_is_counted),
        cmocka_unit_test(max_tokens_truncates_and_says_so),
        cmocka_unit_test(stop_strings_end_across_tokens_and_code_points),
        cmocka_unit_test(thinking_is_dropped_or_kept_and_counted),
        cmocka_unit_test(thinking_without_end_leaves_an_empty_answer_with_its_tokens_counted),
        cmocka_unit_test(a_loop_is_stopped_in_time_and_one_instance_stays),
        cmocka_unit_test(answers_are_valid_utf8_without_nul),
        cmocka_unit_test(the_earliest_of_several_stop_strings_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

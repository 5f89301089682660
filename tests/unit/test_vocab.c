#include "stages/model/vocab.h"

#include "stages/base/mem.h"
#include "tests/unit/vocab_writer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

static struct gguf_writer w;

/* The vocabulary of a plan, or NULL with e set. */
static struct vocab *open_plan(const struct vocab_plan *p, struct err *e)
{
    struct gguf g;
    struct vocab *v;
    memset(e, 0, sizeof(*e));
    put_vocab(&w, p);
    assert_int_equal(gguf_parse(&g, w.data, w.len, e), 0);
    int rc = vocab_open(&v, &g, e);
    gguf_release(&g);
    memset(w.data, 0xee, w.len); /* strings are copied */
    assert_true((rc == 0) == (v != NULL));
    return v;
}

static struct vocab *must_open(const struct vocab_plan *p)
{
    struct err e;
    struct vocab *v = open_plan(p, &e);
    if (!v)
        fail_msg("%s", e.msg);
    return v;
}

static void refused(const struct vocab_plan *p, int code, const char *says)
{
    struct err e;
    struct vocab *v = open_plan(p, &e);
    vocab_free(v);
    if (v || e.code != (enum err_code)code || !strstr(e.msg, says))
        fail_msg("code %d, said \"%s\", expected \"%s\"", (int)e.code, e.msg, says);
    assert_int_equal(e.reach, REACH_JOB);
}

/* The names of the tokens of text, joined with "|". */
static const char *tokens(const struct vocab *v, const char *text, unsigned flags)
{
    static char out[4096];
    struct token_list t = {0};
    struct err e = {0};
    size_t n = 0;
    assert_int_equal(vocab_encode(v, text, strlen(text), flags, &t, &e), 0);
    for (int i = 0; i < t.n; i++) {
        size_t len;
        const char *name = vocab_name(v, t.ids[i], &len);
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%.*s", i ? "|" : "", (int)len, name);
    }
    out[n] = '\0';
    token_list_release(&t);
    return out;
}

static const char *const bpe_tokens[] = {"he",        "ll",      "hell", "hello", "<|im_end|>",
                                         "<|plain|>", "<think>", "  ",   NULL};
static const int bpe_types[] = {1, 1, 1, 1, 3, 4, 4, 4};
static const char *const bpe_merges[] = {"l l", "h e", "he ll", "hell o", NULL};

static struct vocab_plan bpe_plan(void)
{
    struct vocab_plan p = plan_default;
    p.tokens = bpe_tokens;
    p.types = bpe_types;
    p.merges = bpe_merges;
    return p;
}

static void bpe_merges_by_rank_inside_words(void **state)
{
    (void)state;
    struct vocab_plan p = bpe_plan();
    struct vocab *v = must_open(&p);
    assert_string_equal(vocab_kind(v), "bpe gpt-2");
    assert_string_equal(tokens(v, "hello", 0), "hello");
    assert_string_equal(tokens(v, "hell o", 0), "hell|\xc4\xa0|o");
    assert_string_equal(tokens(v, "lll", 0), "ll|l"); /* equal ranks: the left one first */
    assert_string_equal(tokens(v, "", 0), "");
    assert_int_equal(vocab_bos(v), -1);
    assert_false(vocab_adds_bos(v));
    assert_int_equal(vocab_find(v, "hello"), 256 + 3);
    assert_int_equal(vocab_find(v, "hallo"), -1);
    vocab_free(v);
}

static void control_tokens_come_only_when_asked_for(void **state)
{
    (void)state;
    struct vocab_plan p = bpe_plan();
    struct vocab *v = must_open(&p);
    assert_string_equal(tokens(v, "a<|im_end|>b", VOCAB_SPECIAL), "a|<|im_end|>|b");
    assert_string_equal(tokens(v, "a<|im_end|>b", 0), "a|<|||i|m|_|e|n|d|||>|b");
    /* A user-defined token is text, unless it looks like one that steers a conversation. */
    assert_string_equal(tokens(v, "a<think>  b", 0), "a|<think>|  |b");
    assert_string_equal(tokens(v, "<|plain|>", 0), "<|||p|l|a|i|n|||>");
    assert_string_equal(tokens(v, "<|plain|>", VOCAB_SPECIAL), "<|plain|>");
    assert_true(vocab_is_special(v, 256 + 4));
    assert_false(vocab_is_special(v, 256 + 6));
    assert_true(vocab_is_end(v, 256 + 4));
    size_t len = 9;
    vocab_piece(v, 256 + 4, &len);
    assert_int_equal(len, 0);
    vocab_piece(v, 256 + 6, &len);
    assert_int_equal(len, 7);
    vocab_free(v);
}

static void merges_never_make_a_control_token(void **state)
{
    (void)state;
    struct vocab_plan p = bpe_plan();
    const int types[] = {1, 1, 1, 3, 3, 4, 4, 4}; /* "hello" is a control token now */
    p.types = types;
    struct vocab *v = must_open(&p);
    assert_string_equal(tokens(v, "hello", 0), "hell|o");
    assert_string_equal(tokens(v, "hello", VOCAB_SPECIAL), "hello");
    vocab_free(v);
    /* A SentencePiece file would find it by its text. */
    static const char *const spm[] = {"<bo", "s>", "<bos>", "b",  "o",   "bo",
                                      "<",   "s",  ">",     "<b", "os>", NULL};
    const int spm_types[] = {1, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1};
    struct vocab_plan q = plan_default;
    q.model = "llama", q.pre = NULL, q.tokens = spm, q.types = spm_types, q.add_space = 0;
    v = must_open(&q);
    assert_string_equal(tokens(v, "<bos>", 0), "<bo|s>");
    vocab_free(v);
}

static void llama3_takes_a_whole_word_first(void **state)
{
    (void)state;
    struct vocab_plan p = bpe_plan();
    static const char *const merges[] = {"l l", NULL};
    p.merges = merges;
    struct vocab *v = must_open(&p);
    assert_string_equal(tokens(v, "hello", 0), "h|e|ll|o");
    vocab_free(v);
    static const char *const aliases[] = {"llama-bpe", "llama3", "llama-v3"};
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++) {
        p.pre = aliases[i];
        p.bos = 256 + 4;
        v = must_open(&p);
        assert_string_equal(tokens(v, "hello", 0), "hello");
        assert_string_equal(tokens(v, "<|im_end|>", 0), "<|||i|m|_|e|n|d|||>");
        assert_true(vocab_adds_bos(v)); /* unless the file says otherwise */
        vocab_free(v);
    }
}

static const char *const spm_tokens[] = {"<unk>",
                                         "\xe2\x96\x81",
                                         "a",
                                         "b",
                                         "ab",
                                         "\xe2\x96\x81"
                                         "ab",
                                         "\n\n",
                                         "\xe2\x96\x81\xe2\x96\x81",
                                         "<s>",
                                         "</s>",
                                         NULL};
static const int spm_types[] = {2, 1, 1, 1, 1, 1, 4, 1, 3, 3};

static struct vocab_plan spm_plan(void)
{
    struct vocab_plan p = plan_default;
    p.model = "llama", p.pre = "default";
    p.tokens = spm_tokens, p.types = spm_types;
    p.bos = 256 + 8, p.eos = 256 + 9;
    return p;
}

static void sentencepiece_puts_a_space_in_front_and_falls_back_to_bytes(void **state)
{
    (void)state;
    struct vocab_plan p = spm_plan();
    struct vocab *v = must_open(&p);
    const char *space_ab = "\xe2\x96\x81"
                           "ab";
    assert_string_equal(vocab_kind(v), "spm");
    assert_true(vocab_adds_space(v));
    assert_true(vocab_adds_bos(v));
    assert_string_equal(tokens(v, "ab", 0), space_ab);
    assert_string_equal(tokens(v, "ab", VOCAB_NO_PREFIX), "ab");
    assert_string_equal(tokens(v,
                               "\xe2\x96\x81"
                               "ab",
                               VOCAB_NO_PREFIX),
                        space_ab);
    assert_string_equal(tokens(v, "\xc3\xa9", VOCAB_NO_PREFIX), "<0xC3>|<0xA9>");
    assert_string_equal(tokens(v, "\xff", VOCAB_NO_PREFIX), "<0xFF>");
    /* After a token that was cut out, text starts anew. */
    assert_string_equal(tokens(v, "a\n\nab", 0), "\xe2\x96\x81|a|\n\n|\xe2\x96\x81"
                                                 "ab");
    assert_string_equal(tokens(v, "<s>ab", VOCAB_SPECIAL), "<s>|\xe2\x96\x81"
                                                           "ab");
    assert_string_equal(tokens(v, "a\n\nab", VOCAB_NO_PREFIX), "a|\n\n|ab");
    assert_string_equal(tokens(v, "<s>ab", VOCAB_SPECIAL | VOCAB_NO_PREFIX), "<s>|ab");
    assert_string_equal(tokens(v, "", 0), "");
    assert_true(vocab_is_end(v, 256 + 9));
    size_t len;
    assert_memory_equal(vocab_piece(v, 256 + 5, &len), " ab", 3);
    assert_int_equal(len, 3);
    assert_memory_equal(vocab_piece(v, 0x41, &len), "A", 1);
    vocab_free(v);
    p.add_space = 0;
    v = must_open(&p);
    assert_string_equal(tokens(v, "ab", 0), "ab");
    vocab_free(v);
}

static void vocabularies_that_lie_are_refused(void **state)
{
    (void)state;
    struct vocab_plan p = bpe_plan();
    p.model = "bert", refused(&p, ERR_UNSUPPORTED, "\"bert\" is not read here; known are gpt2");
    p = bpe_plan(), p.pre = "tekken";
    refused(&p, ERR_UNSUPPORTED,
            "\"tekken\" is not read here; known are gpt-2, smollm, llama-bpe");
    p = bpe_plan(), p.merges = NULL, refused(&p, ERR_FORMAT, "without tokenizer.ggml.merges");
    p = bpe_plan(), p.drop_types = 1, refused(&p, ERR_FORMAT, "has 263 items for 264 tokens");
    p = bpe_plan(), p.types_item = 6,
    refused(&p, ERR_FORMAT, "token_type is not an array of integers");
    p = bpe_plan(), p.types_item = 4,
    refused(&p, ERR_FORMAT, "token_type is not an array of integers");
    p = bpe_plan(), p.no_byte = 'A' + 1, refused(&p, ERR_UNSUPPORTED, "byte 0x41 has no token");
    p = bpe_plan(), p.bos = 264, refused(&p, ERR_FORMAT, "bos_token_id");
    p = bpe_plan(), p.eos = 1 << 30, refused(&p, ERR_FORMAT, "eos_token_id");
    p = bpe_plan(), p.add_bos = 1, refused(&p, ERR_FORMAT, "no tokenizer.ggml.bos_token_id");
    const int types[] = {1, 1, 1, 1, 7, 1, 1, 1}, negative[] = {1, 1, 1, 1, -1, 1, 1, 1};
    p = bpe_plan(), p.types = types,
    refused(&p, ERR_FORMAT, "token 260 has the unknown type 7");
    p = bpe_plan(), p.types = negative, refused(&p, ERR_FORMAT, "unknown type -1");
    static const char *const same[] = {"x1", "x2", "x1", NULL}, *const bad[] = {"\xff\xff",
                                                                                NULL};
    p = plan_default, p.merges = bpe_merges, p.tokens = same,
    refused(&p, ERR_FORMAT, "tokens 256 and 258 have the same text");
    p = plan_default, p.merges = bpe_merges, p.tokens = bad,
    refused(&p, ERR_FORMAT, "token 256 is not UTF-8");
    static const char *const merges[][2] = {{"q z", NULL}, {"q", NULL},  {"", NULL},
                                            {" ", NULL},   {"q ", NULL}, {"nope q", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) {
        p = bpe_plan(), p.merges = merges[i];
        refused(&p, ERR_FORMAT, "merge 0 ");
    }
    char long_name[1026];
    memset(long_name, 'n', 1025);
    long_name[1025] = '\0';
    const char *const long_token[] = {long_name, NULL};
    p = bpe_plan(), p.tokens = long_token, p.types = NULL,
    refused(&p, ERR_LIMIT, "token 256 has 1025 bytes");
}

static void sentencepiece_files_that_lie_are_refused(void **state)
{
    (void)state;
    struct vocab_plan p = spm_plan();
    p.drop_scores = 1, refused(&p, ERR_FORMAT, "scores has 265 items");
    const float scores[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, (float)(1e300 * 1e300 * 0)};
    p = spm_plan(), p.scores = scores,
    refused(&p, ERR_FORMAT, "score of token 265 is not a number");
    p = spm_plan(), p.no_byte = 1, refused(&p, ERR_FORMAT, "byte token 0 is not spelt");
    static const char *const names[] = {"<0x-1>", "<0xG0>", "<0x0a>", "<0x123>", "<0x1>"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *const one[] = {names[i], NULL};
        const int byte[] = {6};
        p = spm_plan(), p.tokens = one, p.types = byte, p.bos = p.eos = -1;
        refused(&p, ERR_FORMAT, "byte token 256 is not spelt");
    }
}

static void a_file_without_types_still_has_its_specials(void **state)
{
    (void)state;
    struct vocab_plan p = spm_plan();
    p.no_types = true;
    struct vocab *v = must_open(&p);
    assert_true(vocab_is_special(v, 256 + 8));
    assert_string_equal(tokens(v, "\xc3\xa9<s>", VOCAB_SPECIAL | VOCAB_NO_PREFIX),
                        "<0xC3>|<0xA9>|<s>");
    assert_string_equal(tokens(v, "<s>", VOCAB_NO_PREFIX), "<0x3C>|<0x73>|<0x3E>");
    vocab_free(v);
}

static void digests_tell_vocabularies_apart(void **state)
{
    (void)state;
    uint8_t a[32], b[32];
    struct vocab_plan plans[4] = {bpe_plan(), bpe_plan(), bpe_plan(), spm_plan()};
    static const char *const merges[] = {"h e", "l l", "he ll", "hell o", NULL};
    plans[1].pre = "qwen2";
    plans[2].merges = merges;
    struct vocab *v = must_open(&plans[0]);
    vocab_digest(v, a);
    vocab_free(v);
    for (int i = 0; i < 4; i++) {
        v = must_open(&plans[i]);
        vocab_digest(v, b);
        assert_int_equal(memcmp(a, b, 32) == 0, i == 0);
        vocab_free(v);
    }
}

static void the_byte_vocabulary_spells_bytes(void **state)
{
    (void)state;
    struct vocab *v = vocab_bytes();
    assert_string_equal(vocab_kind(v), "bytes");
    assert_int_equal(vocab_size(v), 259);
    assert_string_equal(tokens(v, "a\xff", 0), "<0x61>|<0xFF>");
    assert_string_equal(tokens(v, "<bos>x<turn>", VOCAB_SPECIAL), "<bos>|<0x78>|<turn>");
    assert_int_equal(vocab_count(v, "<eos>", 5), 5);
    assert_int_equal(vocab_find(v, "<turn>"), 258);
    assert_int_equal(vocab_bos(v), 256);
    assert_true(vocab_is_end(v, vocab_eos(v)));
    assert_false(vocab_is_end(v, 258));
    vocab_free(v);
}

static void a_failed_call_leaves_the_list_as_it_was(void **state)
{
    (void)state;
    struct vocab_plan plans[2] = {bpe_plan(), spm_plan()};
    char text[3000];
    memset(text, 'h', sizeof(text));
    for (int kind = 0; kind < 2; kind++) {
        struct vocab *v = must_open(&plans[kind]);
        int failures = 0;
        for (long k = 1;; k++) {
            struct token_list t = {0};
            struct err e = {0};
            assert_int_equal(token_list_add(&t, 7, &e), 0);
            mem_fail_after(k);
            int rc = vocab_encode(v, text, sizeof(text), 0, &t, &e);
            mem_fail_after(0);
            if (rc == 0) {
                token_list_release(&t);
                break;
            }
            assert_int_equal(rc, -ERR_NOMEM);
            assert_int_equal(e.reach, REACH_DOC);
            assert_int_equal(t.n, 1);
            token_list_release(&t);
            mem_fail_after(k);
            if (vocab_count(v, text, sizeof(text)) < 0)
                failures++;
            mem_fail_after(0);
        }
        assert_true(failures > 0);
        vocab_free(v);
    }
}

static void opening_without_memory_fails_cleanly(void **state)
{
    (void)state;
    struct vocab_plan plans[2] = {bpe_plan(), spm_plan()};
    for (int kind = 0; kind < 2; kind++) {
        struct gguf g;
        struct vocab *v = NULL;
        struct err e = {0};
        put_vocab(&w, &plans[kind]);
        assert_int_equal(gguf_parse(&g, w.data, w.len, &e), 0);
        for (long k = 2; !v; k++) { /* the first one is mem_need() */
            err_clear(&e);
            mem_fail_after(k);
            int rc = vocab_open(&v, &g, &e);
            mem_fail_after(0);
            assert_true(rc == 0 || rc == -ERR_NOMEM);
        }
        vocab_free(v);
        gguf_release(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_by_rank_inside_words),
        cmocka_unit_test(control_tokens_come_only_when_asked_for),
        cmocka_unit_test(merges_never_make_a_control_token),
        cmocka_unit_test(llama3_takes_a_whole_word_first),
        cmocka_unit_test(sentencepiece_puts_a_space_in_front_and_falls_back_to_bytes),
        cmocka_unit_test(vocabularies_that_lie_are_refused),
        cmocka_unit_test(sentencepiece_files_that_lie_are_refused),
        cmocka_unit_test(a_file_without_types_still_has_its_specials),
        cmocka_unit_test(digests_tell_vocabularies_apart),
        cmocka_unit_test(the_byte_vocabulary_spells_bytes),
        cmocka_unit_test(a_failed_call_leaves_the_list_as_it_was),
        cmocka_unit_test(opening_without_memory_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

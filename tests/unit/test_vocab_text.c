/* What holds for any text: pieces give it back, and its length costs no more than in proportion. */
#include "stages/model/vocab.h"

#include "stages/base/utf8.h"
#include "tests/unit/thread_time.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

/* A second of processor time for a megabyte, whatever it holds; other builds are slower and get less to do. */
#ifdef NDEBUG
enum { LENGTH = 1 << 20, SECONDS_MAX = 1 };
#else
enum { LENGTH = 1 << 17, SECONDS_MAX = 10 };
#endif

struct loaded {
    uint8_t *bytes;
    struct gguf gguf;
    struct vocab *vocab;
};

/* False when the file is not there. */
static bool load(struct loaded *l, const char *path)
{
    struct err e = {0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    fseek(f, 0, SEEK_END);
    size_t len = (size_t)ftell(f);
    rewind(f);
    l->bytes = malloc(len);
    assert_non_null(l->bytes);
    assert_int_equal(fread(l->bytes, 1, len, f), len);
    fclose(f);
    if (gguf_parse(&l->gguf, l->bytes, len, &e) != 0 ||
        vocab_open(&l->vocab, &l->gguf, &e) != 0)
        fail_msg("%s: %s", path, e.msg);
    return true;
}

static void unload(struct loaded *l)
{
    vocab_free(l->vocab);
    gguf_release(&l->gguf);
    free(l->bytes);
}

/* What the pieces of text must spell. SentencePiece: U+2581 is a space, and after a space in front. Bytes in
 * `lost` have no token in this vocabulary. Returns the length. */
static size_t expected(const struct vocab *v, const char *text, size_t len,
                       const bool lost[256], char *out)
{
    size_t n = 0;
    bool spm = strcmp(vocab_kind(v), "spm") == 0;
    if (vocab_adds_space(v) && len > 0)
        out[n++] = ' ';
    for (size_t i = 0; i < len; i++) {
        if (spm && len - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 2;
        } else if (!lost[(unsigned char)text[i]]) {
            out[n++] = text[i];
        }
    }
    return n;
}

static void check_round_trip(const struct vocab *v, const char *text, size_t len,
                             const bool lost[256])
{
    struct token_list t = {0};
    struct err e = {0};
    char *want = malloc(len + 2), *got = malloc(len + 2);
    size_t n_want = expected(v, text, len, lost, want), n = 0;
    assert_int_equal(vocab_encode(v, text, len, 0, &t, &e), 0);
    for (int i = 0; i < t.n; i++) {
        size_t k;
        const char *piece = vocab_piece(v, t.ids[i], &k);
        assert_false(vocab_is_special(v, t.ids[i]));
        assert_true(n + k <= n_want);
        memcpy(got + n, piece, k);
        n += k;
    }
    assert_int_equal(n, n_want);
    assert_memory_equal(got, want, n);
    assert_int_equal(vocab_count(v, text, len), t.n);
    token_list_release(&t);
    free(want);
    free(got);
}

static void check_texts(const struct vocab *v, const bool lost[256])
{
    char *text = malloc(1 << 17);
    size_t n = 0;
    uint32_t cp = 0, seed = 1;
    assert_non_null(text);
    while (cp <= 0x10ffff) { /* all code points, in texts of 64 KiB */
        for (n = 0; cp <= 0x10ffff && n < 65536; cp++)
            if (cp < 0xd800 || cp > 0xdfff) {
                n += (size_t)utf8_encode(cp, text + n);
                if (cp % 3 == 0)
                    text[n++] = "a \n1"[cp % 4];
            }
        check_round_trip(v, text, n, lost);
    }
    for (int k = 0; k < 300; k++) { /* any bytes */
        for (n = 0; n < (size_t)k; n++)
            text[n] = (char)((seed = seed * 1664525 + 1013904223) >> 24);
        check_round_trip(v, text, n, lost);
    }
    free(text);
}

static void pieces_give_the_text_back(void **state)
{
    (void)state;
    struct loaded l;
    static const bool none[256];
    bool smollm[256] = {false};
    const unsigned char no_token[] =
        "\x04\x06\x13\x14\x16\x1d\xc0\xc1\xf1\xf2\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff";
    for (size_t i = 0; i + 1 < sizeof(no_token); i++)
        smollm[no_token[i]] = true;
    assert_true(load(&l, "tests/vectors/vocab/gpt-2.gguf"));
    check_texts(l.vocab, none);
    unload(&l);
    assert_true(load(&l, "tests/vectors/vocab/llama-spm.gguf"));
    check_texts(l.vocab, none);
    unload(&l);
    struct vocab *bytes = vocab_bytes();
    check_texts(bytes, none);
    vocab_free(bytes);
    if (load(&l, "samples/models/smollm2-135m-instruct-q4_1.gguf")) {
        check_texts(l.vocab, smollm);
        unload(&l);
    }
    if (load(&l, "samples/models/gemma-3-270m-q4_k_m.gguf")) {
        check_texts(l.vocab, none);
        unload(&l);
    }
}

struct run {
    const struct vocab *v;
    const char *text;
    int64_t tokens;
    double seconds;
};

static void *count_in_thread(void *arg)
{
    struct run *r = arg;
    double start = thread_seconds();
    r->tokens = vocab_count(r->v, r->text, LENGTH);
    r->seconds = thread_seconds() - start;
    return NULL;
}

/* In a thread with a small stack: what recurses once per character does not survive it. */
static void check_long_runs(const struct vocab *v)
{
    double slowest = 0;
    static const char *const units[] = {"A",
                                        ".",
                                        " ",
                                        "\n",
                                        "1",
                                        "'",
                                        "\xe4\xb8\xad",
                                        "\x80\xff",
                                        "a ",
                                        " \n",
                                        "\r\n ",
                                        "e\xcc\x81",
                                        "ab",
                                        "\t",
                                        "<",
                                        "\xe2\x96\x81",
                                        "the ",
                                        "\xf0\x9f\x98\x80",
                                        "="};
    char *text = malloc(LENGTH + 8);
    assert_non_null(text);
    for (size_t u = 0; u < ARRAY_LEN(units); u++) {
        size_t k = strlen(units[u]);
        for (size_t n = 0; n < LENGTH; n += k)
            memcpy(text + n, units[u], k);
        struct run r = {.v = v, .text = text};
        pthread_t thread;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 1 << 20);
        assert_int_equal(pthread_create(&thread, &attr, count_in_thread, &r), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attr);
        slowest = r.seconds > slowest ? r.seconds : slowest;
        if (r.tokens <= 0 || r.seconds > SECONDS_MAX)
            fail_msg("%s, unit %zu: %lld tokens in %.2f s", vocab_kind(v), u,
                     (long long)r.tokens, r.seconds);
    }
    print_message("%s: %.2f s for the slowest of %zu texts of %d bytes\n", vocab_kind(v),
                  slowest, ARRAY_LEN(units), LENGTH);
    free(text);
}

static void a_megabyte_of_one_character_takes_less_than_a_second(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/vectors/vocab/gpt-2.gguf",
                                        "tests/vectors/vocab/llama-spm.gguf",
                                        "samples/models/smollm2-135m-instruct-q4_1.gguf",
                                        "samples/models/gemma-3-270m-q4_k_m.gguf"};
    struct loaded l;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (load(&l, files[i])) {
            check_long_runs(l.vocab);
            unload(&l);
        } else {
            assert_true(i >= 2); /* the sample models may be missing */
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_the_text_back),
        cmocka_unit_test(a_megabyte_of_one_character_takes_less_than_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

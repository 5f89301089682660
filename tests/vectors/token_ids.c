/* Token ids against independent tokenizers: the tables of tests/vectors/tokens/, made by make_tokens.py, over
 * 1.25 MB of prose, many languages, code, markup, all blocks of Unicode and traps. A slice that differs is named
 * by its offset. */
#include "stages/base/hash.h"
#include "stages/base/le.h"
#include "stages/model/pretok.h"
#include "stages/model/vocab.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>
#include <jansson.h>

#define DIR "tests/vectors/tokens/"

struct bytes {
    char *data;
    size_t len;
};

/* NULL data when there is no such file. */
static struct bytes slurp(const char *path)
{
    struct bytes b = {0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return b;
    fseek(f, 0, SEEK_END);
    b.len = (size_t)ftell(f);
    rewind(f);
    b.data = malloc(b.len + 1);
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.len, f), b.len);
    b.data[b.len] = '\0';
    fclose(f);
    return b;
}

static struct bytes whole_text(void)
{
    struct bytes prose = slurp(DIR "prose.txt"), made = slurp(DIR "made.txt");
    assert_non_null(prose.data);
    assert_non_null(made.data);
    prose.data = realloc(prose.data, prose.len + made.len);
    assert_non_null(prose.data);
    memcpy(prose.data + prose.len, made.data, made.len);
    prose.len += made.len;
    free(made.data);
    return prose;
}

/* First 16 digits of the digest of numbers as the tables have it. */
static void short_digest(const int32_t *ids, int n, char out[17])
{
    uint8_t *bytes = malloc(4 * (size_t)n + 1), digest[HASH_BYTES];
    char hex[HASH_HEX];
    assert_non_null(bytes);
    for (int i = 0; i < n; i++)
        le32_put(bytes + 4 * i, (uint32_t)ids[i]);
    hash_bytes(bytes, 4 * (size_t)n, digest);
    hash_hex(digest, hex);
    memcpy(out, hex, 16);
    out[16] = '\0';
    free(bytes);
}

static json_t *parse_json(const char *s)
{
    json_t *j = json_loads(s, JSON_DECODE_ANY, NULL);
    assert_non_null(j);
    return j;
}

/* Lines of a table: fields[0..] split at tabs in place. Returns the number of fields, 0 at the end. */
static int next_row(char **p, char *fields[5])
{
    int n = 0;
    char *line = *p;
    if (!*line)
        return 0;
    *p = strchr(line, '\n');
    assert_non_null(*p);
    *(*p)++ = '\0';
    for (char *f = line; f && n < 5; n++) {
        fields[n] = f;
        f = strchr(f, '\t');
        if (f)
            *f++ = '\0';
    }
    return n;
}

static int check_slice(const struct vocab *v, const struct bytes *text, char **f)
{
    size_t at = strtoull(f[0], NULL, 10), len = strtoull(f[1], NULL, 10);
    struct token_list ids = {0};
    struct err e = {0};
    char digest[17];
    assert_true(at + len <= text->len);
    assert_int_equal(vocab_encode(v, text->data + at, len, 0, &ids, &e), 0);
    assert_int_equal(vocab_count(v, text->data + at, len), ids.n);
    short_digest(ids.ids, ids.n, digest);
    bool same = ids.n == atoi(f[2]) && strcmp(digest, f[3]) == 0;
    if (!same)
        print_error("slice at byte %zu: %d tokens, expected %s\n", at, ids.n, f[2]);
    token_list_release(&ids);
    return !same;
}

static int check_sample(const struct vocab *v, char **f)
{
    json_t *text = parse_json(f[1]);
    struct token_list ids = {0};
    struct err e = {0};
    unsigned flags = strcmp(f[0], "special") == 0 ? VOCAB_SPECIAL : 0;
    char got[4096] = "";
    size_t n = 0;
    assert_int_equal(
        vocab_encode(v, json_string_value(text), json_string_length(text), flags, &ids, &e), 0);
    for (int i = 0; i < ids.n && n < sizeof(got); i++)
        n += (size_t)snprintf(got + n, sizeof(got) - n, "%s%d", i ? " " : "", ids.ids[i]);
    bool same = strcmp(got, f[2]) == 0;
    if (!same)
        print_error("%s %s:\n  got      %s\n  expected %s\n", f[0], f[1], got, f[2]);
    token_list_release(&ids);
    json_decref(text);
    return !same;
}

static void check_vocabulary(const char *model, const char *table)
{
    struct bytes file = slurp(model);
    if (!file.data) {
        print_message(
            "skipped: %s is not there (sh samples/run.sh fetches the sample models)\n", model);
        skip();
    }
    struct bytes text = whole_text(), rows = slurp(table);
    struct err e = {0};
    struct gguf g;
    struct vocab *v = NULL;
    int bad = 0, slices = 0;
    char *p = rows.data, *f[5];
    assert_non_null(rows.data);
    assert_int_equal(gguf_parse(&g, (const uint8_t *)file.data, file.len, &e), 0);
    assert_int_equal(vocab_open(&v, &g, &e), 0);
    for (int n; (n = next_row(&p, f)) != 0;) {
        if (n == 4)
            bad += check_slice(v, &text, f);
        else if (n == 3)
            bad += check_sample(v, f);
        slices += n == 4;
    }
    assert_true(slices > 250); /* all of the megabyte */
    assert_int_equal(bad, 0);
    vocab_free(v);
    gguf_release(&g);
    free(rows.data);
    free(text.data);
    free(file.data);
}

static void smollm2_gives_the_tokens_of_the_tokenizers_library(void **state)
{
    (void)state;
    check_vocabulary("samples/models/smollm2-135m-instruct-q4_1.gguf", DIR "smollm2.tsv");
}

static void gemma3_gives_the_tokens_of_the_sentencepiece_library(void **state)
{
    (void)state;
    check_vocabulary("samples/models/gemma-3-270m-q4_k_m.gguf", DIR "gemma3.tsv");
}

static void gpt2_gives_the_tokens_of_the_tokenizers_library(void **state)
{
    (void)state;
    check_vocabulary("tests/vectors/vocab/gpt-2.gguf", DIR "gpt-2.tsv");
}

static void llama2_gives_the_tokens_of_the_sentencepiece_library(void **state)
{
    (void)state;
    check_vocabulary("tests/vectors/vocab/llama-spm.gguf", DIR "llama-spm.tsv");
}

/* The cases that come with a vocabulary: texts between separator lines, a line of ids for each. */
static void check_cases(const char *model, const char *name)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[2][64];
    struct err e = {0};
    struct gguf g;
    struct vocab *v = NULL;
    int cases = 0, bad = 0;
    snprintf(path[0], sizeof(path[0]), "tests/vectors/vocab/cases/%s.inp", name);
    snprintf(path[1], sizeof(path[1]), "tests/vectors/vocab/cases/%s.out", name);
    struct bytes file = slurp(model), texts = slurp(path[0]), ids = slurp(path[1]);
    assert_true(file.data && texts.data && ids.data);
    assert_int_equal(gguf_parse(&g, (const uint8_t *)file.data, file.len, &e), 0);
    assert_int_equal(vocab_open(&v, &g, &e), 0);
    char *line = ids.data;
    for (char *text = texts.data, *end; (end = strstr(text, separator)) != NULL; cases++) {
        struct token_list got = {0};
        int i = 0;
        assert_int_equal(vocab_encode(v, text, (size_t)(end - text), 0, &got, &e), 0);
        line[strcspn(line, "\n")] = '\0';
        char *next = line + strlen(line) + 1, *rest = NULL;
        for (char *id = strtok_r(line, " ", &rest); id; id = strtok_r(NULL, " ", &rest), i++)
            if (i >= got.n || got.ids[i] != atoi(id))
                break;
        if (i != got.n || (rest && rest[0])) {
            print_error("%s, case %d: differs at token %d\n", name, cases, i);
            bad++;
        }
        token_list_release(&got);
        line = next;
        text = end + strlen(separator);
    }
    assert_int_equal(cases, 46);
    assert_int_equal(bad, 0);
    vocab_free(v);
    gguf_release(&g);
    free(file.data);
    free(texts.data);
    free(ids.data);
}

static void the_cases_that_come_with_gpt2_and_llama2_hold(void **state)
{
    (void)state;
    check_cases("tests/vectors/vocab/gpt-2.gguf", "gpt-2");
    check_cases("tests/vectors/vocab/llama-spm.gguf", "llama-spm");
}

/* Number of words of text, their lengths in *lengths. */
static int cut(const char *kind, const char *text, size_t len, int32_t **lengths)
{
    const struct pretok_info *info = pretok_named(kind, strlen(kind));
    struct pretok_scan scan;
    const char *word;
    size_t n;
    int count = 0;
    assert_non_null(info);
    *lengths = malloc((len + 1) * sizeof(**lengths));
    assert_non_null(*lengths);
    pretok_start(&scan, info->kind, text, len);
    while (pretok_next(&scan, &word, &n))
        (*lengths)[count++] = (int32_t)n;
    return count;
}

static int check_split(const struct bytes *text, char **f)
{
    size_t at = strtoull(f[1], NULL, 10), len = strtoull(f[2], NULL, 10);
    int32_t *lengths;
    char digest[17];
    int n = cut(f[0], text->data + at, len, &lengths);
    short_digest(lengths, n, digest);
    free(lengths);
    bool same = n == atoi(f[3]) && strcmp(digest, f[4]) == 0;
    if (!same)
        print_error("%s, slice at byte %zu: %d words, expected %s\n", f[0], at, n, f[3]);
    return !same;
}

static int check_split_sample(char **f)
{
    json_t *text = parse_json(f[2]), *words = parse_json(f[3]);
    int32_t *lengths;
    int n = cut(f[0], json_string_value(text), json_string_length(text), &lengths);
    bool same = n == (int)json_array_size(words);
    for (int i = 0; i < n && same; i++)
        same = lengths[i] == (int32_t)json_string_length(json_array_get(words, (size_t)i));
    if (!same)
        print_error("%s %s: %d words, expected %s\n", f[0], f[2], n, f[3]);
    free(lengths);
    json_decref(text);
    json_decref(words);
    return !same;
}

static void llama3_and_qwen2_words_are_those_of_the_published_expressions(void **state)
{
    (void)state;
    struct bytes text = whole_text(), rows = slurp(DIR "splits.tsv");
    char *p = rows.data, *f[5];
    int bad = 0, seen = 0;
    assert_non_null(rows.data);
    for (int n; (n = next_row(&p, f)) != 0; seen++)
        bad += n == 5 ? check_split(&text, f) : check_split_sample(f);
    assert_true(seen > 500);
    assert_int_equal(bad, 0);
    free(rows.data);
    free(text.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cases_that_come_with_gpt2_and_llama2_hold),
        cmocka_unit_test(llama3_and_qwen2_words_are_those_of_the_published_expressions),
        cmocka_unit_test(gpt2_gives_the_tokens_of_the_tokenizers_library),
        cmocka_unit_test(llama2_gives_the_tokens_of_the_sentencepiece_library),
        cmocka_unit_test(smollm2_gives_the_tokens_of_the_tokenizers_library),
        cmocka_unit_test(gemma3_gives_the_tokens_of_the_sentencepiece_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Encodings, normal form, plain text, Markdown and JSON lines. */
#include "tests/unit/ingest_try.h"
#include "tests/unit/thread_time.h"

#define BYTES(s) (s), sizeof(s) - 1

static void expect_text(const char *name, const void *bytes, size_t n, const char *encoding,
                        const char *text)
{
    struct try *t = try_new();
    struct doc *d = try_bytes(t, name, bytes, n);
    assert_non_null(d);
    if (d->status == DOC_FAILED)
        fail_msg("%s: %s", name, d->fail.msg);
    assert_string_equal(d->encoding, encoding);
    assert_string_equal(d->text, text);
    try_check_blocks(d);
    try_free(t);
}

static void expect_failure(const char *name, const void *bytes, size_t n, enum err_code code,
                           const char *part)
{
    struct try *t = try_new();
    struct doc *d = try_bytes(t, name, bytes, n);
    assert_non_null(d);
    assert_int_equal(d->status, DOC_FAILED);
    assert_int_equal(d->fail.code, code);
    assert_int_equal(d->fail.reach, REACH_DOC);
    assert_null(d->text);
    if (!strstr(d->fail.msg, part))
        fail_msg("\"%s\" is not in \"%s\"", part, d->fail.msg);
    try_free(t);
}

static void a_mark_wins_and_is_stripped(void **state)
{
    (void)state;
    expect_text("a.txt", BYTES("\xef\xbb\xbfhi\n"), "UTF-8", "hi\n");
    expect_text("a.txt", BYTES("\xff\xfeh\0i\0"), "UTF-16LE", "hi");
    expect_text("a.txt", BYTES("\xfe\xff\0h\0i"), "UTF-16BE", "hi");
    expect_text("a.txt", BYTES("\xff\xfe\0\0h\0\0\0i\0\0\0"), "UTF-32LE", "hi");
}

static void utf16_is_seen_by_its_nuls(void **state)
{
    (void)state;
    expect_text("a.txt", BYTES("p\0l\0a\0i\0n\0 \0t\0e\0x\0t\0"), "UTF-16LE", "plain text");
    expect_text("a.txt", BYTES("\0p\0l\0a\0i\0n\0 \0t\0e\0x\0t"), "UTF-16BE", "plain text");
}

static void valid_utf8_is_never_guessed_at(void **state)
{
    (void)state;
    expect_text("a.txt", BYTES("The committee\xe2\x80\x99s view."), "UTF-8",
                "The committee\u2019s view.");
}

static void legacy_text_is_detected(void **state)
{
    (void)state;
    /* "Съешь же ещё этих мягких французских булок, да выпей чаю." in windows-1251 */
    expect_text(
        "a.txt",
        BYTES("\xd1\xfa\xe5\xf8\xfc \xe6\xe5 \xe5\xf9\xb8 \xfd\xf2\xe8\xf5 "
              "\xec\xff\xe3\xea\xe8\xf5 "
              "\xf4\xf0\xe0\xed\xf6\xf3\xe7\xf1\xea\xe8\xf5 \xe1\xf3\xeb\xee\xea, \xe4\xe0 "
              "\xe2\xfb\xef\xe5\xe9 \xf7\xe0\xfe."),
        "windows-1251", "Съешь же ещё этих мягких французских булок, да выпей чаю.");
}

static void the_option_outranks_detection_but_not_a_mark(void **state)
{
    (void)state;
    struct try *t = try_new();
    try_option(t, "encoding", "cp866");
    struct doc *d = try_bytes(t, "a.txt", BYTES("\x8f\x90\x88\x82\x85\x92"));
    assert_string_equal(d->encoding, "IBM866");
    assert_string_equal(d->text, "ПРИВЕТ");
    try_free(t);
    t = try_new();
    try_option(t, "encoding", "cp866");
    d = try_bytes(t, "a.txt", BYTES("\xef\xbb\xbf\xc3\xa9"));
    assert_string_equal(d->encoding, "UTF-8");
    try_free(t);
}

static void an_unknown_encoding_stops_the_job(void **state)
{
    (void)state;
    struct try *t = try_new();
    try_option(t, "encoding", "klingon-8");
    try_option(t, "from", try_file(t, "a.txt", "x", 1));
    assert_int_equal(try_run(t), -ERR_CONFIG);
    assert_int_equal(t->e.reach, REACH_JOB);
    assert_non_null(strstr(t->e.msg, "klingon-8"));
    try_free(t);
}

static void bad_bytes_become_marks_with_a_warning(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_bytes(
        t, "a.html",
        BYTES("<meta charset=utf-8><p>caf\xc3\xa9 \xe2\x80\x93 na\xc3\xafve \xff end"));
    assert_int_equal(d->status, DOC_PARTIAL);
    assert_string_equal(d->text, "café – naïve \uFFFD end");
    assert_non_null(strstr(d->warnings[0], "1 byte sequences"));
    assert_null(d->warnings[1]);
    try_free(t);
}

static void line_ends_and_nuls_are_normalised(void **state)
{
    (void)state;
    struct try *t = try_new();
    char text[400];
    memset(text, 'a', sizeof(text));
    memcpy(text + 100, "\r\nx\ry\n\0z", 8);
    struct doc *d = try_bytes(t, "a.txt", text, sizeof(text));
    assert_int_equal(d->status, DOC_PARTIAL);
    assert_non_null(strstr(d->text, "a\nx\ny\nza"));
    assert_string_equal(d->warnings[0], "1 NUL characters were dropped.");
    try_free(t);
}

static void text_is_composed_and_blanks_are_plain(void **state)
{
    (void)state;
    expect_text("a.txt",
                BYTES("e\xcc\x81 a\xc2\xa0z so\xc2\xad"
                      "ft"),
                "UTF-8", "é a z soft");
    expect_text("a.txt", BYTES("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"), "UTF-8", "한");
}

static void a_long_line_is_composed_as_a_whole(void **state)
{
    (void)state;
    enum { N = 100000 };
    char *text = malloc(N * 3 + 1);
    for (int i = 0; i < N; i++)
        memcpy(text + 3 * i, "e\xcc\x81", 3);
    struct try *t = try_new();
    struct doc *d = try_bytes(t, "a.txt", text, N * 3);
    assert_int_equal(d->text_len, N * 2);
    for (int i = 0; i < N; i++)
        assert_memory_equal(d->text + 2 * i, "\xc3\xa9", 2);
    free(text);
    try_free(t);
}

static void binary_data_is_refused(void **state)
{
    (void)state;
    unsigned char noise[2000];
    unsigned x = 1;
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (unsigned char)((x = x * 1103515245u + 12345u) >> 16);
    expect_failure("notes.md", noise, sizeof(noise), ERR_UNSUPPORTED, "binary data");
}

static void known_formats_are_refused_by_name(void **state)
{
    (void)state;
    expect_failure("a.txt", BYTES("%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"), ERR_UNSUPPORTED,
                   "PDF documents are not read yet");
    expect_failure("a", BYTES("{\\rtf1\\ansi hello}"), ERR_UNSUPPORTED, "RTF documents");
    expect_failure("a", BYTES("WARC/1.0\r\nWARC-Type: response\r\n\r\n"), ERR_UNSUPPORTED,
                   "WARC");
    expect_failure("a.eml",
                   BYTES("MIME-Version: 1.0\nFrom: a@b.c\nTo: d@e.f\nSubject: x\n\nhello\n"),
                   ERR_UNSUPPORTED, "mail");
    expect_failure("a.mbox",
                   BYTES("From a@b.c Mon Jun 01 10:00:00 2009\nSubject: x\n\nhello\n"),
                   ERR_UNSUPPORTED, "mail");
    expect_failure("a.doc", BYTES("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 and so on"),
                   ERR_UNSUPPORTED, "Office");
}

static void letters_are_not_taken_for_mail(void **state)
{
    (void)state;
    expect_text("a.txt", BYTES("From here on, all is well.\nYours, A.\n"), "UTF-8",
                "From here on, all is well.\nYours, A.\n");
    expect_text("a.txt", BYTES("To: the board\nRe: money\n\nDear all\n"), "UTF-8",
                "To: the board\nRe: money\n\nDear all\n");
}

static void no_text_is_a_failure(void **state)
{
    (void)state;
    expect_failure("a.txt", "", 0, ERR_FORMAT, "empty");
    expect_failure("a.txt", BYTES(" \n\t\n"), ERR_FORMAT, "no text");
    expect_failure("a.html", BYTES("<p hidden>secret</p>"), ERR_FORMAT, "no text");
}

static void a_document_over_the_limit_fails_by_name(void **state)
{
    (void)state;
    struct try *t = try_new();
    try_option(t, "max_document", "1024");
    char text[1025];
    memset(text, 'x', sizeof(text));
    struct doc *d = try_bytes(t, "a.txt", text, 1024);
    assert_int_equal(d->status, DOC_OK);
    try_free(t);
    t = try_new();
    try_option(t, "max_document", "1024");
    d = try_bytes(t, "a.txt", text, 1025);
    assert_int_equal(d->fail.code, ERR_LIMIT);
    assert_non_null(strstr(d->fail.msg, "ingest.max_document"));
    try_free(t);
}

static void text_that_grows_over_the_limit_fails_by_name(void **state)
{
    (void)state;
    struct try *t = try_new();
    try_option(t, "max_document", "1024");
    char text[1000];
    for (size_t i = 0; i < sizeof(text); i += 2)
        memcpy(text + i, i ? "\x4e\x2d" : "\xfe\xff", 2); /* U+4E2D: 2 bytes become 3 */
    struct doc *d = try_bytes(t, "a.txt", text, sizeof(text));
    assert_int_equal(d->fail.code, ERR_LIMIT);
    assert_non_null(strstr(d->fail.msg, "ingest.max_document"));
    try_free(t);
}

static void paragraphs_stand_between_blank_lines(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.txt", "one\ntwo\n  \n\nthree\n");
    assert_int_equal(d->n_blocks, 2);
    assert_string_equal(try_block(d, 0), "p/0:one\ntwo");
    assert_string_equal(try_block(d, 1), "p/0:three");
    assert_int_equal(d->blocks[0].page, 0);
    assert_string_equal(d->media_type, "text/plain");
    try_free(t);
}

static void a_form_feed_begins_a_page(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.txt", "one\n\n\ftwo\nstill two\fthree\n\f\n\ffive");
    static const int pages[] = {1, 2, 3, 5};
    assert_int_equal(d->n_blocks, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(d->blocks[i].page, pages[i]);
    assert_string_equal(try_block(d, 1), "p/0:two\nstill two");
    try_check_blocks(d);
    try_free(t);
}

static void the_block_table_stays_bounded(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *text = malloc(N);
    for (int i = 0; i < N; i++)
        text[i] = i % 3 ? '\n' : 'a';
    struct try *t = try_new();
    try_option(t, "max_document", "2MiB");
    struct doc *d = try_bytes(t, "a.txt", text, N);
    assert_int_equal(d->status, DOC_OK);
    assert_true(d->n_blocks <= (2u << 20) / 64 + 1024);
    assert_int_equal(d->blocks[d->n_blocks - 1].end, N / 3 * 3 + 1);
    free(text);
    try_free(t);
}

/* ---- Markdown ---- */

static void markdown_blocks_are_found(void **state)
{
    (void)state;
    static const char *const want[] = {"h/1:# Title *here*",
                                       "p/0:Para\nmore [x](y)",
                                       "li/1:- one",
                                       "li/2:  - two",
                                       "p/0:  second of two",
                                       "li/1:3. three",
                                       "quote/0:> said\n> twice",
                                       "code/0:```c\nint x;\n\n# no heading\n```",
                                       "row/0:| a | b |",
                                       "row/0:|---|--:|",
                                       "row/0:| 1 | 2 |",
                                       "h/2:Under\n-----",
                                       "p/0:[ref]: http://example.org",
                                       "code/0:indented"};
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.md",
                             "# Title *here*\n\nPara\nmore [x](y)\n\n- one\n  - two\n\n    "
                             "second of two\n\n3. three\n\n"
                             "> said\n> twice\n\n```c\nint x;\n\n# no heading\n```\n\n| a | b "
                             "|\n|---|--:|\n| 1 | 2 |\n\n"
                             "Under\n-----\n[ref]: http://example.org\n\n    indented\n");
    try_check_blocks(d);
    assert_string_equal(d->title, "Title here");
    assert_string_equal(d->media_type, "text/markdown");
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const char *got = try_block(d, i);
        const char *colon =
            strchr(want[i], ':') + 1; /* blanks at the front of a block are outside of it */
        colon += strspn(colon, " ");
        if (strncmp(got, want[i], strcspn(want[i], ":")) != 0 ||
            strcmp(strchr(got, ':') + 1, colon) != 0)
            fail_msg("block %zu is %s, not %s", i, got, want[i]);
    }
    assert_int_equal(d->n_blocks, ARRAY_LEN(want));
    try_free(t);
}

static void front_matter_is_no_heading(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.md", "---\ntitle: \"The plan\"\n---\n\n# Other\n");
    assert_string_equal(d->title, "The plan");
    assert_string_equal(try_block(d, 0), "p/0:---\ntitle: \"The plan\"\n---");
    assert_string_equal(try_block(d, 1), "h/1:# Other");
    try_free(t);
}

static void long_markdown_is_parsed_in_segments(void **state)
{
    (void)state;
    enum { N = 20000 };
    char *text = malloc(N * 64), *p = text;
    for (int i = 0; i < N; i++)
        p += sprintf(p, "## Heading %d\n\nText of section.\n\n```\n\n# code\n```\n\n", i);
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.md", text);
    assert_int_equal(d->n_blocks, 3 * N);
    for (size_t i = 0; i < d->n_blocks; i += 3) {
        assert_int_equal(d->blocks[i].kind, BLOCK_HEADING);
        assert_int_equal(d->blocks[i + 1].kind, BLOCK_PARAGRAPH);
        assert_int_equal(d->blocks[i + 2].kind, BLOCK_CODE);
    }
    free(text);
    try_free(t);
}

static void markdown_that_hurts_parsers_is_read_fast(void **state)
{
    (void)state;
    static const char *const pieces[] = {"[",      "[a](",   "*a_ ",    "> ",     "- ",
                                         "![[]()", "`a ",    "<!-- a ", "<a b='", "&#",
                                         "a\n\n",  "* a\n ", "| ",      "<?php ", "\\"};
    enum { N = 1 << 20 };
    char *text = malloc(N);
    for (size_t k = 0; k < ARRAY_LEN(pieces); k++) {
        size_t len = strlen(pieces[k]);
        for (size_t i = 0; i + len <= N; i += len)
            memcpy(text + i, pieces[k], len);
        struct try *t = try_new();
        try_option(t, "timeout", "10m");
        double start = thread_seconds();
        struct doc *d = try_bytes(t, "a.md", text, N - N % len);
        double seconds = thread_seconds() - start;
        if (d->status != DOC_OK || seconds > 20)
            fail_msg("\"%s\": %.1f s %s", pieces[k], seconds, d->fail.msg);
        try_check_blocks(d);
        try_free(t);
    }
    free(text);
}

/* ---- JSON lines ---- */

static void json_lines_give_one_document_each(void **state)
{
    (void)state;
    struct try *t = try_new();
    try_option(t, "text_field", "body.text");
    try_option(t, "id_field", "id");
    try_option(t, "title_field", "t");
    try_text(
        t, "a.jsonl",
        "\xef\xbb\xbf{\"id\":\"x/1\",\"t\":\"One\",\"body\":{\"text\":\"first\\r\\n\\nend\"}}\n"
        "\n"
        "{\"id\":7,\"body\":{\"text\":\"second\"}}\r\n"
        "{\"id\":8}\n"
        "not json\n"
        "[1]\n"
        "{\"id\":9,\"body\":{\"text\":5}}\n"
        "{\"id\":10,\"body\":{\"text\":\"a\\u0000b \\ud800 \\ud83d\\ude00 \xff\"}}\n"
        "{\"id\":99999999999999999999,\"body\":{\"text\":\"no newline\"}}");
    assert_int_equal(t->n, 8);
    assert_string_equal(t->docs[0]->chain[0], "x/1");
    assert_string_equal(t->docs[0]->title, "One");
    assert_string_equal(t->docs[0]->text, "first\n\nend");
    assert_string_equal(t->docs[0]->media_type, "application/jsonl");
    assert_int_equal(t->docs[0]->n_blocks, 2);
    assert_string_equal(t->docs[1]->chain[0], "7");
    assert_non_null(strstr(t->docs[2]->fail.msg, "no field \"body.text\""));
    assert_string_equal(t->docs[3]->chain[0], "line 5");
    assert_int_equal(t->docs[3]->fail.code, ERR_FORMAT);
    assert_non_null(strstr(t->docs[4]->fail.msg, "not a JSON object"));
    assert_non_null(strstr(t->docs[5]->fail.msg, "no string"));
    assert_int_equal(t->docs[6]->status, DOC_PARTIAL);
    assert_string_equal(t->docs[6]->text, "ab \uFFFD \U0001F600 \uFFFD");
    assert_non_null(t->docs[6]->warnings[2]);
    assert_string_equal(t->docs[7]->text, "no newline");
    try_free(t);
}

static void a_json_line_over_the_limit_fails_alone(void **state)
{
    (void)state;
    struct try *t = try_new();
    try_option(t, "max_document", "1024");
    char text[3000];
    int n = snprintf(text, sizeof(text), "{\"text\":\"%02000d\"}\n{\"text\":\"short\"}\n", 0);
    try_bytes(t, "a.ndjson", text, (size_t)n);
    assert_int_equal(t->n, 2);
    assert_int_equal(t->docs[0]->fail.code, ERR_LIMIT);
    assert_non_null(strstr(t->docs[0]->fail.msg, "ingest.max_document"));
    assert_string_equal(t->docs[1]->text, "short");
    try_free(t);
}

static void a_json_line_of_many_values_is_refused(void **state)
{
    (void)state;
    enum { N = 2000000 };
    char *text = malloc(N + 32);
    memset(text, ' ', N);
    size_t n = (size_t)sprintf(text, "{\"text\":\"x\",\"a\":[");
    text[n] = '1';
    for (size_t i = n + 1; i + 1 < N; i += 2)
        memcpy(text + i, ",1", 2);
    memcpy(text + N - 2, "]}", 2);
    struct try *t = try_new();
    struct doc *d = try_bytes(t, "a.jsonl", text, N);
    assert_int_equal(d->fail.code, ERR_LIMIT);
    free(text);
    try_free(t);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mark_wins_and_is_stripped),
        cmocka_unit_test(utf16_is_seen_by_its_nuls),
        cmocka_unit_test(valid_utf8_is_never_guessed_at),
        cmocka_unit_test(legacy_text_is_detected),
        cmocka_unit_test(the_option_outranks_detection_but_not_a_mark),
        cmocka_unit_test(an_unknown_encoding_stops_the_job),
        cmocka_unit_test(bad_bytes_become_marks_with_a_warning),
        cmocka_unit_test(line_ends_and_nuls_are_normalised),
        cmocka_unit_test(text_is_composed_and_blanks_are_plain),
        cmocka_unit_test(a_long_line_is_composed_as_a_whole),
        cmocka_unit_test(binary_data_is_refused),
        cmocka_unit_test(known_formats_are_refused_by_name),
        cmocka_unit_test(letters_are_not_taken_for_mail),
        cmocka_unit_test(no_text_is_a_failure),
        cmocka_unit_test(a_document_over_the_limit_fails_by_name),
        cmocka_unit_test(text_that_grows_over_the_limit_fails_by_name),
        cmocka_unit_test(paragraphs_stand_between_blank_lines),
        cmocka_unit_test(a_form_feed_begins_a_page),
        cmocka_unit_test(the_block_table_stays_bounded),
        cmocka_unit_test(markdown_blocks_are_found),
        cmocka_unit_test(front_matter_is_no_heading),
        cmocka_unit_test(long_markdown_is_parsed_in_segments),
        cmocka_unit_test(markdown_that_hurts_parsers_is_read_fast),
        cmocka_unit_test(json_lines_give_one_document_each),
        cmocka_unit_test(a_json_line_over_the_limit_fails_alone),
        cmocka_unit_test(a_json_line_of_many_values_is_refused),
    };
    return cmocka_run_group_tests_name("ingest_text", tests, NULL, NULL);
}

/* HTML and XML. */
#include "tests/unit/ingest_try.h"
#include "tests/unit/thread_time.h"

static void expect_blocks(const char *name, const char *text, const char *const *want)
{
    struct try *t = try_new();
    struct doc *d = try_text(t, name, text);
    assert_non_null(d);
    if (d->status == DOC_FAILED)
        fail_msg("%s: %s", name, d->fail.msg);
    try_check_blocks(d);
    size_t n = 0;
    for (; want[n]; n++) {
        if (n == d->n_blocks)
            fail_msg("no block for %s in %s", want[n], d->text);
        if (strcmp(try_block(d, n), want[n]) != 0)
            fail_msg("block %zu is %s, not %s", n, try_block(d, n), want[n]);
    }
    if (n != d->n_blocks)
        fail_msg("one more block: %s", try_block(d, n));
    try_free(t);
}

#define EXPECT(name, text, ...)                                                                \
    expect_blocks(name, text, (const char *const[]){__VA_ARGS__, NULL})

static void expect_failure(const char *name, const char *text, enum err_code code,
                           const char *part)
{
    struct try *t = try_new();
    struct doc *d = try_text(t, name, text);
    assert_int_equal(d->status, DOC_FAILED);
    assert_int_equal(d->fail.code, code);
    if (!strstr(d->fail.msg, part))
        fail_msg("\"%s\" is not in \"%s\"", part, d->fail.msg);
    try_free(t);
}

/* ---- HTML ---- */

static void html_blocks_are_found(void **state)
{
    (void)state;
    EXPECT("a.html",
           "<!DOCTYPE html><html><head><title> The  title </title></head><body>\n"
           "<h1>Big\n  <em>heading</em></h1>bare text<p>one<p>two<br>lines</p>"
           "<div>three <span>four</span></div><blockquote><p>said</p>more</blockquote>"
           "<pre>\n  keep\n   this</pre><hr>end</body></html>",
           "h/1:Big heading", "p/0:bare text", "p/0:one", "p/0:two\nlines", "p/0:three four",
           "quote/0:said", "quote/0:more", "code/0:keep\n   this", "p/0:end");
}

static void lists_have_levels(void **state)
{
    (void)state;
    EXPECT("a.html", "<ul><li>a<ul><li><p>b</p><p>b2</p></li></ul></li><li>c</ul>after",
           "li/1:a", "li/2:b", "p/0:b2", "li/1:c", "p/0:after");
    EXPECT("a.html", "<dl><dt>term<dd>meaning</dl>", "p/0:term", "p/0:meaning");
}

static void table_rows_join_their_cells(void **state)
{
    (void)state;
    EXPECT("a.html",
           "<table><caption>cap</caption><tr><th>a<th>b</tr><tr><td>1<td><p>2</p><p>3</p></"
           "tr><tr><td> <td></tr>"
           "<tr><td></td><td>x<br>y</td></tr><tr><td>l<td><ul><li>p<li>q</ul></tr></table>z",
           "p/0:cap", "row/0:a | b", "row/0:1 | 2 3", "row/0:| x y", "row/0:l | p; q", "p/0:z");
}

static void a_layout_table_gives_paragraphs(void **state)
{
    (void)state;
    EXPECT("a.html", "<table><tr><td>menu<td><h2>Head</h2><p>one</p><p>two</p></tr></table>",
           "row/0:menu |", "h/2:Head", "p/0:one", "p/0:two");
}

static void what_no_reader_sees_is_left_out(void **state)
{
    (void)state;
    EXPECT("a.html",
           "<p>a<script>var x = '<p>no</p>';</script><style>p{}</style><!-- no <p>no -->b</p>"
           "<template><p>no</p></template><noscript>no</noscript><svg><text>no</text></svg>"
           "<p hidden>no</p><div style='color:red; DISPLAY : none'>no<p>no</p></div><div "
           "aria-hidden=true>yes</div>"
           "<script><!-- <script> </script> --><p>c</p>",
           "p/0:ab", "p/0:yes", "p/0:-->", "p/0:c");
}

static void a_comment_that_never_ends_takes_little(void **state)
{
    (void)state;
    EXPECT("a.html", "<p>one</p><!-- oh <p>two</p><p>three</p>", "p/0:one", "p/0:two",
           "p/0:three");
    EXPECT("a.html", "<p title=\"oh>one</p><p>two</p>", "p/0:one", "p/0:two");
}

static void references_are_decoded_as_on_the_web(void **state)
{
    (void)state;
    EXPECT("a.html", "<p>&eacute;&#147;&#x94;&amp;lt;&nbsp;&#8364; a &lt;b&gt; 1 < 2 &nosuch;",
           "p/0:é“”&lt; € a <b> 1 < 2 &nosuch;");
}

static void xhtml_reads_as_html(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(
        t, "a.xml",
        "<?xml version='1.0' encoding='iso-8859-1'?><!DOCTYPE html PUBLIC 'a' 'b'>"
        "<html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='x'/></head>"
        "<body><p>A&nbsp;B &mdash; <![CDATA[1 < 2]]> caf\xe9<br/>x</p></body></html>");
    assert_string_equal(d->media_type, "text/html");
    assert_string_equal(d->text, "A B — 1 < 2 café\nx");
    assert_string_equal(d->encoding, "windows-1252");
    try_free(t);
}

static void meta_decides_the_charset_once(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.html",
                             "<html><head><title>\x93\xfa\x96{</title><meta "
                             "http-equiv=Content-Type content=\"text/html; "
                             "charset=Shift_JIS\"></head><p>\x83\\\x8f\\</p>");
    assert_string_equal(d->encoding, "Shift_JIS");
    assert_string_equal(d->title, "日本");
    assert_string_equal(d->text, "ソ十");
    try_free(t);
}

static void a_false_claim_of_utf8_is_not_believed(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.html",
                             "<meta charset=utf-8><p>na\xefve caf\xe9 cr\xe8me br\xfbl\xe9"
                             "e, d\xe9j\xe0 vu, voil\xe0 l'\xe9t\xe9</p>");
    assert_string_equal(d->text, "naïve café crème brûlée, déjà vu, voilà l'été");
    assert_int_equal(d->status, DOC_OK);
    try_free(t);
}

static void deep_html_is_read_to_its_limit(void **state)
{
    (void)state;
    char text[3 * 1100 + 32] = "<html>", *p = text + 6;
    for (int i = 0; i < 1000; i++)
        p = stpcpy(p, "<b>");
    strcpy(p, "deep");
    EXPECT("a.html", text, "p/0:deep");
    for (int i = 0; i < 60; i++)
        p = stpcpy(p, "<b>");
    strcpy(p, "deep");
    expect_failure("a.html", text, ERR_LIMIT, "1024 deep");
}

/* n copies of a piece after a start. */
static char *many(const char *start, const char *piece, size_t n)
{
    size_t len = strlen(piece);
    char *text = malloc(strlen(start) + n * len + 1), *p = stpcpy(text, start);
    for (size_t i = 0; i < n; i++, p += len)
        memcpy(p, piece, len);
    *p = '\0';
    return text;
}

static void markup_that_hurts_parsers_is_read_fast(void **state)
{
    (void)state;
    static const struct {
        const char *name, *start, *piece;
        size_t n;
    } cases[] = {
        {"a.html", "<p>x<p ", "a b=1 ", 200000},
        {"a.html", "<p>x", "<a b=\"", 200000},
        {"a.html", "<p>x", "<!-- -", 200000},
        {"a.html", "<p>x", "<!--", 200000},
        {"a.html", "<p>x", "<title>", 100000},
        {"a.html", "<p>x", "<![CDATA[", 100000},
        {"a.html", "<p>x", "</i>", 300000},
        {"a.html", "<p>x", "<", 1000000},
        {"a.html", "<p>x", "&amp", 300000},
        {"a.html", "<p>x", "&#1", 300000},
        {"a.html", "<p>x", "<table><tr>", 500},
        {"a.html", "<p>x", "<script>", 100000},
        {"a.html", "<p>x", "<p><b></p>", 500},
        {"a.html", "<p>x<br ", "style=\"display: ", 100000},
        {"a.xml", "<x a='", "b='1' ", 200000},
        {"a.xml", "<x>y", "<!-- -", 200000},
        {"a.xml", "<x>y", "<z/>", 300000},
        {"a.xml", "<!DOCTYPE x [", "<!ATTLIST a b CDATA 'c'>", 50000},
        {"a.xml", "<x>y", "&amp;", 300000},
        {"a.xml", "<x>y", "<![CDATA[z]]>", 100000},
        {"a.xml", "<x>y", "&q", 300000},
        {"a.xml", "<!DOCTYPE x [", "<!ELEMENT a (b,(c", 50000},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *text = many(cases[i].start, cases[i].piece, cases[i].n);
        struct try *t = try_new();
        double start = thread_seconds();
        assert_non_null(try_text(t, cases[i].name, text));
        int64_t ms = (int64_t)(1000 * (thread_seconds() - start));
        if (ms > 2000 * 10) /* sanitizer builds are ten times slower */
            fail_msg("%s%s...: %d ms", cases[i].start, cases[i].piece, (int)ms);
        if (ms > 300)
            print_message("%s%s...: %d ms %s\n", cases[i].start, cases[i].piece, (int)ms,
                          t->docs[0]->fail.msg);
        if (t->docs[0]->text)
            try_check_blocks(t->docs[0]);
        free(text);
        try_free(t);
    }
}

static void the_timeout_holds_inside_a_parser(void **state)
{
    (void)state;
    char *text = many("<p>x", "<i>y</i> ", 1500000);
    struct try *t = try_new();
    try_option(t, "timeout", "10ms");
    struct doc *d = try_text(t, "a.html", text);
    assert_int_equal(d->fail.code, ERR_LIMIT);
    assert_non_null(strstr(d->fail.msg, "ingest.timeout"));
    free(text);
    try_free(t);
}

/* ---- XML ---- */

static void xml_elements_with_text_are_paragraphs(void **state)
{
    (void)state;
    EXPECT("a.xml",
           "<?xml version=\"1.0\"?>\n<book>\n <title>The  Book</title>\n "
           "<part><heading>One</heading>\n"
           "  <para>Some <b>bold</b> text.</para><para><i>First</i> and more</para>\n"
           "  <row><c>1</c><c>2</c></row></part></book>",
           "h/1:The Book", "h/2:One", "p/0:Some bold text.", "p/0:First and more", "p/0:1",
           "p/0:2");
}

static void xml_has_a_title(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(
        t, "a.xml", "<d:doc xmlns:d='u'><d:title>Name</d:title><d:p>text</d:p></d:doc>");
    assert_string_equal(d->title, "Name");
    assert_string_equal(d->media_type, "application/xml");
    try_free(t);
}

static void html_entities_are_known_in_xml(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d =
        try_text(t, "a.xml", "<a>A&nbsp;B &copy; &lt;x&gt; &nosuch; <![CDATA[<raw>]]> end</a>");
    assert_string_equal(d->text, "A B © <x> &nosuch; <raw> end");
    assert_int_equal(d->status, DOC_PARTIAL);
    assert_non_null(strstr(d->warnings[0], "nosuch"));
    try_free(t);
}

static void the_declared_encoding_is_used(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(
        t, "a.xml",
        "<?xml version='1.0' encoding='windows-1251'?><a>\xcf\xf0\xe8\xe2\xe5\xf2</a>");
    assert_string_equal(d->encoding, "windows-1251");
    assert_string_equal(d->text, "Привет");
    try_free(t);
}

static void entity_declarations_end_the_reading(void **state)
{
    (void)state;
    expect_failure("a.xml", "<!DOCTYPE a [<!ENTITY b \"text\">]><a>&b;</a>", ERR_UNSUPPORTED,
                   "entities of its own");
    expect_failure("a.xml",
                   "<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/hostname\">]><a>x &b;</a>",
                   ERR_UNSUPPORTED, "entities of its own");
    expect_failure("a.xml",
                   "<!DOCTYPE a [<!ENTITY % b SYSTEM \"file:///etc/hostname\"> %b;]><a>x</a>",
                   ERR_UNSUPPORTED, "entities of its own");
}

static void broken_xml_is_read_as_far_as_it_goes(void **state)
{
    (void)state;
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.xml", "<a><b>one</b><b>two</b><c");
    assert_int_equal(d->status, DOC_PARTIAL);
    assert_string_equal(d->text, "one\n\ntwo");
    assert_non_null(strstr(d->warnings[0], "not well-formed"));
    try_free(t);
    t = try_new();
    d = try_text(t, "a.xml", "<?xml version='1.0'?><a><<<< HEAD");
    assert_int_equal(d->status, DOC_PARTIAL);
    assert_non_null(strstr(d->text, "<<<< HEAD"));
    try_free(t);
}

static void deep_xml_is_refused_at_its_limit(void **state)
{
    (void)state;
    char *text = many("", "<a>", 1024);
    char *whole = malloc(strlen(text) + 16);
    sprintf(whole, "%stext", text);
    struct try *t = try_new();
    struct doc *d = try_text(t, "a.xml", whole);
    assert_string_equal(d->text, "text");
    try_free(t);
    sprintf(whole, "<a>%stext", text);
    expect_failure("a.xml", whole, ERR_LIMIT, "1024 deep");
    free(whole);
    free(text);
}

static void many_attributes_are_refused_wherever_they_hide(void **state)
{
    (void)state;
    static const char *const starts[] = {"<x ",
                                         "<!--x--><x ",
                                         "<?p <x ?><x ",
                                         "<!DOCTYPE x SYSTEM \"<!--\"><x ",
                                         "<!DOCTYPE x [<!ELEMENT a (b)> <!-- ' --> ]><x ",
                                         "<a b='>' c=\"<!--\"><x "};
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        char *text = many(starts[i], "y='' ", 1001);
        expect_failure("a.xml", text, ERR_LIMIT, "1000 attributes");
        free(text);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(html_blocks_are_found),
        cmocka_unit_test(lists_have_levels),
        cmocka_unit_test(table_rows_join_their_cells),
        cmocka_unit_test(a_layout_table_gives_paragraphs),
        cmocka_unit_test(what_no_reader_sees_is_left_out),
        cmocka_unit_test(a_comment_that_never_ends_takes_little),
        cmocka_unit_test(references_are_decoded_as_on_the_web),
        cmocka_unit_test(xhtml_reads_as_html),
        cmocka_unit_test(meta_decides_the_charset_once),
        cmocka_unit_test(a_false_claim_of_utf8_is_not_believed),
        cmocka_unit_test(deep_html_is_read_to_its_limit),
        cmocka_unit_test(markup_that_hurts_parsers_is_read_fast),
        cmocka_unit_test(the_timeout_holds_inside_a_parser),
        cmocka_unit_test(xml_elements_with_text_are_paragraphs),
        cmocka_unit_test(xml_has_a_title),
        cmocka_unit_test(html_entities_are_known_in_xml),
        cmocka_unit_test(the_declared_encoding_is_used),
        cmocka_unit_test(entity_declarations_end_the_reading),
        cmocka_unit_test(broken_xml_is_read_as_far_as_it_goes),
        cmocka_unit_test(deep_xml_is_refused_at_its_limit),
        cmocka_unit_test(many_attributes_are_refused_wherever_they_hide),
    };
    return cmocka_run_group_tests_name("ingest_markup", tests, NULL, NULL);
}

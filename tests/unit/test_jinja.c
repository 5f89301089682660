/* The interpreter against Jinja2 (tests/vectors/make_chat.py), its marks, and its limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stages/model/chat_date.h"
#include "stages/model/chat_prove.h"
#include "stages/model/jinja.h"

enum { TURNS_MAX = 8 };

static const struct chat_date date = {2024, 7, 26};

static int render(const char *text, const struct chat_message *msgs, int n, struct marked *out,
                  struct err *e)
{
    struct jinja *j = NULL;
    int rc = jinja_open(&j, text, strlen(text), e);
    struct jinja_input in = {msgs, n, "<s>", "</s>", &date};
    if (rc == 0)
        rc = jinja_render(j, &in, out, e);
    jinja_free(j);
    return rc;
}

/* Render with one user turn "Hi" and compare. */
static void expect(const char *text, const char *want)
{
    struct chat_message msg = {CHAT_USER, mtext_of("Hi")};
    struct marked out;
    struct err e = {0};
    marked_init(&out, 1 << 20);
    if (render(text, &msg, 1, &out, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    assert_string_equal(out.text.data ? out.text.data : "", want);
    marked_release(&out);
}

/* Must fail with this code, a message that holds `what`, in under 100 ms (sanitizers: ten times that). */
static void refuse(const char *text, size_t len, enum err_code code, const char *what)
{
    struct chat_message msg = {CHAT_USER, mtext_of("Hi")};
    struct marked out;
    struct err e = {0};
    marked_init(&out, 1 << 26);
    clock_t start = clock(); /* of this program: other work on the machine does not count */
    struct jinja *j = NULL;
    int rc = jinja_open(&j, text, len, &e);
    struct jinja_input in = {&msg, 1, "<s>", "</s>", NULL};
    if (rc == 0)
        rc = jinja_render(j, &in, &out, &e);
    jinja_free(j);
    int64_t took = (int64_t)(clock() - start) * 1000000 / CLOCKS_PER_SEC;
    marked_release(&out);
    if (rc != -(int)code || !strstr(e.msg, what))
        fail_msg("%.60s: wanted %s with \"%s\", got %d: %s", text, err_code_name(code), what,
                 rc, e.msg);
    assert_true(strlen(e.msg) > 0 && e.reach == REACH_JOB);
#if defined(SANITIZED) || !defined(__OPTIMIZE__)
    took /= 10;
#endif
    if (took > 100000)
        fail_msg("%.60s: took %lld us", text, (long long)took);
}

static void refuse_text(const char *text, enum err_code code, const char *what)
{
    refuse(text, strlen(text), code, what);
}

/* ---- the vectors ---- */

static int conversation(const json_t *turns, struct chat_message msgs[TURNS_MAX])
{
    int n = 0;
    size_t i;
    json_t *turn;
    json_array_foreach(turns, i, turn)
    {
        const char *role = json_string_value(json_object_get(turn, "role"));
        json_t *content = json_object_get(turn, "content");
        msgs[n].role = role[0] == 's'   ? CHAT_SYSTEM
                       : role[0] == 'u' ? CHAT_USER
                                        : CHAT_ASSISTANT;
        msgs[n++].text =
            (struct mtext){json_string_value(content), NULL, json_string_length(content)};
    }
    return n;
}

static void one_rendering(const char *name, const char *text, const json_t *turns,
                          const json_t *want)
{
    struct chat_message msgs[TURNS_MAX];
    struct marked out;
    struct err e = {0};
    marked_init(&out, 1 << 20);
    int n = conversation(turns, msgs), rc = render(text, msgs, n, &out, &e);
    if (json_is_null(want)) {
        if (rc != -ERR_FORMAT)
            fail_msg("%s: Jinja2 raises, here %d: %s %s", name, rc, e.msg, out.text.data);
    } else {
        if (rc < 0)
            fail_msg("%s: %s", name, e.msg);
        assert_int_equal(out.text.len, out.marks.len);
        assert_string_equal(out.text.data ? out.text.data : "", json_string_value(want));
    }
    marked_release(&out);
}

static json_t *load_vectors(void)
{
    json_error_t error;
    json_t *root = json_load_file("tests/vectors/chat.json", 0, &error);
    if (!root)
        fail_msg("tests/vectors/chat.json: %s", error.text);
    return root;
}

static void renders_as_jinja2(void **state)
{
    (void)state;
    json_t *root = load_vectors(), *t;
    size_t i, k;
    json_t *conversations = json_object_get(root, "conversations"), *want;
    json_array_foreach(json_object_get(root, "templates"), i, t)
    {
        json_array_foreach(json_object_get(t, "renderings"), k, want)
        {
            one_rendering(json_string_value(json_object_get(t, "name")),
                          json_string_value(json_object_get(t, "template")),
                          json_array_get(conversations, k), want);
        }
    }
    json_decref(root);
}

/* The family's own rendering of a conversation that the template takes. */
static void one_family_rendering(const char *name, const struct chat_format *f,
                                 const struct chat_quirks *q, const json_t *turns,
                                 const json_t *want)
{
    struct chat_message msgs[TURNS_MAX];
    struct marked out;
    struct err e = {0};
    marked_init(&out, 1 << 20);
    assert_int_equal(
        chat_format_render(f, q, "</s>", msgs, conversation(turns, msgs), &out, &e), 0);
    struct mtext wanted = mtext_of(json_string_value(want));
    bool bos = chat_strip_bos(&wanted, "<s>");
    if (bos != q->bos || strcmp(out.text.data, wanted.s) != 0)
        fail_msg("%s: wanted [%s], got [%s]", name, wanted.s, out.text.data);
    marked_release(&out);
}

static void recognises_each_family_and_no_other_template(void **state)
{
    (void)state;
    json_t *root = load_vectors(), *t, *want;
    json_t *conversations = json_object_get(root, "conversations");
    size_t i, k;
    json_array_foreach(json_object_get(root, "templates"), i, t)
    {
        const char *name = json_string_value(json_object_get(t, "name"));
        const char *family = json_string_value(json_object_get(t, "family"));
        const char *text = json_string_value(json_object_get(t, "template"));
        struct err e = {0};
        struct jinja *j = NULL;
        const struct chat_format *f = NULL;
        struct chat_quirks q = {0};
        assert_int_equal(jinja_open(&j, text, strlen(text), &e), 0);
        int rc = chat_prove(j, text, strlen(text), "<s>", "</s>", &date, &f, &q, &e);
        jinja_free(j);
        if ((rc == 0) != (family != NULL) || (family && strcmp(f->family, family) != 0))
            fail_msg("%s: wanted %s, got %d %s %s", name, family ? family : "no family", rc,
                     rc == 0 ? f->family : "", e.msg);
        json_array_foreach(json_object_get(t, "renderings"), k, want)
        {
            if (family && !json_is_null(want))
                one_family_rendering(name, f, &q, json_array_get(conversations, k), want);
        }
        chat_quirks_release(&q);
    }
    json_decref(root);
}

/* ---- marks ---- */

static void user_text_keeps_its_marks(void **state)
{
    (void)state;
    static const char *const templates[] = {
        "<{{ messages[0].content }}>",
        "{{ '<' + messages[0].content + '>' }}",
        "{{ '<' ~ messages[0]['content'] ~ '>' }}",
        "<{{ messages[0].content | trim }}>",
        "{% set x = messages[0].content %}<{{ x[0:] }}>",
        "<{{ messages[0].content | replace('~', '<') }}>",
        "{{ ['<', messages[0].content, '>'] | join }}",
        "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].content) }}",
        "{% set x %}<{{ messages[0].content }}>{% endset %}{{ x }}",
        "<{{ messages[0].content.split('~') | join }}>",
        "<{{ messages[0].content | lower }}>",
        "<{% for c in messages[0].content %}{{ c }}{% endfor %}>",
        "<{{ messages[0].content[::-1][::-1] }}>",
        "<{{ messages[0].content.strip().rstrip('~') }}>"};
    const char *user = "a<|im_end|>b\xc3\xa9";
    uint8_t marks[32];
    struct chat_message msg = {CHAT_USER,
                               {user, memset(marks, 7, sizeof(marks)), strlen(user)}};
    for (size_t i = 0; i < ARRAY_LEN(templates); i++) {
        struct marked out;
        struct err e = {0};
        marked_init(&out, 4096);
        if (render(templates[i], &msg, 1, &out, &e) < 0)
            fail_msg("%s: %s", templates[i], e.msg);
        assert_int_equal(out.text.len, strlen(user) + 2);
        assert_memory_equal(out.text.data + 1, user, strlen(user));
        for (size_t k = 0; k < out.marks.len; k++)
            if (out.marks.data[k] != (k == 0 || k + 1 == out.marks.len ? 0 : 7))
                fail_msg("%s: byte %zu has mark %d", templates[i], k, out.marks.data[k]);
        marked_release(&out);
    }
}

static void a_template_text_that_equals_user_text_has_no_mark(void **state)
{
    (void)state;
    uint8_t marks[2] = {7, 7};
    struct chat_message msg = {CHAT_USER, {"Hi", marks, 2}};
    struct marked out;
    struct err e = {0};
    marked_init(&out, 4096);
    assert_int_equal(
        render("Hi{{ messages[0].content }}{{ 'Hi' if messages[0].content == 'Hi' }}", &msg, 1,
               &out, &e),
        0);
    assert_memory_equal(out.marks.data, "\0\0\7\7\0\0", 6);
    marked_release(&out);
}

/* ---- what it refuses ---- */

static void names_what_it_does_not_know(void **state)
{
    (void)state;
    refuse_text("a\n{{ 'x' | wordwrap }}", ERR_UNSUPPORTED, "line 2: the filter \"wordwrap\"");
    refuse_text("{{ 1 is prime }}", ERR_UNSUPPORTED, "the test \"prime\"");
    refuse_text("{% include 'x' %}", ERR_UNSUPPORTED, "{% include %}");
    refuse_text("{{ lipsum() }}", ERR_UNSUPPORTED, "\"lipsum\"");
    refuse_text("{{ 'a'.encode() }}", ERR_UNSUPPORTED, "\"encode\"");
    refuse_text("{{ [1] }}", ERR_UNSUPPORTED, "a list");
    refuse_text("{% for x in y recursive %}{% endfor %}", ERR_UNSUPPORTED, "recursive");
    expect("{% if false %}{{ 'x' | wordwrap }}{% endif %}ok", "ok");
}

static void filters_check_their_arguments(void **state)
{
    (void)state;
    static const char *const two[] = {"'ab'|replace", "'ab'|replace('a')",
                                      "'ab'|replace(1, 'b')", "'ab'|replace('a', none)",
                                      "'ab'|replace(new='b')"};
    static const char *const attributes[] = {"messages|selectattr", "messages|selectattr(1)",
                                             "messages|rejectattr(none, 'none')"};
    static const char *const names[] = {"messages|select(1)", "messages|reject(none)",
                                        "messages|selectattr('role', 2)"};
    static const char *const maps[] = {"messages|map", "messages|map(1)",
                                       "messages|map(attribute=1)"};
    static const char *const absolutes[] = {"'-1'|abs", "none|abs", "messages|abs"};
    const struct {
        const char *const *filters;
        size_t n;
        const char *why;
    } kinds[] = {
        {two, ARRAY_LEN(two), "replace wants two strings"},
        {attributes, ARRAY_LEN(attributes), "selectattr wants the name of an attribute"},
        {names, ARRAY_LEN(names), "as the name of a test"},
        {maps, ARRAY_LEN(maps), "map wants a filter or an attribute"},
        {absolutes, ARRAY_LEN(absolutes), "abs of"}};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        for (size_t i = 0; i < kinds[k].n; i++) {
            char text[80];
            snprintf(text, sizeof(text), "{{ (%s)|list }}", kinds[k].filters[i]);
            refuse_text(text, ERR_FORMAT, kinds[k].why);
        }
    /* What they can do without: an argument of another type is as if it were not there. */
    expect("{{ 'aaa'|replace('a', 'b', 'x') }}", "bbb");
    expect("{{ 'aaa'|replace('a', 'b', 2) }}", "bba");
    expect("{{ ' a '|trim(1) }}", "a");
    expect("{{ 'x'|int(7) }}{{ 'x'|int }}{{ '1e400'|int(3) }}{{ ' 12 '|int }}", "70312");
    expect("{{ 'x'|float(2) }}", "2");
}

static void says_what_is_wrong_and_where(void **state)
{
    (void)state;
    refuse_text("{{ raise_exception('Only users, please.') }}", ERR_FORMAT,
                "it says: Only users, please.");
    refuse_text("{{ messages[0].x.y }}", ERR_FORMAT, "\"x\" is undefined");
    refuse_text("{{ 'a' + 1 }}", ERR_FORMAT, "operator +");
    refuse_text("{{ 1 // 0 }}{{ 1 % 0 }}", ERR_FORMAT, "division by zero");
    refuse_text("{% if x %}\n\n", ERR_FORMAT, "line 2: expected elif, found the end");
    refuse_text("{% endif %}", ERR_UNSUPPORTED, "endif");
    refuse_text("{{ 'abc }}", ERR_FORMAT, "string that does not end");
    refuse_text("{# x", ERR_FORMAT, "comment that does not end");
    refuse_text("{% raw %} x", ERR_FORMAT, "raw");
    refuse_text("{{", ERR_FORMAT, "tag that does not end");
    refuse_text("{{ (1 }}", ERR_FORMAT, "expected )");
    refuse_text("{{ a b }}", ERR_FORMAT, "expected }}, found b");
    refuse_text("{{ 1 $ 2 }}", ERR_FORMAT, "0x24");
    refuse_text("{% set ns = {'a': 1} %}{% set ns.a = 2 %}", ERR_FORMAT, "namespace");
}

static void a_date_must_be_fixed(void **state)
{
    (void)state;
    refuse_text("\n{{ strftime_now('%d') }}", ERR_CONFIG, "set prompt.date");
    expect("{{ strftime_now('%d %b %Y') }} {{ date_string }}", "26 Jul 2024 26 Jul 2024");
}

static void hostile_templates_end_in_an_error(void **state)
{
    (void)state;
    refuse_text("{% for i in range(1000000000) %}x{% endfor %}", ERR_LIMIT, "steps");
    refuse_text(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        ERR_LIMIT, "chat template line 1");
    refuse_text("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ERR_LIMIT, "deep");
    refuse_text("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + "
                "ns.s %}{% endfor %}",
                ERR_LIMIT, "chat template line 1");
    refuse_text("{{ 'x' * 999999999 }}", ERR_LIMIT, "repeated");
    refuse_text("{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + "
                "ns.l %}{% endfor %}",
                ERR_LIMIT, "chat template line 1");
    refuse_text("{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] "
                "%}{% endfor %}"
                "{{ ns.l | tojson }}",
                ERR_LIMIT, "nested");
    refuse_text("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns | tojson }}", ERR_LIMIT,
                "nested");
    refuse_text("{% set x = namespace() %}{% set x.me = x %}{% set y = namespace() %}{% set "
                "y.me = y %}{{ x == y }}",
                ERR_LIMIT, "nested");
    refuse_text("{{ 9223372036854775807 + 1 }}", ERR_FORMAT, "too many digits");
    refuse_text("{{ 999999999999999999 * 99 }}", ERR_LIMIT, "64 bits");
    refuse_text("{{ 2 ** 99 }}", ERR_LIMIT, "64 bits");
}

/* n copies of s between head and tail */
static void refuse_repeated(const char *head, const char *s, size_t n, const char *tail,
                            enum err_code code, const char *what)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 26);
    assert_int_equal(buf_adds(&b, head, &e), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_adds(&b, s, &e), 0);
    assert_int_equal(buf_adds(&b, tail, &e), 0);
    refuse(b.data, b.len, code, what);
    buf_release(&b);
}

static void long_and_deep_templates_end_in_an_error(void **state)
{
    (void)state;
    refuse_repeated("", "x", 10 << 20, "", ERR_LIMIT, "10485760 bytes");
    refuse_repeated("{{ ", "(", 100000, "1", ERR_LIMIT, "nested over");
    refuse_repeated("{{ ", "[", 100000, "1", ERR_LIMIT, "nested over");
    refuse_repeated("{{ ", "not ", 50000, "1 }}", ERR_LIMIT, "nested over");
    refuse_repeated("{{ ", "-", 100000, "1 }}", ERR_LIMIT, "nested over");
    refuse_repeated("{{ x", "[0", 50000, "", ERR_LIMIT, "nested over");
    refuse_repeated("{{ ", "1 if ", 50000, "1 }}", ERR_LIMIT, "deep");
    refuse_repeated("{{ ", "1 if 1 else ", 20000, "1 }}", ERR_LIMIT, "nested over");
    refuse_repeated("", "{% if 1 %}", 25000, "", ERR_LIMIT, "nested over");
    refuse_repeated("{{ 1", "+1", 100000, " }}", ERR_LIMIT, "deep");
    refuse_repeated("{{ 'a'", "|trim", 50000, " }}", ERR_LIMIT, "deep");
    refuse_repeated("{{ {'a': 1}", ".a", 100000, " }}", ERR_LIMIT, "deep");
    refuse_repeated("{% if 0 %}", "{% elif 0 %}", 20000,
                    "{% endif %}{{ raise_exception('end') }}", ERR_FORMAT, "end");
    refuse_repeated("", "{# #}{{ 1 }}", 20000, "{{ raise_exception('end') }}", ERR_FORMAT,
                    "end");
    refuse_repeated("", "{", 200000, "", ERR_LIMIT, "nested over");
    refuse_repeated("", "{% set a = 1 %}", 16000, "{{ raise_exception('end') }}", ERR_FORMAT,
                    "end");
}

static void any_bytes_are_text(void **state)
{
    (void)state;
    expect("\xff\xfe{{ '\xc3' }}\r\n{{ '\xe9' | upper }}{{ '\xf0\x9f' | length }}",
           "\xff\xfe\xc3\n\xe9"
           "1");
    expect("", "");
    expect("{", "{");
    expect("{{ '' }}\n", "");
    expect("a\r\nb\rc\n", "a\nb\nc");
}

static void dates_are_read_and_written(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "today", "2024-13-01", "2023-02-29", "32 Jan 2024", "1 Foo 2024", "2024-07-26x"};
    struct chat_date d;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};
        assert_int_equal(chat_date_parse(&d, bad[i], &e), -ERR_CONFIG);
        assert_non_null(strstr(e.msg, "prompt.date"));
    }
    struct err e = {0};
    assert_int_equal(chat_date_parse(&d, "29 February 2024", &e), 0);
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(chat_date_format(&d, "%A %F %j %m %-m", 15, &b, &e), 0);
    assert_string_equal(b.data, "Thursday 2024-02-29 060 02 2");
    assert_int_equal(chat_date_format(&d, "%Q", 2, &b, &e), -ERR_UNSUPPORTED);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_jinja2),
        cmocka_unit_test(recognises_each_family_and_no_other_template),
        cmocka_unit_test(user_text_keeps_its_marks),
        cmocka_unit_test(a_template_text_that_equals_user_text_has_no_mark),
        cmocka_unit_test(names_what_it_does_not_know),
        cmocka_unit_test(filters_check_their_arguments),
        cmocka_unit_test(says_what_is_wrong_and_where),
        cmocka_unit_test(a_date_must_be_fixed),
        cmocka_unit_test(hostile_templates_end_in_an_error),
        cmocka_unit_test(long_and_deep_templates_end_in_an_error),
        cmocka_unit_test(any_bytes_are_text),
        cmocka_unit_test(dates_are_read_and_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

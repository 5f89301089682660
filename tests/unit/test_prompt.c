/* Placeholders, defaults, the shared prefix and the fixed cost, with the byte vocabulary of the null model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "stages/model/prompt.h"
#include "stages/task.h"
#include "tests/unit/draft_vocab.h"

struct setup {
    struct vocab *v;
    struct chat *chat;
    struct prompts *p;
    struct token_list t;
};

static void open_prompts(struct setup *s, char *document, char *reduce, char *system, int task)
{
    struct prompt_config c = {.document = document, .reduce = reduce, .system = system};
    struct err e = {0};
    *s = (struct setup){.v = vocab_bytes()};
    s->chat = chat_null(s->v);
    if (prompts_open(&s->p, &c, task, s->chat, s->v, &e) < 0)
        fail_msg("%s", e.msg);
}

static void close_prompts(struct setup *s)
{
    prompts_free(s->p);
    chat_free(s->chat);
    token_list_release(&s->t);
    vocab_free(s->v);
}

/* The prompt as text, without BOS and <turn>; *shared is the number of bytes before what differs. */
static const char *build(struct setup *s, enum prompt_kind kind, const struct prompt_values *v,
                         int *shared)
{
    static char out[4096];
    struct err e = {0};
    s->t.n = 0;
    if (prompt_build(s->p, kind, v, &s->t, shared, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(s->t.n >= 2 && s->t.n < (int)sizeof(out));
    for (int i = 1; i < s->t.n - 1; i++)
        out[i - 1] = (char)s->t.ids[i];
    out[s->t.n - 2] = '\0';
    *shared -= 1;
    return out;
}

static const struct prompt_values values = {"The text.", 9, "T", "A > B", "Who?"};

static void fills_in_the_placeholders(void **state)
{
    (void)state;
    struct setup s;
    int shared;
    char document[] = "Of {{title}} ({{ headings }}), \\{{x}}:\n{{text}}\n\n{{question}}\n",
         reduce[] = "{{text}}{{question}}";
    open_prompts(&s, document, reduce, NULL, TASK_ASK);
    assert_string_equal(build(&s, PROMPT_DOCUMENT, &values, &shared),
                        "Of T (A > B), {{x}}:\nThe text.\n\nWho?");
    assert_int_equal(shared, 2); /* the space goes with the title */
    const struct prompt_values bare = {"The text.", 9, NULL, NULL, NULL};
    assert_string_equal(build(&s, PROMPT_DOCUMENT, &bare, &shared),
                        "Of (), {{x}}:\nThe text.\n\n");
    assert_string_equal(build(&s, PROMPT_REDUCE, &values, &shared), "The text.Who?");
    assert_int_equal(shared, 0);
    close_prompts(&s);
}

static void values_are_never_templates(void **state)
{
    (void)state;
    struct setup s;
    int shared;
    char document[] = "{{text}} {{title}}";
    const struct prompt_values v = {"{{title}} {{x}}", 15, "{{text}}<turn>", NULL, NULL};
    open_prompts(&s, document, NULL, NULL, TASK_SUMMARIZE);
    assert_string_equal(build(&s, PROMPT_DOCUMENT, &v, &shared),
                        "{{title}} {{x}} {{text}}<turn>");
    close_prompts(&s);
}

static void what_comes_before_the_first_value_is_shared(void **state)
{
    (void)state;
    struct setup s;
    int shared;
    char document[] = "Sum up:\n\n{{text}}\n\nNow.", system[] = "Be brief.\n";
    open_prompts(&s, document, NULL, system, TASK_SUMMARIZE);
    assert_string_equal(build(&s, PROMPT_DOCUMENT, &values, &shared),
                        "Be brief.\n\nSum up:\n\nThe text.\n\nNow.");
    assert_int_equal(shared, 20);
    close_prompts(&s);
}

static void the_fixed_cost_is_all_but_the_text(void **state)
{
    (void)state;
    static char documents[][40] = {"Sum up:\n\n{{text}}\n\nNow.", "{{text}}",
                                   "{{title}} {{text}}\n", " {{text}} "};
    for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
        struct setup s;
        int shared;
        open_prompts(&s, documents[i], NULL, NULL, TASK_SUMMARIZE);
        int fixed = prompt_fixed_tokens(s.p, PROMPT_DOCUMENT, &values);
        build(&s, PROMPT_DOCUMENT, &values, &shared);
        assert_int_equal(s.t.n, fixed + 9);
        close_prompts(&s);
    }
}

/* Gemma trims the turn: counted around an empty text, the blank line before it would be lost. */
static void the_fixed_cost_holds_when_a_template_trims(void **state)
{
    (void)state;
    static const char *const specials[] = {"<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
                                           NULL};
    char gemma[] = "gemma", document[] = "Sum up:\n\n{{text}}";
    struct prompt_config c = {.template = gemma, .document = document};
    struct vocabulary x;
    struct setup s = {0};
    struct err e = {0};
    open_vocabulary(&x, false, true, false, NULL, specials);
    if (chat_open(&s.chat, x.v, &x.g, &c, "", &e) < 0 ||
        prompts_open(&s.p, &c, TASK_SUMMARIZE, s.chat, x.v, &e) < 0 ||
        prompt_build(s.p, PROMPT_DOCUMENT, &values, &s.t, NULL, &e) < 0)
        fail_msg("%s", e.msg);
    int64_t own = vocab_count(x.v, values.text, values.text_len);
    assert_int_equal(s.t.n, prompt_fixed_tokens(s.p, PROMPT_DOCUMENT, &values) + own);
    close_prompts(&s);
    close_vocabulary(&x);
}

static void tasks_have_defaults_that_put_the_fixed_part_first(void **state)
{
    (void)state;
    struct setup s;
    int shared;
    open_prompts(&s, NULL, NULL, NULL, TASK_SUMMARIZE);
    assert_non_null(strstr(build(&s, PROMPT_DOCUMENT, &values, &shared), "\n\nThe text."));
    assert_true(shared > 20);
    assert_non_null(strstr(build(&s, PROMPT_REDUCE, &values, &shared), "\n\nThe text."));
    assert_true(shared > 20);
    close_prompts(&s);
    /* Questions about one document share the document. */
    open_prompts(&s, NULL, NULL, NULL, TASK_ASK);
    const char *text = build(&s, PROMPT_DOCUMENT, &values, &shared);
    assert_int_equal(strncmp(text, "The text.", 9), 0);
    assert_non_null(strstr(text, "Who?"));
    assert_non_null(strstr(build(&s, PROMPT_REDUCE, &values, &shared), "Who?"));
    close_prompts(&s);
}

static void complete_sends_the_document_as_it_is(void **state)
{
    (void)state;
    struct setup s;
    int shared;
    open_prompts(&s, NULL, NULL, NULL, TASK_COMPLETE);
    assert_string_equal(build(&s, PROMPT_DOCUMENT, &values, &shared), "The text.");
    assert_int_equal(shared, 0);
    close_prompts(&s);
}

static void refuse(int task, char *document, char *reduce, char *system, const char *what)
{
    struct prompt_config c = {.document = document, .reduce = reduce, .system = system};
    struct vocab *v = vocab_bytes();
    struct chat *chat = chat_null(v);
    struct prompts *p = NULL;
    struct err e = {0};
    assert_int_equal(prompts_open(&p, &c, task, chat, v, &e), -ERR_CONFIG);
    assert_int_equal(e.reach, REACH_JOB);
    if (!strstr(e.msg, what))
        fail_msg("wanted \"%s\" in: %s", what, e.msg);
    chat_free(chat);
    vocab_free(v);
}

static void bad_texts_are_refused(void **state)
{
    (void)state;
    char none[] = "Sum up.", two[] = "{{text}} {{text}}", unknown[] = "{{text}} {{author}}",
         open[] = "{{text}} {{title", split[] = "{{text}} {{ti\ntle}}",
         question[] = "{{text}} {{question}}", text[] = "{{text}}",
         headings[] = "{{text}} {{headings}}", system[] = "S";
    refuse(TASK_SUMMARIZE, none, NULL, NULL,
           "prompt.document must have {{text}} exactly once, not 0");
    refuse(TASK_SUMMARIZE, two, NULL, NULL, "not 2 times");
    refuse(TASK_SUMMARIZE, text, two, NULL, "prompt.reduce must have");
    refuse(TASK_SUMMARIZE, unknown, NULL, NULL, "{{author}}; there are {{text}}");
    refuse(TASK_SUMMARIZE, open, NULL, NULL, "\\{{ for two braces");
    refuse(TASK_SUMMARIZE, split, NULL, NULL, "\\{{ for two braces");
    refuse(TASK_SUMMARIZE, question, NULL, NULL, "only task.kind ask");
    refuse(TASK_ASK, text, NULL, NULL, "needs {{question}}");
    refuse(TASK_SUMMARIZE, text, headings, NULL, "no {{headings}}");
    refuse(TASK_COMPLETE, text, NULL, NULL, "prompts as they are");
    refuse(TASK_COMPLETE, NULL, NULL, system, "prompt.system has no meaning");
    char many[65 * 9 + 1] = "";
    for (int i = 0; i < 65; i++)
        strcat(many, "{{title}}");
    refuse(TASK_SUMMARIZE, many, NULL, NULL, "placeholders");
}

static void digests_follow_the_texts(void **state)
{
    (void)state;
    static char documents[][12] = {"a{{text}}", "b{{text}}", "{{text}}a", "a{{text}}"};
    char system[] = "S", *systems[] = {NULL, NULL, NULL, system};
    uint8_t digests[4][32];
    for (int i = 0; i < 4; i++) {
        struct setup s;
        open_prompts(&s, documents[i], NULL, systems[i], TASK_SUMMARIZE);
        prompts_digest(s.p, digests[i]);
        close_prompts(&s);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(digests[i], digests[k], 32);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_the_placeholders),
        cmocka_unit_test(values_are_never_templates),
        cmocka_unit_test(what_comes_before_the_first_value_is_shared),
        cmocka_unit_test(the_fixed_cost_is_all_but_the_text),
        cmocka_unit_test(the_fixed_cost_holds_when_a_template_trims),
        cmocka_unit_test(tasks_have_defaults_that_put_the_fixed_part_first),
        cmocka_unit_test(complete_sends_the_document_as_it_is),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(digests_follow_the_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What happens to a document from its text to its final requests: cutting, combining, accounts, failures.
 * A function stands in for the model where its answers matter; tests of the model's part are in
 * test_batching.c. */
#include "tests/unit/task_rig.h"

/* An answer of `ctx` letters. */
static void answer_letters(void *ctx, struct rec *r)
{
    int n = *(int *)ctx;
    r->answer.text = malloc((size_t)n + 1);
    memset(r->answer.text, 'a' + r->req.index % 26, (size_t)n);
    r->answer.text[n] = '\0';
    r->answer.n_tokens = n;
}

/* Paragraphs of about 1,200 bytes, one fact in each. */
static char *pages(int n)
{
    char *text = malloc((size_t)n * 1300 + 1), *p = text;
    for (int i = 0; i < n; i++) {
        p += sprintf(p, "Page %d says that fact-%04d holds.", i, i);
        for (int k = 0; k < 30; k++)
            p += sprintf(p, " Line %d of filler text here.", k);
        p += sprintf(p, "\n\n");
    }
    return text;
}

struct facts {
    int seen[300];
    int reduce_prompts, answer;
};

static void answer_facts(void *ctx, struct rec *r)
{
    struct facts *f = ctx;
    char *prompt = rig_prompt(r);
    if (r->req.level == 0)
        for (char *p = prompt; (p = strstr(p, "fact-")) != NULL; p++)
            f->seen[atoi(p + 5)]++;
    f->reduce_prompts += r->req.level > 0;
    free(prompt);
    answer_letters(&f->answer, r);
}

static void every_fact_is_in_exactly_one_chunk(void **state)
{
    (void)state;
    struct rig g;
    struct facts f = {.answer = 40};
    rig_init(&g);
    g.task.strategy = STRATEGY_MAP_REDUCE;
    g.answer = answer_facts;
    g.answer_ctx = &f;
    g.write.chunks = true;
    rig_open(&g);
    char *text = pages(300);
    struct doc *d = rig_doc(text);
    rig_run(&g, &d, 1);
    for (int i = 0; i < 300; i++)
        assert_int_equal(f.seen[i], 1);
    assert_int_equal(g.in[4].n, 1);
    const struct rec *r = g.in[4].at[0];
    const struct summary_info *info = r->info;
    assert_int_equal(r->fail.code, 0);
    assert_int_equal(info->covered, strlen(text));
    assert_int_equal(info->account.document, strlen(text));
    assert_int_equal(info->account.fed, info->account.document);
    assert_int_equal(info->account.dropped, 0);
    assert_int_equal(info->n_parts, info->n_chunks);
    size_t at = 0;
    for (int i = 0; i < info->n_parts; i++) {
        assert_int_equal(info->parts[i].index, i);
        assert_int_equal(info->parts[i].begin, at);
        assert_non_null(info->parts[i].answer.text);
        at = info->parts[i].end;
    }
    assert_int_equal(at, strlen(text));
    free(text);
    rig_close(&g);
}

static void five_hundred_chunks_combine_in_levels_within_the_context(void **state)
{
    (void)state;
    struct rig g;
    int n = 400;
    rig_init(&g);
    g.task.strategy = STRATEGY_MAP_REDUCE;
    g.decode.max_tokens = 400;
    g.chunk.tokens = 1300;
    g.answer = answer_letters;
    g.answer_ctx = &n;
    rig_open(&g);
    char *text = pages(500);
    struct doc *d = rig_doc(text);
    rig_run(&g, &d, 1);
    assert_int_equal(g.in[4].n, 1);
    const struct rec *r = g.in[4].at[0];
    assert_int_equal(r->fail.code, 0);
    assert_int_equal(r->info->n_chunks, 500);
    /* 500 answers, 8 to a prompt: 63, then 8, then the last. */
    assert_int_equal(r->info->n_levels, 3);
    assert_int_equal(g.requests, 500 + 63 + 8 + 1);
    assert_true(g.most_tokens <= g.context);
    assert_true(g.most_tokens > g.context - 450); /* and they are filled */
    assert_int_equal(r->info->account.generated, 400 * (500 + 63 + 8));
    free(text);
    rig_close(&g);
}

/* The one failure of a run over one document. */
static const struct err *only_failure(const struct rig *g)
{
    assert_int_equal(g->in[4].n, 1);
    assert_true(g->in[4].at[0]->fail.code != 0);
    assert_int_equal(g->in[4].at[0]->fail.reach, REACH_DOC);
    return &g->in[4].at[0]->fail;
}

static void answers_that_do_not_shrink_fail_by_name(void **state)
{
    (void)state;
    struct rig g;
    int n = 1000;
    rig_init(&g);
    g.task.strategy = STRATEGY_MAP_REDUCE;
    g.decode.max_tokens = 1000;
    g.chunk.tokens = 1300;
    g.answer = answer_letters;
    g.answer_ctx = &n;
    rig_open(&g);
    char *text = pages(20);
    struct doc *d = rig_doc(text);
    rig_run(&g, &d, 1);
    const struct err *e = only_failure(&g);
    assert_int_equal(e->code, ERR_LIMIT);
    assert_non_null(
        strstr(e->msg, "partial answers do not shrink: level 0 made 20000 tokens of"));
    free(text);
    rig_close(&g);
}

static void levels_are_bounded(void **state)
{
    (void)state;
    struct rig g;
    int n = 400;
    rig_init(&g);
    g.task.strategy = STRATEGY_MAP_REDUCE;
    g.task.max_levels = 1;
    g.decode.max_tokens = 400;
    g.chunk.tokens = 1300;
    g.answer = answer_letters;
    g.answer_ctx = &n;
    rig_open(&g);
    char *text = pages(20);
    struct doc *d = rig_doc(text);
    rig_run(&g, &d, 1);
    assert_non_null(strstr(only_failure(&g)->msg, "1 levels of task.max_levels"));
    free(text);
    rig_close(&g);
}

/* Long for the third chunk, short for the others. */
static void answer_one_long(void *ctx, struct rec *r)
{
    int n = r->req.index == 2 ? *(int *)ctx : 20;
    answer_letters(&n, r);
}

static void a_partial_answer_longer_than_a_prompt_fails_by_name(void **state)
{
    (void)state;
    struct rig g;
    int n = 970; /* counted anew, a text may have more tokens than were generated */
    rig_init(&g);
    g.context = 2048;
    g.task.strategy = STRATEGY_MAP_REDUCE;
    g.decode.max_tokens = 950;
    g.answer = answer_one_long;
    g.answer_ctx = &n;
    rig_open(&g);
    char *text = pages(10);
    struct doc *d = rig_doc(text);
    rig_run(&g, &d, 1);
    const struct err *e = only_failure(&g);
    assert_int_equal(e->code, ERR_LIMIT);
    assert_non_null(strstr(e->msg, "answer to chunk 3 of "));
    assert_non_null(strstr(e->msg, "it has 970 tokens, and a reduce prompt has room for "));
    free(text);
    rig_close(&g);
}

struct faults {
    int empty[4], failed[4];
};

static void answer_faults(void *ctx, struct rec *r)
{
    const struct faults *f = ctx;
    int n = 30;
    for (int i = 0; i < 4; i++)
        if (r->req.level == 0 && f->failed[i] == r->req.index + 1) {
            err_set(&r->fail, REACH_DOC, ERR_DEVICE, "a value is not finite");
            return;
        } else if (r->req.level == 0 && f->empty[i] == r->req.index + 1) {
            n = 0;
        }
    answer_letters(&n, r);
}

static void a_failed_or_empty_part_fails_its_document_once_and_by_name(void **state)
{
    (void)state;
    struct faults cases[] = {{.failed = {7}},
                             {.empty = {7}},
                             {.failed = {9, 12, 7}},
                             {.empty = {7, 20}, .failed = {8}}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int newest = 0; newest < 2; newest++) { /* the order of answers changes nothing */
            struct rig g;
            rig_init(&g);
            g.task.strategy = STRATEGY_MAP_REDUCE;
            g.chunk.tokens = 1300;
            g.answer = answer_faults;
            g.answer_ctx = &cases[i];
            g.newest_first = newest;
            rig_open(&g);
            char *text = pages(60);
            struct doc *d = rig_doc(text);
            rig_run(&g, &d, 1);
            const struct err *e = only_failure(&g);
            assert_non_null(strstr(e->msg, "answer to chunk 7 of 60: "));
            assert_int_equal(e->code, cases[i].empty[0] ? ERR_FORMAT : ERR_DEVICE);
            free(text);
            rig_close(&g);
        }
    }
}

static void the_order_of_answers_changes_no_prompt(void **state)
{
    (void)state;
    char *prompts[2];
    for (int newest = 0; newest < 2; newest++) {
        struct rig g;
        struct facts f = {.answer = 50};
        rig_init(&g);
        g.task.strategy = STRATEGY_MAP_REDUCE;
        g.chunk.tokens = 1300;
        g.answer = answer_facts;
        g.answer_ctx = &f;
        g.newest_first = newest;
        rig_open(&g);
        char *text = pages(200);
        struct doc *d = rig_doc(text);
        rig_run(&g, &d, 1);
        assert_int_equal(g.in[4].n, 1);
        assert_int_equal(g.in[4].at[0]->fail.code, 0);
        prompts[newest] = rig_prompt(g.in[4].at[0]);
        assert_true(f.reduce_prompts > 2);
        free(text);
        rig_close(&g);
    }
    assert_string_equal(prompts[0], prompts[1]);
    free(prompts[0]);
    free(prompts[1]);
}

/* Fixed tokens of the summarize prompt with the null model. */
static int fixed_tokens(const struct rig *g)
{
    struct prompt_values v = {.text = ""};
    return prompt_fixed_tokens(g->prompts, PROMPT_DOCUMENT, &v);
}

static struct doc *doc_of_length(int n)
{
    char *text = malloc((size_t)n + 1);
    for (int i = 0; i < n; i++)
        text[i] = i % 6 == 5 ? ' ' : 'a';
    text[n] = '\0';
    struct doc *d = rig_doc(text);
    free(text);
    return d;
}

static void a_document_fits_to_the_last_token(void **state)
{
    (void)state;
    for (int over = -1; over <= 1; over++) {
        struct rig g;
        int n = 20;
        rig_init(&g);
        g.context = 1000;
        g.answer = answer_letters;
        g.answer_ctx = &n;
        rig_open(&g);
        struct doc *d =
            doc_of_length(g.context - g.decode.max_tokens - fixed_tokens(&g) + over);
        rig_run(&g, &d, 1);
        assert_int_equal(g.in[4].at[0]->info->n_chunks, over > 0 ? 2 : 1);
        assert_int_equal(g.most_tokens, over > 0 ? g.most_tokens : g.context + over);
        assert_true(g.most_tokens <= g.context);
        rig_close(&g);
    }
}

static void single_and_complete_never_cut(void **state)
{
    (void)state;
    for (int complete = 0; complete < 2; complete++) {
        struct rig g;
        int n = 20;
        rig_init(&g);
        g.context = 1000;
        g.task.kind = complete ? TASK_COMPLETE : TASK_SUMMARIZE;
        g.task.strategy = complete ? STRATEGY_AUTO : STRATEGY_SINGLE;
        g.answer = answer_letters;
        g.answer_ctx = &n;
        rig_open(&g);
        int fits = g.context - g.decode.max_tokens - fixed_tokens(&g);
        struct doc *d[2] = {doc_of_length(fits), doc_of_length(fits + 1)};
        rig_run(&g, d, 2);
        assert_int_equal(g.in[4].n, 2);
        for (int i = 0; i < 2; i++) {
            const struct rec *r = g.in[4].at[i];
            char number[40];
            sprintf(number, "the document has %d tokens", fits + 1);
            if (r->doc->text_len == (size_t)fits) {
                assert_int_equal(r->fail.code, 0);
                continue;
            }
            assert_int_equal(r->fail.code, ERR_LIMIT);
            assert_non_null(strstr(r->fail.msg, number));
            assert_non_null(strstr(r->fail.msg, "1001, over the 1000 of model.context"));
        }
        rig_close(&g);
    }
}

static void a_prompt_that_leaves_no_room_is_a_named_failure(void **state)
{
    (void)state;
    for (int strategy = STRATEGY_AUTO; strategy <= STRATEGY_MAP_REDUCE; strategy++) {
        struct rig g;
        int n = 20;
        rig_init(&g);
        g.context = 300;
        g.task.strategy = strategy;
        g.answer = answer_letters;
        g.answer_ctx = &n;
        rig_open(&g);
        struct doc *d = doc_of_length(50);
        rig_run(&g, &d, 1);
        assert_int_equal(only_failure(&g)->code, ERR_LIMIT);
        assert_non_null(strstr(only_failure(&g)->msg, "model.context"));
        rig_close(&g);
    }
}

static void a_document_without_text_fails_by_name(void **state)
{
    (void)state;
    struct rig g;
    int n = 20;
    rig_init(&g);
    g.answer = answer_letters;
    g.answer_ctx = &n;
    rig_open(&g);
    struct doc *d = rig_doc(" \n\n \t\n");
    rig_run(&g, &d, 1);
    assert_non_null(strstr(only_failure(&g)->msg, "no text"));
    rig_close(&g);
}

static void each_question_gets_its_answer_over_the_whole_document(void **state)
{
    (void)state;
    for (int n_pages = 1; n_pages <= 30; n_pages += 29) {
        struct rig g;
        int n = 40;
        rig_init(&g);
        g.task.kind = TASK_ASK;
        rig_question(&g, "Which fact is first?");
        rig_question(&g, "Which fact is last, and why is it the last of all of them?");
        rig_question(&g, "Who?");
        g.answer = answer_letters;
        g.answer_ctx = &n;
        rig_open(&g);
        char *text = pages(n_pages);
        struct doc *d = rig_doc(text);
        rig_run(&g, &d, 1);
        assert_int_equal(g.in[4].n, 3);
        bool got[3] = {false};
        for (int i = 0; i < 3; i++) {
            const struct rec *r = g.in[4].at[i];
            char *prompt = rig_prompt(r);
            assert_int_equal(r->fail.code, 0);
            assert_int_equal(r->info->n_finals, 3);
            assert_int_equal(r->info->covered, strlen(text));
            assert_non_null(strstr(prompt, g.task.questions.items[r->req.question]));
            got[r->req.question] = true;
            free(prompt);
        }
        assert_true(got[0] && got[1] && got[2]);
        assert_true(g.most_tokens <= g.context);
        free(text);
        rig_close(&g);
    }
}

static void seeds_differ_by_everything_but_time(void **state)
{
    (void)state;
    uint64_t seeds[2][64];
    int n_seeds[2] = {0};
    for (int run = 0; run < 2; run++) {
        struct rig g;
        int n = 40;
        rig_init(&g);
        g.task.kind = TASK_ASK;
        rig_question(&g, "One?");
        rig_question(&g, "Two?");
        g.answer = answer_letters;
        g.answer_ctx = &n;
        g.newest_first = run == 1;
        rig_open(&g);
        struct doc *d[3] = {rig_doc("first"), rig_doc("second"), rig_doc("third")};
        rig_run(&g, d, 3);
        for (int i = 0; i < g.in[4].n; i++) {
            const struct rec *r = g.in[4].at[i];
            seeds[run][r->doc->ordinal * 2 + r->req.question] = r->req.seed;
            n_seeds[run]++;
        }
        rig_close(&g);
    }
    assert_int_equal(n_seeds[0], 6);
    for (int i = 0; i < 6; i++) {
        assert_true(seeds[0][i] == seeds[1][i]);
        for (int k = 0; k < i; k++)
            assert_true(seeds[0][i] != seeds[0][k]);
    }
}

/* What the room of a chunk rests on: template and text never merge into one token, so the prompt of a piece of
 * text is the prompt without it and the tokens of the piece alone. A template that trims may save some. */
static void a_prompt_is_its_fixed_part_and_the_text(void **state)
{
    (void)state;
    static const struct {
        const char *file, *family;
    } cases[] = {{NULL, "auto"},
                 {"tests/vectors/tiny/llama.gguf", "none"},
                 {"tests/vectors/tiny/qwen2.gguf", "none"},
                 {"tests/vectors/tiny/gemma3.gguf", "none"},
                 {"tests/vectors/tiny/gemma3.gguf", "gemma"}};
    static const char text[] =
        "\n  The other one is on the table. \xc3\xa9t\xc3\xa9  \t\n\nAnd 1234 more, than 5?\n";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig g;
        struct err e = {0};
        rig_init(&g);
        g.file = cases[i].file;
        g.context = 512;
        assert_int_equal(opt_set(opt_find(prompt_opts, n_prompt_opts, "template"), &g.prompt,
                                 cases[i].family, ".", &e),
                         0);
        rig_open(&g);
        int fixed = fixed_tokens(&g);
        for (size_t from = 0; from < sizeof(text) - 1; from++)
            for (size_t to = from + 1; to < sizeof(text); to++) {
                struct prompt_values v = {.text = text + from, .text_len = to - from};
                struct token_list tokens = {0};
                int n_shared;
                assert_int_equal(
                    prompt_build(g.prompts, PROMPT_DOCUMENT, &v, &tokens, &n_shared, &e), 0);
                int64_t sum = fixed + vocab_count(model_vocab(g.model), text + from, to - from);
                if (strcmp(cases[i].family, "gemma") == 0)
                    assert_true(tokens.n <= sum);
                else
                    assert_int_equal(tokens.n, sum);
                assert_true(n_shared > 0 && n_shared <= fixed);
                token_list_release(&tokens);
            }
        rig_close(&g);
    }
}

/* A stop in the middle frees all that is under way (the address sanitizer looks). */
static void closing_early_loses_nothing(void **state)
{
    (void)state;
    for (int turns = 1; turns < 200; turns += 13) {
        struct rig g;
        rig_init(&g);
        g.task.strategy = STRATEGY_MAP_REDUCE;
        g.chunk.tokens = 500;
        rig_open(&g);
        char *text = pages(10);
        struct doc *d = rig_doc(text);
        rig_put(&g.in[0], rec_new(REC_DOC, d));
        doc_unref(d);
        for (int i = 0; i < turns; i++)
            rig_turn(&g);
        free(text);
        rig_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fact_is_in_exactly_one_chunk),
        cmocka_unit_test(five_hundred_chunks_combine_in_levels_within_the_context),
        cmocka_unit_test(answers_that_do_not_shrink_fail_by_name),
        cmocka_unit_test(levels_are_bounded),
        cmocka_unit_test(a_partial_answer_longer_than_a_prompt_fails_by_name),
        cmocka_unit_test(a_failed_or_empty_part_fails_its_document_once_and_by_name),
        cmocka_unit_test(the_order_of_answers_changes_no_prompt),
        cmocka_unit_test(a_document_fits_to_the_last_token),
        cmocka_unit_test(single_and_complete_never_cut),
        cmocka_unit_test(a_prompt_that_leaves_no_room_is_a_named_failure),
        cmocka_unit_test(a_document_without_text_fails_by_name),
        cmocka_unit_test(each_question_gets_its_answer_over_the_whole_document),
        cmocka_unit_test(seeds_differ_by_everything_but_time),
        cmocka_unit_test(a_prompt_is_its_fixed_part_and_the_text),
        cmocka_unit_test(closing_early_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

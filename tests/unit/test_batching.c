/* Prefill and decode: the same answers however the work is arranged, pages that come back, prefixes computed
 * once, failures that stay with their document. The null model checks its KV pages and depends on every token
 * of the prompt; the tiny models compute with weights. tests/vectors/same_answers.c asks a real one. */
#include "tests/unit/task_rig.h"

#include <omp.h>

/* How the work is arranged. */
struct arrangement {
    int batch, rows, depth, n_pages;
    bool no_reuse, reference, disk;
};

static const struct arrangement arrangements[] = {
    {.batch = 8, .rows = 512, .depth = 4, .n_pages = 400},
    {.batch = 1, .rows = 64, .depth = 1, .n_pages = 70},
    {.batch = 3, .rows = 128, .depth = 64, .n_pages = 100},
    {.batch = 8, .rows = 64, .depth = 64, .n_pages = 400, .no_reuse = true},
    {.batch = 5, .rows = 4096, .depth = 2, .n_pages = 70, .no_reuse = true},
    {.batch = 8, .rows = 256, .depth = 8, .n_pages = 90, .reference = true},
    {.batch = 2, .rows = 128, .depth = 2, .n_pages = 70, .disk = true},
    /* Prefill is ahead, and what waits cannot be parked: it joins when the batch has become empty. */
    {.batch = 1, .rows = 128, .depth = 1, .n_pages = 70, .no_reuse = true, .disk = true},
};

static bool parks(const struct arrangement *a)
{
    return a->disk && !a->no_reuse;
}

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/quire-batching-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static void arrange(struct rig *g, const struct arrangement *a)
{
    g->decode.batch = a->batch;
    g->prefill.batch = a->rows;
    g->depth = a->depth;
    g->n_pages = a->n_pages;
    g->kv.reuse = !a->no_reuse;
    g->kv.disk = a->disk ? folder : NULL;
    g->kv.keep = KEEP_NONE; /* so that what is spilled was parked */
    if (a->reference)
        g->cpu_flags = 0;
}

/* All final answers, in the order of documents and questions, as one text. */
static char *all_answers(const struct rig *g, int n_docs, int n_questions)
{
    char *out = calloc(1, 1 << 20), *p = out;
    for (int d = 0; d < n_docs; d++)
        for (int q = 0; q < n_questions; q++)
            for (int i = 0; i < g->in[4].n; i++) {
                const struct rec *r = g->in[4].at[i];
                if (r->doc->ordinal == d && r->fail.code && q == 0)
                    p += sprintf(p, "%d failed: %s\n", d, r->fail.msg);
                else if (r->doc->ordinal == d && !r->fail.code && r->req.question == q)
                    p += sprintf(p, "%d.%d (%d tokens, %s): %s\n", d, q, r->answer.n_tokens,
                                 stopped_by_name(r->answer.stopped_by), r->answer.text);
            }
    return out;
}

/* Documents of many lengths: short, long, equal beginnings, marks that make the null model fail or loop. */
enum { N_DOCS = 14 };
static void make_docs(struct doc *docs[N_DOCS])
{
    for (int i = 0; i < N_DOCS; i++) {
        char *text = calloc(1, 40000), *p = text;
        p += sprintf(p, "Minutes of meeting number %d.", i / 2);
        for (int k = 0; k < i * i * 4; k++)
            p += sprintf(p, " Item %d was discussed.%s", k, k % 9 == 8 ? "\n\n" : "");
        if (i == 5)
            p += sprintf(p, " @fail@");
        if (i == 2)
            p += sprintf(p, " @loop@");
        if (i == 3)
            p += sprintf(p, " @long@");
        docs[i] = rig_doc(text);
        free(text);
    }
}

static void answers_do_not_depend_on_the_arrangement_of_work(void **state)
{
    (void)state;
    char *first = NULL;
    for (size_t i = 0; i < ARRAY_LEN(arrangements); i++) {
        struct rig g;
        rig_init(&g);
        g.chunk.tokens = 900;
        g.decode.max_tokens = 150;
        g.decode.temperature = 0.8;
        arrange(&g, &arrangements[i]);
        rig_open(&g);
        struct doc *docs[N_DOCS];
        make_docs(docs);
        rig_run(&g, docs, N_DOCS);
        assert_int_equal(g.in[4].n, N_DOCS);
        assert_true(!parks(&arrangements[i]) || g.stats.kv.pages_spilled > 0);
        char *answers = all_answers(&g, N_DOCS, 1);
        if (!first)
            first = answers;
        else
            assert_string_equal(answers, first);
        if (answers != first)
            free(answers);
        rig_close(&g);
    }
    assert_non_null(strstr(first, "not finite"));
    assert_non_null(strstr(first, "(87 tokens, repetition): "));
    assert_non_null(strstr(first, "(150 tokens, max_tokens): "));
    free(first);
}

static void a_shared_beginning_is_computed_once(void **state)
{
    (void)state;
    struct rig g;
    rig_init(&g);
    g.task.kind = TASK_ASK;
    for (int i = 0; i < 4; i++)
        rig_question(&g, "Who was there?");
    rig_open(&g);
    char text[3001];
    memset(text, 'x', 3000);
    text[3000] = '\0';
    struct doc *d = rig_doc(text);
    rig_run(&g, &d, 1);
    assert_int_equal(g.in[4].n, 4);
    for (int i = 0; i < 4; i++) {
        const struct rec *r = g.in[4].at[i];
        /* All full pages before the last token, after the first request. */
        int full = (r->req.n_tokens - 1) / PAGE_TOKENS * PAGE_TOKENS;
        assert_int_equal(r->n_reused, r->req.question == 0 ? 0 : full);
    }
    long long prompt = atomic_load(&g.stats.prompt_tokens),
              reused = atomic_load(&g.stats.reused_tokens);
    assert_int_equal(atomic_load(&g.stats.prefill_tokens), prompt - reused);
    assert_int_equal(atomic_load(&g.stats.requests_done), 4);
    assert_int_equal(atomic_load(&g.stats.generated_tokens), 4 * 17);
    rig_close(&g);
}

static void a_request_waits_for_pages_and_one_that_never_fits_fails_by_name(void **state)
{
    (void)state;
    struct rig g;
    rig_init(&g);
    g.decode.batch = 8;
    g.decode.max_tokens = 100;
    g.n_pages = 12; /* two of the short ones at a time */
    rig_open(&g);
    struct doc *docs[7];
    char text[1000];
    for (int i = 0; i < 6; i++) {
        sprintf(text, "Document %d is short. @long@", i);
        docs[i] = rig_doc(text);
    }
    memset(text, 'y', 999);
    text[999] = '\0';
    docs[6] = rig_doc(text);
    rig_run(&g, docs, 7);
    assert_int_equal(g.in[4].n, 7);
    int failed = 0;
    for (int i = 0; i < 7; i++) {
        const struct rec *r = g.in[4].at[i];
        if (!r->fail.code) {
            assert_int_equal(r->answer.stopped_by, STOP_MAX_TOKENS);
            continue;
        }
        failed++;
        assert_int_equal(r->doc->ordinal, 6);
        assert_int_equal(r->fail.code, ERR_LIMIT);
        assert_non_null(strstr(r->fail.msg, "the pool has 12; set a larger kv.memory"));
    }
    assert_int_equal(failed, 1);
    assert_true(atomic_load(&g.stats.kv_pages_peak) <= 12);
    rig_close(&g);
}

static void a_failed_chunk_costs_its_own_document_only(void **state)
{
    (void)state;
    struct rig g;
    rig_init(&g);
    g.task.strategy = STRATEGY_MAP_REDUCE;
    g.chunk.tokens = 400;
    rig_open(&g);
    struct doc *docs[3];
    for (int i = 0; i < 3; i++) {
        char *text = calloc(1, 20000), *p = text;
        for (int k = 0; k < 12; k++)
            p += sprintf(p, "Part %d of document %d.%s%*s\n\n", k, i,
                         i == 1 && (k == 7 || k == 4) ? " @fail@" : "", 330, "end.");
        docs[i] = rig_doc(text);
        free(text);
    }
    rig_run(&g, docs, 3);
    assert_int_equal(g.in[4].n, 3);
    for (int i = 0; i < 3; i++) {
        const struct rec *r = g.in[4].at[i];
        assert_int_equal(r->fail.code, r->doc->ordinal == 1 ? ERR_DEVICE : 0);
        if (r->fail.code)
            assert_non_null(strstr(r->fail.msg, "answer to chunk 5 of 12: "));
    }
    rig_close(&g);
}

/* A penalty asks for a list of logits that grows with the answer; past its limit all are taken. What the null model
 * means to say leads by far, penalty or not. */
static void an_answer_may_outgrow_the_list_of_logits(void **state)
{
    (void)state;
    char *answers[2];
    for (int i = 0; i < 2; i++) {
        struct rig g;
        rig_init(&g);
        g.chunk.tokens = 900;
        g.decode.max_tokens = 400;
        g.decode.repetition_penalty = i ? 1.2 : 1;
        rig_open(&g);
        struct doc *doc = rig_doc("Minutes. @long@");
        rig_run(&g, &doc, 1);
        answers[i] = all_answers(&g, 1, 1);
        rig_close(&g);
    }
    assert_non_null(strstr(answers[1], "(400 tokens, max_tokens): "));
    assert_string_equal(answers[0], answers[1]);
    free(answers[0]);
    free(answers[1]);
}

/* ---- with a disk ---- */

static void open_with_disk(struct rig *g, int n_pages, enum keep keep)
{
    rig_init(g);
    g->chunk.tokens = 900;
    g->decode.max_tokens = 150;
    g->decode.batch = 2;
    g->n_pages = n_pages;
    g->kv.disk = folder;
    g->kv.keep = keep;
    rig_open(g);
}

static void a_second_night_computes_no_prompt_and_answers_the_same(void **state)
{
    (void)state;
    char *answers[2];
    for (int night = 0; night < 2; night++) {
        struct rig g;
        struct doc *docs[N_DOCS];
        open_with_disk(&g, 70, KEEP_ALL);
        make_docs(docs);
        rig_run(&g, docs, N_DOCS);
        answers[night] = all_answers(&g, N_DOCS, 1);
        if (night) {
            int failed = 0; /* what failed has no end that could be stored */
            for (int i = 0; i < N_DOCS; i++)
                failed += g.in[4].at[i]->fail.code != 0;
            /* Its last pass is tried again. */
            assert_true(atomic_load(&g.stats.prefill_tokens) <= g.prefill.batch * failed);
            assert_true(g.stats.kv.pages_loaded > 0);
        }
        rig_close(&g);
    }
    assert_string_equal(answers[0], answers[1]);
    free(answers[0]);
    free(answers[1]);
}

static void a_run_that_is_given_up_at_any_time_leaves_no_page_behind(void **state)
{
    (void)state;
    for (int turns = 1; turns < 4000; turns += 1 + turns / 2) {
        struct rig g;
        struct doc *docs[N_DOCS];
        open_with_disk(&g, 66, turns % 2 ? KEEP_ALL : KEEP_NONE);
        make_docs(docs);
        rig_give(&g, docs, N_DOCS);
        for (int i = 0; i < turns && rig_turn(&g); i++)
            ;
        rig_close(&g); /* audits the pool */
    }
}

/* ---- models with weights ---- */

static char *tiny_answers(const char *file, const struct arrangement *a, double temperature)
{
    struct rig g;
    struct err e = {0};
    omp_set_num_threads(a->batch == 3 ? 2 : 1); /* these models are too small for more to pay */
    rig_init(&g);
    g.file = file;
    g.context = 512;
    g.chunk.tokens = 150;
    g.decode.max_tokens = 20;
    g.decode.temperature = temperature;
    g.decode.top_k = 40;
    g.decode.repetition_penalty = 1.2;
    assert_int_equal(
        opt_set(opt_find(prompt_opts, n_prompt_opts, "template"), &g.prompt, "none", ".", &e),
        0);
    assert_int_equal(opt_set(opt_find(prompt_opts, n_prompt_opts, "reduce"), &g.prompt,
                             "All: {{text}}", ".", &e),
                     0);
    arrange(&g, a);
    if (a->disk)
        g.n_pages = 12; /* of 8 that a prompt can have */
    rig_open(&g);
    struct doc *docs[5];
    for (int i = 0; i < 5; i++) {
        char *text = calloc(1, 20000), *p = text;
        for (int k = 0; k < 1 + 7 * i; k++)
            p += sprintf(p, "It was day %d of %d. %s", k, i, k % 3 == 2 ? "\n\n" : "");
        docs[i] = rig_doc(text);
        free(text);
    }
    rig_run(&g, docs, 5);
    assert_int_equal(g.in[4].n, 5);
    assert_true(!parks(a) || g.stats.kv.pages_spilled > 0);
    char *answers = all_answers(&g, 5, 1);
    rig_close(&g);
    return answers;
}

static void a_model_with_weights_answers_the_same_in_every_arrangement(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/vectors/tiny/llama.gguf",
                                        "tests/vectors/tiny/gemma3.gguf"};
    for (size_t f = 0; f < ARRAY_LEN(files); f++)
        for (int t = 0; t < 2; t++) {
            char *first = tiny_answers(files[f], &arrangements[0], t);
            assert_non_null(strstr(first, "(20 tokens, max_tokens): "));
            for (size_t i = 1; i < ARRAY_LEN(arrangements); i++) {
                char *other = tiny_answers(files[f], &arrangements[i], t);
                assert_string_equal(other, first);
                free(other);
            }
            free(first);
        }
}

#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DISK(answers_do_not_depend_on_the_arrangement_of_work),
        cmocka_unit_test(a_shared_beginning_is_computed_once),
        cmocka_unit_test(a_request_waits_for_pages_and_one_that_never_fits_fails_by_name),
        cmocka_unit_test(a_failed_chunk_costs_its_own_document_only),
        cmocka_unit_test(an_answer_may_outgrow_the_list_of_logits),
        ON_DISK(a_second_night_computes_no_prompt_and_answers_the_same),
        ON_DISK(a_run_that_is_given_up_at_any_time_leaves_no_page_behind),
        ON_DISK(a_model_with_weights_answers_the_same_in_every_arrangement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

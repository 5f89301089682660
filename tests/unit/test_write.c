/* The write stage: records and their order, counts. */
#include "tests/unit/write_rig.h"

/* ---- records ---- */

static void records_come_out_in_input_order_whatever_the_order_of_answers(void **state)
{
    (void)state;
    static const int order[] = {3, 1, 0, 2, 70, 4};
    struct fixture *f = fixture_new(false);
    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        push(f, answer(document(order[i]), "words"));
    assert_int_equal(f->n_emitted, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(f->emitted[i], i);
    for (int i = 5; i < 70; i++)
        push(f, answer(document(i), "words"));
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    for (int i = 0; i < 71; i++) {
        json_t *o = line(text, i);
        assert_int_equal(json_integer_value(json_object_get(o, "ordinal")), i);
        json_decref(o);
    }
    free(text);
    fixture_free(f);
}

static void a_record_says_everything_that_is_promised(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "schema", "job",        "ordinal",    "id",    "source",       "chain",
        "title",  "media_type", "encoding",   "bytes", "sha256",       "status",
        "error",  "answer",     "stopped_by", "flags", "tokens",       "coverage",
        "chunks", "levels",     "warnings",   "model", "prompt_digest"};
    struct fixture *f = fixture_new(false);
    push(f, answer(document(0), "Line one.\n\"Two\" \xe2\x80\xa8 \x01"));
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 0);
    assert_int_equal(json_object_size(o), ARRAY_LEN(keys));
    size_t i = 0;
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value) assert_string_equal(key, keys[i++]);
    assert_string_equal(json_string_value(json_object_get(o, "answer")),
                        "Line one.\n\"Two\" \xe2\x80\xa8 \x01");
    assert_non_null(strstr(text, "\"coverage\":1.0,"));
    assert_non_null(strstr(
        text,
        "\"tokens\":{\"document\":3,\"fed\":3,\"dropped\":0,\"prompt\":30,\"generated\":4}"));
    json_decref(o);
    free(text);
    fixture_free(f);
}

static const char *status_of(json_t *o)
{
    return json_string_value(json_object_get(o, "status"));
}

static const char *code_of(json_t *o)
{
    return json_string_value(json_object_get(json_object_get(o, "error"), "code"));
}

static void an_empty_answer_is_a_failure_with_a_name(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    push(f, answer(document(0), ""));
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 0);
    assert_string_equal(status_of(o), "failed");
    assert_string_equal(code_of(o), "empty-answer");
    assert_int_equal(f->tally.by_status[DOC_FAILED], 1);
    assert_int_equal(atomic_load(&f->stats.docs_failed), 1);
    json_decref(o);
    free(text);
    fixture_free(f);
}

static void text_that_the_model_did_not_see_makes_a_record_partial(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct rec *r = answer(document(0), "words");
    r->info->covered = 7;
    r->info->account.fed = 2;
    push(f, r);
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 0);
    assert_string_equal(status_of(o), "partial");
    assert_non_null(strstr(text, "\"dropped\":1"));
    assert_non_null(strstr(text, "\"coverage\":0.7,"));
    assert_non_null(strstr(text, "1 of 3 tokens of the text were not given to the model"));
    json_decref(o);
    free(text);
    fixture_free(f);
}

static void a_document_fails_once_and_later_answers_are_dropped(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct doc *d = document(1);
    for (int i = 0; i < 3; i++) {
        struct rec *r = answer(doc_ref(d), "words");
        r->info->n_finals = 3;
        r->req.question = i;
        if (i == 1)
            err_set(&r->fail, REACH_DOC, ERR_DEVICE, "not finite");
        push(f, r);
    }
    doc_unref(d);
    push(f, answer(document(0), "words"));
    assert_int_equal(f->n_emitted, 2);
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 1);
    assert_string_equal(code_of(o), "device");
    assert_true(json_is_null(json_object_get(o, "answer")));
    assert_null(strchr(strchr(text, '\n') + 1, '\n')[1] ? "more" : NULL);
    json_decref(o);
    free(text);
    fixture_free(f);
}

static void the_first_question_that_failed_is_the_reason_whichever_came_first(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    struct doc *d = document(0);
    for (int q = 2; q >= 0; q--) {
        struct rec *r = answer(doc_ref(d), "words");
        r->info->n_finals = 3;
        r->req.question = q;
        if (q > 0)
            err_set(&r->fail, REACH_DOC, ERR_DEVICE, "question %d", q);
        push(f, r);
        assert_int_equal(f->n_emitted, q == 0);
    }
    doc_unref(d);
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    assert_non_null(strstr(text, "\"message\":\"question 1\""));
    free(text);
    fixture_free(f);
}

static void the_answers_to_all_questions_make_one_record(void **state)
{
    (void)state;
    static char who[] = "Who?", when[] = "When?", *questions[] = {who, when};
    struct fixture *f = fixture_new(true);
    f->task = (struct task_config){.kind = TASK_ASK, .questions = {questions, 2}};
    struct doc *d = document(0);
    for (int q = 1; q >= 0; q--) {
        struct rec *r = answer(doc_ref(d), q ? "in May" : "nobody");
        r->info->n_finals = 2;
        r->req.question = q;
        push(f, r);
    }
    doc_unref(d);
    finish(f, true);
    char *text = contents(f, "results.jsonl"),
         *page = contents(f, "summaries/000000-00000000.md");
    json_t *o = line(text, 0), *list = json_object_get(o, "answers");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "answer")),
                        "nobody");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "question")),
                        "When?");
    assert_non_null(strstr(page, "## Who?\n\nnobody\n\n## When?\n\nin May\n"));
    json_decref(o);
    free(page);
    free(text);
    fixture_free(f);
}

static void an_unread_document_has_a_record_with_nulls(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(true);
    struct doc *d = document(0);
    d->status = DOC_FAILED;
    free(d->source);
    d->source = mem_strdup("bad\xff\xfename");
    err_set(&d->fail, REACH_DOC, ERR_ENCRYPTED, "needs a password");
    struct rec *r = rec_new(REC_DOC, d);
    doc_unref(d);
    push(f, r);
    finish(f, true);
    char *text = contents(f, "results.jsonl");
    json_t *o = line(text, 0);
    assert_non_null(o);
    assert_string_equal(code_of(o), "encrypted");
    assert_string_equal(json_string_value(json_object_get(o, "source")),
                        "bad\xef\xbf\xbd\xef\xbf\xbdname");
    assert_true(json_is_null(json_object_get(o, "tokens")));
    assert_false(there(f, "summaries"));
    json_decref(o);
    free(text);
    fixture_free(f);
}

static void a_run_that_ends_early_keeps_what_is_settled_in_order(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(false);
    push(f, answer(document(0), "words"));
    push(f, answer(document(3), "words"));
    struct rec *half = answer(document(2), "words");
    half->info->n_finals = 2;
    push(f, half);
    finish(f, false);
    char *text = contents(f, "results.jsonl.partial");
    json_t *o = line(text, 1);
    assert_int_equal(json_integer_value(json_object_get(o, "ordinal")), 3);
    assert_false(there(f, "results.jsonl"));
    assert_false(there(f, "MANIFEST.sha256"));
    json_decref(o);
    free(text);
    fixture_free(f);
}

/* ---- tally ---- */

static void the_slowest_are_kept_in_order(void **state)
{
    (void)state;
    struct tally t = {0};
    for (int i = 0; i < 30; i++) {
        struct tally_doc one = {.ordinal = i, .name = "x", .compute_us = i * 7 % 30 + 1};
        tally_add(&t, &one);
    }
    assert_int_equal(t.n_slowest, TALLY_SLOWEST);
    for (int i = 0; i < TALLY_SLOWEST; i++)
        assert_int_equal(t.slowest[i].compute_us, 30 - i);
    tally_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_out_in_input_order_whatever_the_order_of_answers),
        cmocka_unit_test(a_record_says_everything_that_is_promised),
        cmocka_unit_test(an_empty_answer_is_a_failure_with_a_name),
        cmocka_unit_test(text_that_the_model_did_not_see_makes_a_record_partial),
        cmocka_unit_test(a_document_fails_once_and_later_answers_are_dropped),
        cmocka_unit_test(the_first_question_that_failed_is_the_reason_whichever_came_first),
        cmocka_unit_test(the_answers_to_all_questions_make_one_record),
        cmocka_unit_test(an_unread_document_has_a_record_with_nulls),
        cmocka_unit_test(a_run_that_ends_early_keeps_what_is_settled_in_order),
        cmocka_unit_test(the_slowest_are_kept_in_order),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

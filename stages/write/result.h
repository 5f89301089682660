/* stages/write/result.h - the output record of one document, as one line of JSON.
 *
 * What:   everything known about a finished document in; a JSON object out. docs/output.md has the
 *         fields. Pure but for memory.
 * Rules:  1. The same document and answers give the same bytes.
 *         2. A document without an answer in words has failed: code empty-answer.
 */
#ifndef QUIRE_WRITE_RESULT_H
#define QUIRE_WRITE_RESULT_H

#include "stages/stage.h"

#include <jansson.h>

#define RESULT_SCHEMA "quire.result/1"
#define RESULT_JSON_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(6))

/* A document at its end. */
struct result {
    struct doc *doc;
    enum doc_status status;
    char code[24]; /* DOC_FAILED */
    char message[sizeof(((struct err *)0)->msg)];
    struct rec **finals; /* [n_finals] by question; empty when the document failed before */
    int n_finals;
    struct rec *failed; /* the record that carries the failure, or NULL */
    bool has_account;   /* the following are known */
    struct token_account account;
    struct timings timings;
    double coverage; /* of the text, 1 exactly when all was given to the model */
    int n_chunks, n_levels;
    unsigned flags;       /* of the answers */
    unsigned parts_flags; /* of the partial answers before them */
};

/* Fill in all but doc, finals and failed, from those three. */
void result_judge(struct result *r);

/* The line, without newline; heap. NULL and -ERR_NOMEM in e (reach JOB). */
char *result_json(const struct result *r, const struct stage_env *env,
                  struct err *e) MUST_CHECK;

/* A JSON string of s; bytes that are not UTF-8 (they occur in names of files) become U+FFFD. NULL gives null. */
json_t *result_text(const char *s);

/* The answer flag with this name, or 0. */
unsigned result_flag(const char *name);

/* The status's word: ok, partial, failed. */
const char *result_status_name(enum doc_status s);

#endif

/* stages/write/result_line.h - a line of results.jsonl, read again.
 *
 * What:   bytes in, the fields that quire itself looks at out; and the same record with another number, as bytes.
 * Rules:  1. The line may come from anyone: what is not a record of this schema is -ERR_FORMAT, never guessed at.
 *         2. Printing a line that quire wrote, with its own number and source, gives the same bytes.
 * Thread: pure.
 */
#ifndef QUIRE_WRITE_RESULT_LINE_H
#define QUIRE_WRITE_RESULT_LINE_H

#include "stages/rec.h"

#include <jansson.h>

struct result_line {
    json_t *json; /* owned; the strings below are in it */
    const char *job, *id, *source;
    int64_t ordinal;
    enum doc_status status;
    const char *code, *message; /* of a failure, else "" */
    const char *model_digest, *prompt_digest;
};

/* Reach DOC. *l is empty after a failure. */
int result_line_parse(struct result_line *l, const char *text, size_t n,
                      struct err *e) MUST_CHECK;
void result_line_release(struct result_line *l); /* safe on a zeroed struct */

/* The line without its end, with this number and source; heap. NULL: no memory. */
char *result_line_print(struct result_line *l, int64_t ordinal, const char *source);

/* Flags of the answer, as enum answer_flags; those of partial answers are not among them. */
unsigned result_line_flags(const struct result_line *l);

/* "mail.zip/31.txt", as doc_name(); heap. */
char *result_line_name(const struct result_line *l);

#endif

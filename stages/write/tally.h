/* stages/write/tally.h - how the documents of a run ended: counts, reasons, the slowest.
 *
 * Thread: one at a time, as output.h.
 */
#ifndef QUIRE_WRITE_TALLY_H
#define QUIRE_WRITE_TALLY_H

#include "stages/rec.h"

enum { TALLY_FAILURES = 20, TALLY_SLOWEST = 10, TALLY_CODES = 32 };

struct tally {
    int64_t by_status[DOC_STATUS_COUNT];
    struct tally_code { /* failures by code, in order of first appearance */
        char code[24];
        int64_t n;
    } codes[TALLY_CODES];
    int n_codes;
    struct tally_failure { /* the first of them */
        int64_t ordinal;
        char *name, *code, *message;
    } failures[TALLY_FAILURES];
    int n_failures;
    struct tally_slow { /* longest prefill and decode time first */
        int64_t ordinal, compute_us;
        char *name;
    } slowest[TALLY_SLOWEST];
    int n_slowest;
    int64_t flagged
        [3]; /* documents whose answer is truncated, repetitive, or had thinking dropped */
};

void tally_release(struct tally *t);

/* Count a document. Strings are copied. */
struct tally_doc {
    int64_t ordinal;
    const char *name;
    enum doc_status status;
    const char *code, *message; /* DOC_FAILED */
    unsigned flags;
    int64_t compute_us; /* in this run */
};
void tally_add(struct tally *t, const struct tally_doc *d);

/* One warning line per failure, up to TALLY_FAILURES, and how many more there are. */
void tally_log(const struct tally *t);

#endif

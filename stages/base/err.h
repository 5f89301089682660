/* stages/base/err.h - what went wrong, and what the caller may still do.
 *
 * What:   a caller-owned error with a code, a reach and a message that grows outside-in.
 * Rules:  1. A function that can fail takes `struct err *e` last and returns 0, a small documented
 *            positive outcome, or the negative code -ERR_x.
 *         2. On success the error is untouched; the first error set wins until err_clear().
 *         3. Broken invariants are assert()s, never errors; input is never asserted.
 * Thread: an error belongs to one thread at a time; there is no global state.
 */
#ifndef QUIRE_BASE_ERR_H
#define QUIRE_BASE_ERR_H

#include <stdbool.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Few codes, because callers branch on them. */
enum err_code {
    ERR_NONE = 0,
    ERR_NOMEM,       /* an allocation failed or a planned pool is exhausted */
    ERR_IO,          /* the operating system refused a read, write or open */
    ERR_FORMAT,      /* bytes that are not what they claim to be */
    ERR_CORRUPT,     /* a checksum or an internal reference does not match */
    ERR_UNSUPPORTED, /* well formed, but nothing here reads it */
    ERR_ENCRYPTED,   /* needs a password */
    ERR_LIMIT,       /* a configured limit was reached; the message names it */
    ERR_CONFIG,      /* the job file or command line asks for the impossible */
    ERR_DEVICE,      /* a device or kernel reported a fault, such as non-finite values */
    ERR_CANCELLED,   /* a signal or a deadline */
    ERR_BUG,         /* a broken invariant noticed at run time */
    ERR_CODE_COUNT
};

/* How far the damage reaches: one document gets a failure record, or the job stops cleanly. */
enum err_reach { REACH_DOC, REACH_JOB };

struct err {
    enum err_code code;
    enum err_reach reach;
    char msg[512];
};

/* Set the error unless one is already set. Returns -code, for `return err_set(...)`. */
int err_set(struct err *e, enum err_reach reach, enum err_code code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* Put "context: " in front of the message of a set error. Returns -code. */
int err_wrap(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Make the error as new. */
void err_clear(struct err *e);

/* Lower-case name of a code ("limit"), as it appears in records. Never NULL. */
const char *err_code_name(enum err_code code);

#endif

/* stages/base/opt.h - one table row per option of the job file.
 *
 * What:   each module exports a table of rows and the plain struct they fill. The job-file parser,
 *         validation, `quire help KEY`, docs/job-file.md and the JSON Schema all read the same rows.
 * Not:    no YAML here (pipeline/job_file.h), no list of modules (pipeline/job.h).
 * Units:  bytes are written as 64KiB, 2GiB or a bare number; times as 500ms, 30s, 5m, 8h; tokens,
 *         counts and ratios as bare numbers.
 */
#ifndef QUIRE_BASE_OPT_H
#define QUIRE_BASE_OPT_H

#include "stages/base/buf.h"

#include <stddef.h>
#include <stdint.h>

enum opt_type {
    OPT_BOOL,    /* bool: yes, no, true, false */
    OPT_INT,     /* int */
    OPT_TOKENS,  /* int */
    OPT_BYTES,   /* uint64_t */
    OPT_SECONDS, /* double, in seconds */
    OPT_FLOAT,   /* double */
    OPT_ENUM,    /* int: index into names */
    OPT_STRING,  /* char *, heap or NULL */
    OPT_PATH, /* char *, heap or NULL; relative to the folder of the job file, ~/ is the home folder */
    OPT_STRINGS, /* struct opt_list; one string is also accepted */
    OPT_PATHS,   /* struct opt_list, each as OPT_PATH; may hold glob patterns */
};

enum opt_flags {
    OPT_REQUIRED = 1, /* the job file must set it */
    OPT_ENV = 2,      /* ${NAME} is replaced by the environment; $${ is a plain ${ */
    OPT_FREE =
        4, /* may change between two runs of a job: no record depends on it, or on what it says, not how */
    OPT_LIMIT = 8, /* decides only which documents can be read and answered */
};

struct opt_list {
    char **items; /* heap array of heap strings */
    size_t n;
};

struct opt {
    const char *name;
    enum opt_type type;
    size_t offset;            /* of the field in the module's config struct */
    const char *def;          /* as written in a job file; NULL: unset (NULL, empty list) */
    double min, max;          /* inclusive range of numbers, in base units; both 0: unbounded */
    const char *const *names; /* OPT_ENUM: NULL-terminated */
    unsigned flags;
    const char *help; /* whole sentences, plain text */
};

/* Parse the text of one value into the field at config + o->offset (strings are replaced, list items
 * appended). base is the folder for OPT_PATH and OPT_PATHS. Pure but for getenv().
 * Returns 0 or -ERR_CONFIG (reach JOB) with a message that says what was expected. */
int opt_set(const struct opt *o, void *config, const char *text, const char *base,
            struct err *e) MUST_CHECK;

/* Fill a config struct (zeroed by the caller) with the defaults of all rows. */
int opt_defaults(const struct opt *opts, size_t n, void *config, struct err *e) MUST_CHECK;

/* Free the strings and lists of a config struct. */
void opt_release(const struct opt *opts, size_t n, void *config);

/* Append the value as it would be written in a job file (no quoting); i is the item of a list, else 0.
 * Returns 0, 1 past the last item or for an unset string, or the error of the buffer. */
int opt_text(const struct opt *o, const void *config, size_t i, struct buf *out,
             struct err *e) MUST_CHECK;

/* What a value looks like: "1 to 1048576 tokens", "gguf or null", "text", "paths". Never fails; cut at cap. */
void opt_expects(const struct opt *o, char *out, size_t cap);

/* A size as a job file has it, "64KiB", in the largest unit that gives a whole number. */
void opt_format_bytes(uint64_t v, char *out, size_t cap);

/* The row named s, or NULL. */
const struct opt *opt_find(const struct opt *opts, size_t n, const char *s);

/* Edit distance, for "did you mean"; a swap of neighbours counts one. Long names (64 bytes) are infinitely far. */
size_t opt_distance(const char *a, const char *b);

/* For "did you mean": remembers the nearest of the names shown to it, when it is near enough to be meant. */
struct opt_guess {
    const char *wanted, *best; /* best: NULL while nothing is near */
    size_t distance;
};
void opt_guess_add(struct opt_guess *g, const char *name);

#endif

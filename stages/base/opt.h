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

#include "stages/base/err.h"

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
    OPT_PATH,    /* char *, heap or NULL; relative to the folder of the job file, ~/ is the home folder */
    OPT_STRINGS, /* struct opt_list; one string is also accepted */
    OPT_PATHS,   /* struct opt_list, each as OPT_PATH; may hold glob patterns */
};

enum opt_flags {
    OPT_REQUIRED = 1, /* the job file must set it */
    OPT_ENV = 2,      /* ${NAME} is replaced by the environment */
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
int opt_set(const struct opt *o, void *config, const char *text, const char *base, struct err *e) MUST_CHECK;

/* Fill a config struct (zeroed by the caller) with the defaults of all rows. */
int opt_defaults(const struct opt *opts, size_t n, void *config, struct err *e) MUST_CHECK;

/* Free the strings and lists of a config struct. */
void opt_release(const struct opt *opts, size_t n, void *config);

/* The value as it would be written in a job file (no quoting); i is the item of a list, else 0.
 * Returns false past the last item or for an unset string. */
bool opt_text(const struct opt *o, const void *config, size_t i, char *out, size_t cap);

/* The row named s, or NULL. */
const struct opt *opt_find(const struct opt *opts, size_t n, const char *s);

/* Edit distance, for "did you mean". */
size_t opt_distance(const char *a, const char *b);

#endif

/* pipeline/job_file.h - the YAML of a job file as a flat list of keys and values with their places.
 *
 * What:   a mapping of sections, each a mapping of keys; a value is a text or a list of texts.
 * Not:    knows no option (pipeline/job.h), opens no file: bytes in, struct out. Fuzzed.
 * Rules:  1. The part of YAML that people mean: no anchors, aliases, tags, merge keys or second documents.
 *         2. No section and no key twice. At most JOB_FILE_KEYS keys, JOB_FILE_BYTES bytes.
 *         3. Errors have code CONFIG, reach JOB and begin with "path:line:column: ", counted from 1.
 *         4. Stack use is constant whatever the nesting.
 */
#ifndef QUIRE_PIPELINE_JOB_FILE_H
#define QUIRE_PIPELINE_JOB_FILE_H

#include "stages/base/arena.h"

#include <stddef.h>

enum { JOB_FILE_BYTES = 1 << 20, JOB_FILE_KEYS = 512 };

struct job_place {
    int line, column; /* from 1; line 0: not in the file (job_file_set) */
};

struct job_value {
    const char *text; /* NUL-terminated, valid UTF-8, without NUL inside */
    struct job_place at;
    struct job_value *next;
};

struct job_entry {
    const char *section;      /* "" for a key at the top level */
    const char *key;          /* NULL: this entry is the section itself */
    struct job_place at;      /* of the key */
    struct job_value *values; /* in file order; NULL for an empty list */
    bool list;                /* written as a list */
};

struct job_file {
    struct arena arena; /* holds all texts */
    struct job_entry entries[JOB_FILE_KEYS];
    size_t n;
};

/* Parse text[0, len). path is for messages. On failure *f is released. */
int job_file_parse(struct job_file *f, const char *text, size_t len, const char *path,
                   struct err *e) MUST_CHECK;
void job_file_release(struct job_file *f); /* safe on a zeroed struct */

/* Put "section.key" to a text, as if the file said so; its place is line 0. A text for the same key again
 * becomes one more item of a list. -ERR_NOMEM, -ERR_CONFIG past JOB_FILE_KEYS. */
int job_file_set(struct job_file *f, const char *section, const char *key, const char *text,
                 struct err *e) MUST_CHECK;

/* The entry of a key (of the section itself when key is NULL), or NULL. */
const struct job_entry *job_file_find(const struct job_file *f, const char *section,
                                      const char *key);

#endif

/* stages/write/manifest.h - the list of a folder's files with their checksums, as sha256sum -c reads it.
 *
 *     0f2c...64 hex digits...9a  results.jsonl
 *
 * What:   a list, its text, and a reader of that text. Pure but for memory.
 * Rules:  names are relative, without "..", and only of the kinds that this program writes
 *         (manifest_name_ok): a manifest from outside can never make it delete anything else.
 */
#ifndef QUIRE_WRITE_MANIFEST_H
#define QUIRE_WRITE_MANIFEST_H

#include "stages/base/buf.h"
#include "stages/base/hash.h"

struct manifest_entry {
    char *name; /* heap */
    uint8_t sha256[HASH_BYTES];
};

struct manifest {
    struct manifest_entry *entries; /* [n] heap */
    size_t n, cap;
};

void manifest_release(struct manifest *m); /* safe on a zeroed struct */

/* results.jsonl, run.json, job.resolved.yaml, or summaries/NAME.md with NAME of a-z 0-9 - only. */
bool manifest_name_ok(const char *name);

/* The name is copied and must be ok. -ERR_NOMEM (reach JOB). */
int manifest_add(struct manifest *m, const char *name, const uint8_t sha256[HASH_BYTES],
                 struct err *e) MUST_CHECK;
int manifest_print(const struct manifest *m, struct buf *out, struct err *e) MUST_CHECK;
/* Appends the entries of text; -ERR_FORMAT with the line number for anything but the form above. */
int manifest_parse(struct manifest *m, const char *text, size_t len, struct err *e) MUST_CHECK;

/* Calls gone(ctx, name) for each name of `old` that `now` lacks. `now` gets sorted. */
void manifest_missing(const struct manifest *old, struct manifest *now,
                      void (*gone)(void *ctx, const char *name), void *ctx);

#endif

/* stages/write/output.h - the output folder of one run.
 *
 *     during the run                      at the end
 *     results.jsonl.partial     --------> results.jsonl
 *     summaries/NAME.md.partial --------> summaries/NAME.md
 *     run.json.partial          --------> run.json
 *                                         MANIFEST.sha256    (a finished run), or
 *                                         INCOMPLETE.sha256  (one that ended early)
 *
 * Rules:  1. Until output_publish(), the files of an earlier run are untouched.
 *         2. Publishing: remove the old manifest, rename, delete what only the old manifest lists,
 *            write the new manifest last. A folder with MANIFEST.sha256 is whole and of one run.
 *         3. A run that ended early never replaces a finished one: its files stay .partial.
 *         4. results.jsonl.partial always ends with a whole line, also after a failed write.
 * Thread: one at a time: the write stage's while stages run, then the main thread's.
 */
#ifndef QUIRE_WRITE_OUTPUT_H
#define QUIRE_WRITE_OUTPUT_H

#include "stages/base/err.h"

#include <stddef.h>

struct output;

/* Could the folder be made and written? Touches nothing. -ERR_CONFIG (reach JOB) with the folder that is in the way. */
int output_check(const char *folder, struct err *e) MUST_CHECK;
/* Make the folder if it is missing, remove .partial files that an earlier run left, begin the results.
 * -ERR_IO (reach JOB), as all below. */
int output_open(struct output **out, const char *folder, struct err *e) MUST_CHECK;
/* Closes; what was not published stays. NULL is fine. */
void output_close(struct output *o);
/* For a run that never began: removes the empty results.jsonl.partial. */
void output_discard(struct output *o);

/* Append a record: n bytes without newline, in one write(2) together with one. Synced every 64 lines or 5 s. */
int output_line(struct output *o, const char *line, size_t n, struct err *e) MUST_CHECK;
/* A whole file; name as manifest_name_ok(). */
int output_file(struct output *o, const char *name, const void *data, size_t n,
                struct err *e) MUST_CHECK;

/* Make the new files the results. Returns 0, or 1 when a finished earlier run was kept (finished false). */
int output_publish(struct output *o, bool finished, struct err *e) MUST_CHECK;

#endif

/* stages/write/output.h - the output folder of one run.
 *
 *     during the run                      at the end
 *     results.jsonl.partial     --------> results.jsonl
 *     run.json.partial          --------> run.json
 *     summaries/NAME.md.partial --------> summaries/NAME.md
 *                                         MANIFEST.sha256
 *
 * Rules:  1. Until output_publish(), the files of an earlier finished run are untouched.
 *         2. Publishing: remove the old manifest, rename, delete what only the old manifest lists,
 *            write the new manifest last. A folder with MANIFEST.sha256 is whole and of one run.
 *         3. A run that ends early publishes nothing: results.jsonl.partial stays, and the next run goes on with it.
 *         4. results.jsonl.partial always ends with a whole line, also after a failed write; one that a killed
 *            process has torn is cut at the start.
 *         5. What an earlier run wrote is not written again: as long as this run's lines are the same, they are only
 *            compared. At the first difference the rest is cut off, and written anew.
 * Thread: one at a time: the write stage's while stages run, then the main thread's.
 */
#ifndef QUIRE_WRITE_OUTPUT_H
#define QUIRE_WRITE_OUTPUT_H

#include "stages/write/lines.h"

struct output;

/* Could the folder be made and written? Touches nothing. -ERR_CONFIG (reach JOB) with the folder that is in the way. */
int output_check(const char *folder, struct err *e) MUST_CHECK;
/* Make the folder if it is missing, open the results that an earlier run has begun or begin them, remove its other
 * .partial files. -ERR_IO (reach JOB), as all below. */
int output_open(struct output **out, const char *folder, struct err *e) MUST_CHECK;
/* Closes; what was not published stays. NULL is fine. */
void output_close(struct output *o);
/* For a run that never began: removes results.jsonl.partial where it is empty. */
void output_discard(struct output *o);

/* Before anything is written: the lines that an earlier run left, those of the finished results (none where there are
 * none); and to begin without them. */
int output_old_lines(const struct output *o, line_fn *fn, void *to, struct err *e) MUST_CHECK;
int output_published_lines(const struct output *o, line_fn *fn, void *to,
                           struct err *e) MUST_CHECK;
int output_restart(struct output *o, struct err *e) MUST_CHECK;

/* The next record: n bytes without newline, in one write(2) together with one. Synced every 64 lines or 5 s. */
int output_line(struct output *o, const char *line, size_t n, struct err *e) MUST_CHECK;
/* All lines are on the disk: after output_sync(), and whenever this says so. */
int output_sync(struct output *o, struct err *e) MUST_CHECK;
bool output_is_synced(const struct output *o);
/* No more lines come: drop what an earlier run had behind the last one. */
int output_cut(struct output *o, struct err *e) MUST_CHECK;

/* A whole file; name as manifest_name_ok(). */
int output_file(struct output *o, const char *name, const void *data, size_t n,
                struct err *e) MUST_CHECK;

/* Make the new files the results. */
int output_publish(struct output *o, struct err *e) MUST_CHECK;

#endif

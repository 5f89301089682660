/* pipeline/job_docs.h - what the option tables say, as text for a terminal, Markdown and JSON Schema.
 *
 * Rule:   docs/job-file.md and docs/job.schema.json are these outputs; a test compares them.
 * Thread: pure.
 */
#ifndef QUIRE_PIPELINE_JOB_DOCS_H
#define QUIRE_PIPELINE_JOB_DOCS_H

#include "pipeline/job.h"

/* All sections, one line each. */
int job_docs_sections(struct buf *out, struct err *e) MUST_CHECK;
/* The keys of one section, one line each. */
int job_docs_section(const struct job_section *s, struct buf *out, struct err *e) MUST_CHECK;
/* One key in full. */
int job_docs_key(const struct job_section *s, const struct opt *o, struct buf *out,
                 struct err *e) MUST_CHECK;

int job_docs_markdown(struct buf *out, struct err *e) MUST_CHECK;
int job_docs_schema(struct buf *out, struct err *e) MUST_CHECK;

/* Append text broken at spaces to lines of at most 80 columns, each after `indent` spaces. */
int job_docs_wrap(struct buf *out, int indent, const char *text, struct err *e) MUST_CHECK;

#endif

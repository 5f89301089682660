/* stages/write/markdown.h - the record of one document as a Markdown page for people. Pure: from its line alone. */
#ifndef QUIRE_WRITE_MARKDOWN_H
#define QUIRE_WRITE_MARKDOWN_H

#include "stages/base/buf.h"
#include "stages/write/result_line.h"

/* The page: front matter, the answer or answers, then the partial answers if they were kept. */
int markdown_page(const struct result_line *l, struct buf *out, struct err *e) MUST_CHECK;

/* "summaries/000012-1f0c2d3e.md": ordinal and id. Nothing that a document says of itself gets into a name. out[cap];
 * cap >= 64. */
void markdown_name(const struct result_line *l, char *out, size_t cap);

#endif

/* stages/write/markdown.h - the record of one document as a Markdown page for people. Pure: from its line alone. */
#ifndef QUIRE_WRITE_MARKDOWN_H
#define QUIRE_WRITE_MARKDOWN_H

#include "stages/base/buf.h"
#include "stages/write/result_line.h"

/* The page: front matter, the answer or answers, then the partial answers if they were kept. */
int markdown_page(const struct result_line *l, struct buf *out, struct err *e) MUST_CHECK;

/* "summaries/000012-a-title-1f0c2d3e.md": ordinal, what can be used of the title or entry name, id. Names from
 * documents are never paths: only a-z, 0-9 and - get through. out[cap]; cap >= 96. */
void markdown_name(const struct result_line *l, char *out, size_t cap);

#endif

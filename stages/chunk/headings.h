/* stages/chunk/headings.h - which headings are in force at a place of a document.
 *
 * Rule: places that rise cost one walk over the document's blocks all together.
 * Thread: one owner. */
#ifndef QUIRE_CHUNK_HEADINGS_H
#define QUIRE_CHUNK_HEADINGS_H

#include "stages/rec.h"

enum { HEADING_PATH_BYTES = 240, HEADING_BYTES = 80, HEADING_LEVELS = 9 };

/* Begins as {.doc = d}. */
struct headings {
    const struct doc *doc;
    size_t next;                              /* first block behind the last place */
    const struct block *open[HEADING_LEVELS]; /* [n] in force there, levels rising */
    int n;
};

/* "Part > Chapter > Section" of the headings that begin at or before `at` and are not closed by one of the
 * same or a higher level. Each is cut to HEADING_BYTES at a code point; when the whole would be longer than
 * HEADING_PATH_BYTES, those in the middle give way to "...". Heap; NULL when there is none. */
char *heading_path(struct headings *h, size_t at);

#endif

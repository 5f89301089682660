/* stages/ingest/html_clean.h - HTML rewritten to what libxml2's SAX parser reads well.
 *
 * What:   a tokenizer that passes text and bare tags on, in pieces. Comments, declarations, meta
 *         tags, scripts, styles and other raw text are gone; of the attributes only "hidden" is
 *         left, which also stands for a style of display:none.
 * Why:    libxml2 compares each attribute of a tag with all others, believes a meta charset after
 *         the text was decoded, and ends scripts in the wrong place. It sees no byte that did not
 *         pass here, so the two cannot disagree on what is a tag.
 * Thread: pure. Cost: one pass; no search runs over the same bytes twice.
 * Source: HTML Living Standard, section 13.2.5 (tokenization).
 */
#ifndef QUIRE_INGEST_HTML_CLEAN_H
#define QUIRE_INGEST_HTML_CLEAN_H

#include "stages/base/err.h"

#include <stddef.h>

/* Takes the next piece of clean HTML; a code other than 0 stops the cleaning. */
typedef int html_piece_fn(void *to, const char *s, size_t n);

/* Returns 0 or what fn returned. */
int html_clean(const char *s, size_t n, html_piece_fn *fn, void *to) MUST_CHECK;

#endif

/* stages/decode/stop.h - pure functions over the bytes of an answer: stop strings, thinking, final form.
 *
 * What:   an answer is collected as raw bytes, so a stop string is found wherever token or code point
 *         borders fall; nothing is shown to anyone before the answer ends, so nothing has to be held back.
 * Rules:  1. Thinking is text in front: white space, the open mark, anything, the close mark; or, when the
 *            prompt ends with the open mark, all up to the close mark. Later marks are plain text.
 *         2. Stop strings count outside of thinking only.
 *         3. The result is valid UTF-8 without NUL, white space trimmed at both ends; a code point that is
 *            not complete at the end is dropped, other bad bytes become U+FFFD.
 * Read:   docs/tasks.md, How an answer ends.
 */
#ifndef QUIRE_DECODE_STOP_H
#define QUIRE_DECODE_STOP_H

#include "stages/base/opt.h"

#include <stdbool.h>
#include <stddef.h>

/* Earliest begin of a stop string that ends after byte `from` (<= len) of text[0, len). False when there is
 * none. Empty stop strings never match. */
bool stop_find(const struct opt_list *stops, const char *text, size_t len, size_t from,
               size_t *at);

/* The same for one string. */
bool text_find(const char *what, const char *text, size_t len, size_t from, size_t *at);

/* Does text begin with the mark, after white space? *undecided: it is so short that it still may. */
bool mark_in_front(const char *mark, const char *text, size_t len, bool *undecided);

/* Does text end with the mark, but for white space? */
bool mark_at_end(const char *mark, const char *text, size_t len);

/* Rule 3. Heap string of *out_len bytes, NULL when there is no memory. */
char *answer_clean(const char *raw, size_t len, size_t *out_len);

#endif

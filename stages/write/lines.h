/* stages/write/lines.h - a file of lines, one after the other, however long they are.
 *
 * Rules:  1. A line ends with '\n'; what is behind the last one is no line.
 *         2. A line of more than LINE_MAX_BYTES is passed over.
 */
#ifndef QUIRE_WRITE_LINES_H
#define QUIRE_WRITE_LINES_H

#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { LINE_MAX_BYTES = 1 << 30 };

/* Takes a line of n bytes without its end; text[n] is 0. Anything but 0 stops the reading and is returned by it. */
typedef int line_fn(void *to, const char *text, size_t n, struct err *e);

/* Calls fn for each line of fd from its start. -ERR_IO, -ERR_NOMEM, reach JOB; path is for the message. */
int lines_read(int fd, const char *path, line_fn *fn, void *to, struct err *e) MUST_CHECK;

/* Bytes of the file up to the end of its last line. */
int lines_end(int fd, const char *path, uint64_t *end, struct err *e) MUST_CHECK;

#endif

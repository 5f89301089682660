/* stages/base/log.h - one line to stderr per event, in one write(2).
 *
 * Levels by how often they happen: error and warn when something is wrong, info once per job or
 * stage, debug once per document, trace once per chunk; nothing per token.
 *
 *       12.345 info  ingest: archive opened path=mail.zip entries=31
 *
 * Control characters in the text are escaped: names inside archives are hostile.
 * Thread: safe. The level and the progress hook are process-wide.
 */
#ifndef QUIRE_BASE_LOG_H
#define QUIRE_BASE_LOG_H

#include "stages/base/err.h"

#include <stddef.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/* Called with the log's lock held before and after each line, so that a progress line on the
 * same terminal can be wiped and drawn again. NULL switches it off. */
void log_set_hook(void (*around)(bool before));

void log_line(enum log_level level, const char *where, const char *fmt, ...) PRINTF_LIKE(3, 4);

#define log_error(where, ...) log_line(LOG_ERROR, where, __VA_ARGS__)
#define log_warn(where, ...) log_line(LOG_WARN, where, __VA_ARGS__)
#define log_info(where, ...) log_line(LOG_INFO, where, __VA_ARGS__)
#define log_debug(where, ...) log_line(LOG_DEBUG, where, __VA_ARGS__)
#define log_trace(where, ...) log_line(LOG_TRACE, where, __VA_ARGS__)

#endif

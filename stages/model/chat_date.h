/* stages/model/chat_date.h - the fixed date of a job, for templates that print one. */
#ifndef QUIRE_MODEL_CHAT_DATE_H
#define QUIRE_MODEL_CHAT_DATE_H

#include "stages/base/buf.h"

struct chat_date {
    int year, month, day; /* 1..9999, 1..12, 1..31 */
};

/* "2024-07-26" or "26 Jul 2024" (English names, short or whole). -ERR_CONFIG, reach JOB. */
int chat_date_parse(struct chat_date *d, const char *text, struct err *e) MUST_CHECK;

/* As strftime(3) in the C locale at midnight: %a %A %b %B %d %-d %m %-m %y %Y %H %M %S %j %p %I %% and %F.
 * -ERR_UNSUPPORTED, reach JOB, for others. */
int chat_date_format(const struct chat_date *d, const char *fmt, size_t n, struct buf *out,
                     struct err *e) MUST_CHECK;

#endif

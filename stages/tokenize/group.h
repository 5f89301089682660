/* stages/tokenize/group.h - which partial answers go into one reduce prompt. Pure but for the counter.
 *
 * What:   consecutive answers, joined by a blank line, as many as fit into the room by the real count of
 *         the joined text; when the last group would be one answer alone, it takes one more from the
 *         group before it where that has three or more.
 */
#ifndef QUIRE_TOKENIZE_GROUP_H
#define QUIRE_TOKENIZE_GROUP_H

#include "stages/base/buf.h"

#include <stdint.h>

struct part_text {
    const char *text;
    size_t len;
};

/* Tokens of text[0, len) encoded alone; -1: no memory. */
typedef int64_t group_count_fn(const void *ctx, const char *text, size_t len);

/* Join parts[0, n) with blank lines into out (cleared first). -ERR_NOMEM, reach DOC. */
int group_join(const struct part_text *parts, int n, struct buf *out, struct err *e) MUST_CHECK;

/* first[g] is set to the first part of group g, for the returned number of groups (1..n); first has room for
 * n. `tokens` [n] are the counts of the parts alone. -ERR_LIMIT when one part alone is over the room, with its
 * index in *bad; -ERR_NOMEM. Cost: a few counts of each text. */
int group_parts(const struct part_text *parts, const int64_t *tokens, int n, int64_t room,
                group_count_fn *count, const void *ctx, int *first, int *bad,
                struct err *e) MUST_CHECK;

#endif

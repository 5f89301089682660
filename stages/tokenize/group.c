#include "stages/tokenize/group.h"

#include <inttypes.h>

int group_join(const struct part_text *parts, int n, struct buf *out, struct err *e)
{
    buf_clear(out);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        if (i > 0)
            rc = buf_adds(out, "\n\n", e);
        if (rc == 0)
            rc = buf_add(out, parts[i].text, parts[i].len, e);
    }
    return rc;
}

/* Tokens of parts [begin, end) joined; negative: -ERR_x. */
static int64_t joined_tokens(const struct part_text *parts, int begin, int end,
                             group_count_fn *count, const void *ctx, struct buf *text,
                             struct err *e)
{
    int rc = group_join(parts + begin, end - begin, text, e);
    if (rc < 0)
        return rc;
    int64_t n = count(ctx, text->data, text->len);
    return n < 0 ? err_set(e, REACH_DOC, ERR_NOMEM, "no memory to count tokens") : n;
}

/* End of the longest group from `begin`. The sum of single counts proposes, the joined count decides: it may be
 * larger (the blank lines) or smaller (merges). */
static int group_end(const struct part_text *parts, const int64_t *tokens, int n, int begin,
                     int64_t room, group_count_fn *count, const void *ctx, struct buf *text,
                     struct err *e)
{
    int end = begin + 1;
    for (int64_t sum = tokens[begin]; end < n && sum + tokens[end] <= room; end++)
        sum += tokens[end];
    for (; end > begin + 1; end--) {
        int64_t joined = joined_tokens(parts, begin, end, count, ctx, text, e);
        if (joined < 0)
            return (int)joined;
        if (joined <= room)
            break;
    }
    return end;
}

int group_parts(const struct part_text *parts, const int64_t *tokens, int n, int64_t room,
                group_count_fn *count, const void *ctx, int *first, int *bad, struct err *e)
{
    for (int i = 0; i < n; i++) {
        if (tokens[i] <= room)
            continue;
        *bad = i;
        return err_set(e, REACH_DOC, ERR_LIMIT,
                       "it has %" PRId64 " tokens, and a reduce prompt has room for %" PRId64,
                       tokens[i], room > 0 ? room : 0);
    }
    struct buf text;
    buf_init(&text, SIZE_MAX / 2);
    int groups = 0, rc = 0;
    for (int begin = 0; begin < n && rc >= 0; begin = rc) {
        first[groups++] = begin;
        rc = group_end(parts, tokens, n, begin, room, count, ctx, &text, e);
    }
    if (rc >= 0 && groups > 1 && first[groups - 1] == n - 1 && n - 1 - first[groups - 2] > 2) {
        int64_t joined = joined_tokens(parts, n - 2, n, count, ctx, &text, e);
        if (joined >= 0 && joined <= room)
            first[groups - 1] = n - 2;
        rc = joined < 0 ? (int)joined : rc;
    }
    buf_release(&text);
    return rc < 0 ? rc : groups;
}

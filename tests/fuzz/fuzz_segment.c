/* Any bytes as a segment, also with the checksums of all heads in it put right: the walk ends; what it finds lies
 * whole inside, in rising order, without overlap; a walk that begins at a find, or ends behind one, finds the same;
 * and bytes after the last find change nothing. */
#include "stages/base/le.h"
#include "stages/kv/segment.h"
#include "stages/kv/uses.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SUM_AT = 48, CAP = 1 << 16, FINDS = 1024 };

struct bytes {
    const uint8_t *data;
    size_t n;
};

static void must(bool ok)
{
    if (!ok)
        abort();
}

static size_t read_bytes(void *ctx, uint64_t offset, uint8_t *to, size_t n)
{
    const struct bytes *b = ctx;
    must(offset < b->n && n <= b->n - offset);
    memcpy(to, b->data + offset, n);
    return n;
}

/* Walk [from, n): the places found go to at[0, FINDS); returns how many. */
static int walk(struct segment_walk *w, struct bytes *b, uint64_t from, uint64_t at[FINDS])
{
    struct segment_item item;
    uint64_t end = from;
    int n = 0;
    segment_walk_init(w, read_bytes, b, from, b->n);
    while (segment_next(w, &item)) {
        uint64_t bytes = item.is_notice
                             ? NOTICE_BYTES
                             : record_bytes(item.head.info.n_tokens, item.head.body_bytes);
        must(item.offset >= end && item.offset % RECORD_ALIGN == 0);
        must(bytes <= b->n - item.offset);
        end = item.offset + bytes;
        must(w->end == end);
        must(n < FINDS);
        at[n++] = item.offset;
    }
    must(w->end == end && end <= b->n && !w->failed);
    return n;
}

static void try_segment(const uint8_t *data, size_t n)
{
    static uint64_t first[FINDS], again[FINDS];
    struct bytes b = {data, n};
    struct segment_walk *w = malloc(sizeof(*w));
    must(w != NULL);
    int found = walk(w, &b, 0, first);
    uint64_t end = w->end;
    for (int i = 0; i < found; i++) {
        struct bytes rest = {data, (size_t)end};
        must(walk(w, &rest, first[i], again) == found - i);
        must(memcmp(again, first + i, (size_t)(found - i) * sizeof(again[0])) == 0);
    }
    free(w);
}

/* Put right what has a magic. */
static void fix_sums(uint8_t *p, size_t n)
{
    for (size_t at = 0; at + RECORD_ALIGN <= n; at += RECORD_ALIGN) {
        uint8_t *head = p + at;
        if (memcmp(head, "QKVN", 4) == 0) {
            le64_put(head + SUM_AT, record_hash(head, SUM_AT));
        } else if (memcmp(head, "QKVR", 4) == 0 && le32_get(head + 8) <= PAGE_TOKENS) {
            size_t bytes = record_head_bytes((int)le32_get(head + 8));
            if (bytes > n - at)
                continue;
            uint8_t state = head[RECORD_STATE_AT];
            head[RECORD_STATE_AT] = 0;
            memset(head + SUM_AT, 0, 8);
            le64_put(head + SUM_AT, record_hash(head, bytes));
            head[RECORD_STATE_AT] = state;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > CAP)
        return 0;
    try_segment(data, size);
    uint8_t *copy = malloc(size + 1);
    must(copy != NULL);
    memcpy(copy, data, size);
    fix_sums(copy, size);
    try_segment(copy, size);
    free(copy);
    return 0;
}

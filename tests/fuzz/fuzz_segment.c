/* Any bytes as a segment, also with the checksums of all heads in it put right: the walk ends; what it finds lies
 * whole inside, in rising order, without overlap; a walk that begins at a find, or ends behind one, finds the same;
 * and bytes after the last find change nothing. */
#include "tests/fuzz/fuzz_sums.h"

#include "stages/kv/segment.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CAP = 1 << 16, FINDS = 1024 };

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

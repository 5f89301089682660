#include "stages/kv/segment.h"

#include <string.h>

enum { SPARSE_READ = 4096 }; /* one head and what may follow; more would read bodies */

void segment_walk_init(struct segment_walk *w, segment_read_fn *read, void *ctx, uint64_t from,
                       uint64_t size)
{
    w->read = read;
    w->ctx = ctx;
    w->at = w->end = from;
    w->size = size;
    w->gaps = 0;
    w->failed = false;
    w->window_at = 0;
    w->window_bytes = 0;
    w->dense = false;
}

/* The bytes at w->at, at least as many as the longest head unless the segment ends; *n of them. */
static const uint8_t *look(struct segment_walk *w, size_t *n)
{
    uint64_t left = w->size - w->at;
    size_t want = left < RECORD_HEAD_MAX ? (size_t)left : RECORD_HEAD_MAX;
    if (w->at < w->window_at || w->at + want > w->window_at + w->window_bytes) {
        size_t ask = w->dense ? SEGMENT_WINDOW : SPARSE_READ;
        w->window_at = w->at;
        w->window_bytes = w->read(w->ctx, w->at, w->window, left < ask ? (size_t)left : ask);
    }
    *n = (size_t)(w->window_at + w->window_bytes - w->at);
    return w->window + (w->at - w->window_at);
}

bool segment_next(struct segment_walk *w, struct segment_item *out)
{
    bool gap = false;
    while (w->at < w->size && w->size - w->at >= RECORD_ALIGN) {
        size_t n;
        const uint8_t *p = look(w, &n);
        if (n < RECORD_ALIGN) {
            w->failed = true; /* what was found so far stands */
            return false;
        }
        uint64_t bytes = 0;
        if (memcmp(p, "QKV", 3) != 0) {
            /* most of what is skipped ends here */
        } else if (notice_get(&out->notice, p)) {
            bytes = NOTICE_BYTES;
            out->is_notice = true;
        } else if (record_get(&out->head, p, n)) {
            bytes = record_bytes(out->head.info.n_tokens, out->head.body_bytes);
            out->is_notice = false;
        }
        if (bytes == 0 || bytes > w->size - w->at) {
            w->dense = true;
            w->at += RECORD_ALIGN;
            gap = true;
            continue;
        }
        w->dense = bytes < SEGMENT_WINDOW / 4;
        out->offset = w->at;
        w->at += bytes;
        w->end = w->at;
        w->gaps += gap;
        return true;
    }
    return false;
}

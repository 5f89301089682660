/* Any bytes as the head of a record, also with their checksum put right: record_get() refuses them, or gives fields
 * within their bounds which, written again, are read as the same; the same for a notice. */
#include "tests/fuzz/fuzz_sums.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void try_head(const uint8_t *in, size_t n)
{
    struct record_head h, again;
    uint8_t out[RECORD_HEAD_MAX];
    size_t bytes = record_get(&h, in, n);
    if (bytes == 0)
        return;
    must(bytes <= n && bytes == record_head_bytes(h.info.n_tokens));
    must(h.info.n_tokens >= (h.info.kind == RECORD_PAGE) && h.info.n_tokens <= PAGE_TOKENS);
    must(h.body_bytes <= RECORD_BODY_MAX && h.info.codec < CODEC_COUNT);
    must(h.info.n_logits >= 0 && (uint64_t)h.info.n_logits * 4 <= h.body_bytes);
    must(record_put(&h, out) == bytes);
    must(record_get(&again, out, bytes) == bytes);
    must(memcmp(&h.info, &again.info, sizeof(h.info)) == 0 && h.state == again.state);
    must(h.body_hash == again.body_hash && h.owner == again.owner &&
         h.written == again.written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_head(data, size);
    uint8_t head[RECORD_HEAD_MAX] = {0};
    memcpy(head, data, size < sizeof(head) ? size : sizeof(head));
    fix_sums(head, sizeof(head));
    try_head(head, sizeof(head));
    if (size >= NOTICE_BYTES) {
        struct record_notice t, again;
        uint8_t out[NOTICE_BYTES];
        memcpy(out, data, NOTICE_BYTES);
        le64_put(out + SUM_AT, record_hash(out, SUM_AT));
        if (notice_get(&t, out)) {
            notice_put(&t, out);
            must(notice_get(&again, out) && again.segment == t.segment &&
                 again.offset == t.offset && memcmp(again.key, t.key, HASH_BYTES) == 0);
        }
    }
    return 0;
}

/* Property: whatever the bytes, decode refuses them as corrupt or gives a page, and writes nothing outside of it;
 * a page that an exact codec gives, or one of 8 bits, is encoded and decoded to the same page, in no more than
 * codec_bound() bytes; one that a lossy codec gives is finite.
 *
 * Input: kind (1 byte, mod 6), tokens (1 byte, mod 65), shape (1 byte, mod 4); the rest is the encoded page. */
#include "stages/kv/codec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void try_again(struct codec *c, const struct kv_shape *s, enum codec_kind kind,
                      const uint8_t *page, size_t page_bytes, int tokens)
{
    struct err e = {0};
    uint8_t *out = malloc(codec_bound(s)), *back = malloc(page_bytes);
    size_t n = codec_encode(c, kind, page, tokens, out);
    check(n <= codec_bound(s));
    memset(back, 0xaa, page_bytes);
    check(codec_decode(c, kind, out, n, back, tokens, &e) == 0);
    check((codec_is_lossy(kind) && !codec_shrinks(s, kind)) ||
          memcmp(page, back, page_bytes) == 0);
    free(out);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kv_shape shapes[] = {
        {1, 1, 2, 512}, {3, 1, 34, 8704}, {2, 2, 32, 16384 + 64}, {1, 0, 0, 64}};
    if (size < 3)
        return 0;
    enum codec_kind kind = (enum codec_kind)(data[0] % CODEC_COUNT);
    const struct kv_shape *s = &shapes[data[2] % 4];
    int tokens = data[1] % (PAGE_TOKENS + 1);
    struct err e = {0};
    struct codec *c = codec_new(s);
    size_t page_bytes = codec_page_bytes(s, kind);
    bool halves = codec_is_lossy(kind) && !codec_shrinks(s, kind);
    uint8_t *page = malloc(page_bytes);
    int rc = codec_decode(c, kind, data + 3, size - 3, page, tokens, &e);
    check(rc == 0 || rc == -ERR_CORRUPT);
    if (rc == 0) {
        for (size_t i = 0; halves && s->n_kv_head && i < page_bytes; i += 2)
            check((page[i + 1] & 0x7c) != 0x7c);
        try_again(c, s, kind, page, page_bytes, tokens);
    }
    codec_free(c);
    free(page);
    return 0;
}

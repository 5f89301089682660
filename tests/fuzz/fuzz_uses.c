/* Any bytes as the file of uses, also with its checksum put right: uses_merge() refuses it, or what is printed then
 * is taken again and gives the same times, newest first; and there are never more keys than the cap. */
#include "stages/base/le.h"
#include "stages/kv/record.h"
#include "stages/kv/uses.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CAP = 300 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void try_uses(const uint8_t *data, size_t size)
{
    struct uses u, again;
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    uses_init(&u, CAP);
    uses_init(&again, CAP);
    uses_touch(&u, 7, 1700000000);
    if (uses_merge(&u, data, size, true)) {
        must(u.n <= CAP);
        must(uses_print(&u, &b, &e) == 0);
        must(uses_merge(&again, (const uint8_t *)b.data, b.len, false));
        must(again.n == u.n);
        for (uint32_t i = 0; i < u.n_slots; i++) {
            const struct use *s = &u.slots[i], *t = s->key ? uses_find(&again, s->key) : NULL;
            must(!s->key || t);
            for (int k = 0; t && k < USES_KEPT; k++)
                must(t->times[k] == s->times[k] && (k == 0 || s->times[k] <= s->times[k - 1]));
        }
    }
    uses_release(&u);
    uses_release(&again);
    buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_uses(data, size);
    if (size >= USES_HEAD && size < 1 << 16) {
        uint8_t *copy = malloc(size);
        must(copy != NULL);
        memcpy(copy, data, size);
        le64_put(copy + 8, (size - USES_HEAD) / USES_ENTRY);
        le64_put(copy + 16, record_hash(copy + USES_HEAD, size - USES_HEAD));
        try_uses(copy, size);
        free(copy);
    }
    return 0;
}

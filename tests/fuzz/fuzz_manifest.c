/* Any bytes: manifest_parse() either refuses them with a line number, or gives entries whose names are all of
 * files that this program writes, and whose text, printed and read again, is the same list. */
#include "stages/base/buf.h"
#include "stages/write/manifest.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest first = {0}, again = {0};
    struct err e = {0};
    struct buf text;
    buf_init(&text, 1 << 24);
    if (manifest_parse(&first, (const char *)data, size, &e) != 0) {
        must(e.code == ERR_FORMAT && strncmp(e.msg, "line ", 5) == 0);
    } else {
        must(manifest_print(&first, &text, &e) == 0);
        must(manifest_parse(&again, text.data ? text.data : "", text.len, &e) == 0);
        must(first.n == again.n);
        for (size_t i = 0; i < first.n; i++) {
            must(manifest_name_ok(first.entries[i].name));
            must(strcmp(first.entries[i].name, again.entries[i].name) == 0);
            must(memcmp(first.entries[i].sha256, again.entries[i].sha256, HASH_BYTES) == 0);
        }
    }
    manifest_release(&first);
    manifest_release(&again);
    buf_release(&text);
    return 0;
}

/* Any bytes as a line of results.jsonl: refused, or read as a record that can be printed again. What was printed once is
 * printed the same from then on, has the number that was asked for, and makes a page whose name is never a path. */
#include "stages/base/mem.h"
#include "stages/write/manifest.h"
#include "stages/write/markdown.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct result_line l, again;
    char *text = mem_need(size + 1), name[128];
    memcpy(text, data, size);
    int rc = result_line_parse(&l, text, size, &e);
    free(text);
    if (rc) {
        need(rc == -ERR_FORMAT && l.json == NULL);
        return 0;
    }
    char *first = result_line_print(&l, 7, l.source);
    need(first != NULL);
    need(result_line_parse(&again, first, strlen(first), &e) == 0);
    need(again.ordinal == 7 && strcmp(again.id, l.id) == 0 && again.status == l.status);
    char *second = result_line_print(&again, 7, again.source);
    need(second && strcmp(first, second) == 0);
    markdown_name(&l, name, sizeof(name));
    need(manifest_name_ok(name));
    struct buf page;
    buf_init(&page, 1 << 26);
    rc = markdown_page(&l, &page, &e);
    need(rc == 0 || rc == -ERR_LIMIT || rc == -ERR_NOMEM);
    char *whole = result_line_name(&l);
    need(strlen(whole) >= strlen(l.source));
    free(whole);
    buf_release(&page);
    free(first);
    free(second);
    result_line_release(&again);
    result_line_release(&l);
    return 0;
}

#include "stages/chunk/headings.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <string.h>

enum { LEVELS = 9 };

static int level_of(const struct block *b)
{
    return b->level < 1 ? 1 : b->level > LEVELS ? LEVELS : b->level;
}

/* The heading's text on one line, at most HEADING_BYTES. Returns its length. */
static size_t one_line(const struct doc *d, const struct block *b, char out[HEADING_BYTES + 1])
{
    size_t n = 0, i = b->begin;
    for (; i < b->end && n < HEADING_BYTES; i++) {
        char c = d->text[i];
        bool space = c == ' ' || (c >= '\t' && c <= '\r');
        if (!space)
            out[n++] = c;
        else if (n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    n = utf8_valid_prefix(out, n); /* the cap may fall inside a code point */
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
    return n;
}

/* The blocks that make the path, outermost first; returns how many. Walks backwards from `at` and stops at a
 * heading of level 1, so that a document with headings is not read from its start for every chunk. */
static int open_headings(const struct doc *d, size_t at, const struct block *out[LEVELS])
{
    size_t lo = 0, hi = d->n_blocks;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->blocks[mid].begin <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    const struct block *found[LEVELS];
    int n = 0, level = LEVELS + 1;
    for (size_t i = lo; i > 0 && level > 1; i--) {
        const struct block *b = &d->blocks[i - 1];
        if (b->kind == BLOCK_HEADING && level_of(b) < level) {
            level = level_of(b);
            found[n++] = b;
        }
    }
    for (int i = 0; i < n; i++)
        out[i] = found[n - 1 - i];
    return n;
}

char *heading_path(const struct doc *d, size_t at)
{
    static const char join[] = " > ", gap[] = "...";
    const struct block *open[LEVELS];
    char line[LEVELS][HEADING_BYTES + 1];
    int n = 0, n_open = open_headings(d, at, open);
    size_t total = 0;
    for (int i = 0; i < n_open; i++) {
        size_t len = one_line(d, open[i], line[n]);
        total += len + sizeof(join) - 1;
        n += len > 0;
    }
    if (n == 0)
        return NULL;
    int front = n, back = n; /* line[0, front) and line[back, n) are kept */
    if (total > HEADING_PATH_BYTES && n > 2) {
        front = 1;
        back = n - 1;
    }
    char *path = mem_need(LEVELS * (HEADING_BYTES + sizeof(join)) + sizeof(gap)), *p = path;
    for (int i = 0; i < n; i++) {
        if (i >= front && i < back) {
            if (i == front)
                p = stpcpy(stpcpy(p, join), gap);
            continue;
        }
        p = stpcpy(i > 0 ? stpcpy(p, join) : p, line[i]);
    }
    return path;
}

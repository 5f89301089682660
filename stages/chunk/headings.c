#include "stages/chunk/headings.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <string.h>

static int level_of(const struct block *b)
{
    return b->level < 1 ? 1 : b->level > HEADING_LEVELS ? HEADING_LEVELS : b->level;
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

/* Brings the open headings up to `at`. */
static void advance(struct headings *h, size_t at)
{
    const struct doc *d = h->doc;
    if (h->next > 0 && d->blocks[h->next - 1].begin > at)
        *h = (struct headings){.doc = d};
    for (; h->next < d->n_blocks && d->blocks[h->next].begin <= at; h->next++) {
        const struct block *b = &d->blocks[h->next];
        if (b->kind != BLOCK_HEADING)
            continue;
        while (h->n > 0 && level_of(h->open[h->n - 1]) >= level_of(b))
            h->n--;
        h->open[h->n++] = b;
    }
}

char *heading_path(struct headings *h, size_t at)
{
    static const char join[] = " > ", gap[] = "...";
    char line[HEADING_LEVELS][HEADING_BYTES + 1];
    int n = 0;
    size_t total = 0;
    advance(h, at);
    for (int i = 0; i < h->n; i++) {
        size_t len = one_line(h->doc, h->open[i], line[n]);
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
    char *path = mem_need(HEADING_LEVELS * (HEADING_BYTES + sizeof(join)) + sizeof(gap)),
         *p = path;
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

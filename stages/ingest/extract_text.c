/* Plain text: kept as it is. Paragraphs are what stands between blank lines; a form feed begins a
 * page. The text of a form feed itself is white space, so it lies in a gap. */
#include "stages/ingest/extract.h"

#include <string.h>

static int bid(const struct doc_head *h)
{
    (void)h;
    return 1; /* when nobody else wants it */
}

/* True when the line at `at` holds nothing but blanks; *next is the start of the line after it. */
static bool blank_line(const char *s, size_t n, size_t at, size_t *next)
{
    bool blank = true;
    while (at < n && s[at] != '\n' && s[at] != '\f') {
        blank &= text_is_space(s[at]);
        at++;
    }
    *next = at < n ? at + 1 : n;
    return blank;
}

static int run(struct extraction *x, struct err *e)
{
    int rc = text_normalise(&x->out.text, x->in, x->n, e);
    const char *s = x->out.text.data;
    size_t n = x->out.text.len, begin = 0;
    int page = s && memchr(s, '\f', n) ? 1 : 0; /* no form feed, no pages */
    for (size_t at = 0; rc == 0 && at < n;) {
        size_t next;
        bool blank = blank_line(s, n, at, &next);
        bool page_ends = s[next - 1] == '\f';
        if (blank || page_ends || next == n) {
            rc = text_mark(&x->out, BLOCK_PARAGRAPH, 0, begin, blank && !page_ends ? at : next,
                           page, e);
            begin = next;
        }
        page += page_ends && page > 0;
        at = next;
        if (rc == 0)
            rc = deadline_check(x->deadline, e);
    }
    return rc;
}

const struct extractor extract_text = {
    .name = "text", .media_type = "text/plain", .bid = bid, .run = run};

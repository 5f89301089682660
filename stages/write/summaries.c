#include "stages/write/summaries.h"

#include "stages/write/markdown.h"

/* line_fn */
static int write_page(void *to, const char *text, size_t n, struct err *e)
{
    struct result_line l;
    char name[128];
    struct buf page;
    int rc = result_line_parse(&l, text, n, e);
    if (rc || l.status == DOC_FAILED) {
        e->reach = REACH_JOB;
        result_line_release(&l);
        return rc;
    }
    buf_init(&page, (size_t)1 << 30);
    markdown_name(&l, name, sizeof(name));
    rc = markdown_page(&l, &page, e);
    if (!rc)
        rc = output_file(to, name, page.data, page.len, e);
    buf_release(&page);
    result_line_release(&l);
    return rc;
}

int summaries_write(struct output *o, struct err *e)
{
    int rc = output_cut(o, e);
    return rc ? rc : output_old_lines(o, write_page, o, e);
}

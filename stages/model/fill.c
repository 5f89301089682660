#include "stages/model/fill.h"

int fill_chunk(struct model *m, struct fill *f, struct err *e)
{
    int n = (f->pos / f->chunk + 1) * f->chunk - f->pos, left = f->n_tokens - f->pos;
    bool last = n >= left;
    struct forward_rows rows = {.tokens = f->tokens,
                                .pos = f->pos,
                                .n = last ? left : n,
                                .table = f->table,
                                .want_logits = last && f->logits,
                                .logits = f->logits};
    int rc = model_forward(m, &rows, 1, e);
    f->failed = rows.failed;
    f->pos += rows.n;
    return rc;
}

#include "stages/stage.h"

#include "stages/base/clock.h"

bool stage_overdue(const struct stage *s, struct rec *r)
{
    int64_t most = s->env->document_us, begun = r->doc->begun_us;
    if (!most || !begun || clock_us() - begun <= most)
        return false;
    /* No moment: a record says nothing that differs from run to run, as far as it can. */
    err_set(&r->fail, REACH_DOC, ERR_LIMIT, "it took longer than limits.per_document (%g s)",
            (double)most / 1e6);
    return true;
}

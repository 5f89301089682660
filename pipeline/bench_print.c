/* What was measured, as a table and as JSON. */
#include "pipeline/bench.h"

#include "pipeline/version.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int bench_print(const struct bench *b, struct buf *out, struct err *e)
{
    const struct peaks *p = &b->peaks;
    int rc =
        buf_addf(out, e,
                 "model     %s: %.1f MB packed\n"
                 "table     %s, %d thread%s; load of the machine when it began: %.1f\n"
                 "peaks     floats %.0f GFLOP/s, bytes %.0f GOP/s, memory %.1f GB/s\n\n"
                 "%-24s %9s %9s  %-9s %5s\n",
                 model_hparams(b->model)->name, (double)b->sizes.weights / 1e6, b->table.name,
                 p->threads, p->threads == 1 ? "" : "s", b->load[0], p->floats.all,
                 p->bytes.all, p->read.all, "what", "best", "median", "unit", "roof");
    for (int i = 0; !rc && i < b->n_rows; i++) {
        const struct bench_row *r = &b->rows[i];
        double share = bench_share(b, r), best = bench_best(r);
        int digits = best < 10 ? 3 : 1;
        rc = buf_addf(out, e, "%-24s %9.*f %9.*f  %-9s ", r->name, digits, best, digits,
                      bench_median(r), r->unit);
        if (!rc && share > 0)
            rc = buf_addf(out, e, "%3.0f %%", 100 * share);
        if (!rc && r->factor > 0)
            rc = buf_addf(out, e, "%s%.4g times %s", share > 0 ? "  " : "", r->factor,
                          strcmp(r->part, "spill") == 0 ? "as fast as computing" : "smaller");
        while (!rc && out->len && out->data[out->len - 1] == ' ')
            out->data[--out->len] = '\0';
        if (!rc)
            rc = buf_addc(out, '\n', e);
    }
    return rc;
}

static json_t *row_json(const struct bench *b, const struct bench_row *r)
{
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:f, s:f, s:i}", "part", r->part, "name", r->name, "unit",
                  r->unit, "best", bench_best(r), "median", bench_median(r), "repeats", r->n);
    const struct {
        const char *name;
        int value;
    } counts[] = {{"tokens", r->tokens}, {"depth", r->depth}, {"sequences", r->sequences}};
    for (size_t i = 0; o && i < ARRAY_LEN(counts); i++)
        if (counts[i].value)
            json_object_set_new(o, counts[i].name, json_integer(counts[i].value));
    double share = bench_share(b, r);
    if (o && share > 0)
        json_object_set_new(o, "share_of_roof", json_real(share));
    if (o && r->factor > 0)
        json_object_set_new(o, "factor", json_real(r->factor));
    return o;
}

static json_t *peak_json(const struct peak *p)
{
    return json_pack("{s:f, s:f}", "one", p->one, "all", p->all);
}

int bench_print_json(const struct bench *b, struct buf *out, struct err *e)
{
    json_t *rows = json_array();
    for (int i = 0; rows && i < b->n_rows; i++)
        json_array_append_new(rows, row_json(b, &b->rows[i]));
    json_t *all = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:[f,f,f], s:I, s:{s:o, s:o, s:o}, s:o}", "version",
        QUIRE_VERSION, "file", b->o.file, "model", model_hparams(b->model)->name, "table",
        b->table.name, "threads", b->peaks.threads, "load_average", b->load[0], b->load[1],
        b->load[2], "packed_bytes", (json_int_t)b->sizes.weights, "peaks", "gflops",
        peak_json(&b->peaks.floats), "byte_gops", peak_json(&b->peaks.bytes), "read_gbs",
        peak_json(&b->peaks.read), "rows", rows);
    char *text = all ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    int rc = text ? buf_adds(out, text, e)
                  : err_set(e, REACH_JOB, ERR_FORMAT, "what was measured is no JSON");
    if (!rc)
        rc = buf_addc(out, '\n', e);
    free(text);
    json_decref(all);
    return rc;
}

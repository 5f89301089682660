#include "pipeline/bench.h"

#include "kernels/team.h"
#include "pipeline/job_docs.h"
#include "pipeline/setup.h"
#include "stages/base/clock.h"
#include "stages/base/mem.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 8 << 20 };

/* ---- rows ---- */

struct bench_row *bench_add(struct bench *b, const char *part, const char *fmt, ...)
{
    struct bench_row *r = &b->rows[b->n_rows++];
    *r = (struct bench_row){.part = part, .unit = "s"};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->name, sizeof(r->name), fmt, ap);
    va_end(ap);
    return r;
}

void bench_sample(struct bench_row *r, double seconds)
{
    int i = r->n < BENCH_SAMPLES ? r->n++ : BENCH_SAMPLES - 1;
    for (; i > 0 && r->seconds[i - 1] > seconds; i--) /* in order */
        r->seconds[i] = r->seconds[i - 1];
    r->seconds[i] = seconds;
}

int bench_repeat(struct bench *b, struct bench_row *r, bench_body_fn *body, void *ctx,
                 struct err *e)
{
    if (!r)
        return body(ctx, e);
    int64_t start = clock_us(), now = start;
    do {
        int64_t begin = now;
        int rc = body(ctx, e);
        if (rc)
            return rc;
        now = clock_us();
        bench_sample(r, (double)(now - begin) / 1e6);
    } while ((double)(now - start) / 1e6 < b->row_seconds && r->n < BENCH_SAMPLES);
    return 0;
}

static double speed(const struct bench_row *r, double seconds)
{
    return r->amount > 0 ? r->amount / seconds : seconds;
}

double bench_best(const struct bench_row *r)
{
    return speed(r, r->seconds[0]);
}

double bench_median(const struct bench_row *r)
{
    return speed(r, r->seconds[r->n / 2]);
}

/* Products and attention take turns on the same cores; memory works beside them. */
double bench_share(const struct bench *b, const struct bench_row *r)
{
    const struct bench_work *w = &r->work;
    const struct peaks *p = &b->peaks;
    double read = w->bytes / p->read.all;
    double compute = w->ops / p->bytes.all + w->flops / p->floats.all;
    return (read > compute ? read : compute) / 1e9 / r->seconds[0];
}

/* ---- the model ---- */

/* Operations of the matrices: what the directory of the file says. */
static void count_products(struct bench *b)
{
    const struct gguf *g = model_gguf(b->model);
    const char *head = model_hparams(b->model)->tied ? "token_embd.weight" : "output.weight";
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        bool is_head = strcmp(t->name, head) == 0;
        if (t->n_dims != 2 || (!is_head && strcmp(t->name, "token_embd.weight") == 0))
            continue;
        struct bench_work *w = is_head ? &b->head : &b->token;
        double n = 2.0 * (double)t->dims[0] * (double)t->dims[1];
        bool floats = kern_types[t->type].block_values == 1;
        *(floats ? &w->flops : &w->ops) += n;
    }
}

struct bench_work bench_attention_of(const struct bench *b, int position)
{
    const struct hparams *h = model_hparams(b->model);
    double keys = 0;
    for (int i = 0; i < h->n_layer; i++)
        keys += h->local[i] && h->window && position >= h->window ? h->window : position + 1;
    return (struct bench_work){.bytes = keys * 4 * h->n_kv_head * h->head_dim,
                               .flops = keys * 4 * h->n_head * h->head_dim};
}

struct loading {
    struct bench *b;
    const char *packed; /* folder of packed weights; NULL: none */
};

static int load_once(void *ctx, struct err *e)
{
    const struct loading *l = ctx;
    struct bench *b = l->b;
    struct model_config c = {
        .kind = MODEL_GGUF, .file = b->o.file, .context = b->context, .kernels = b->o.kernels};
    model_free(b->model);
    b->model = NULL;
    int rc = model_open(&b->model, &c, e);
    if (!rc && l->packed)
        model_use_packed(b->model, l->packed, 0);
    return rc ? rc : model_load(b->model, &b->table, b->chunk, BENCH_SEQUENCES, e);
}

/* As the first start with a model, and as all others: the weights lie there, packed, out of the system's cache. */
static int load_rows(struct bench *b, struct err *e)
{
    char folder[BENCH_FOLDER];
    struct loading l = {.b = b};
    struct bench_row *packed = bench_add(b, "load", "load and pack");
    int rc = bench_repeat(b, packed, load_once, &l, e);
    if (!rc)
        packed->work.bytes =
            (double)model_gguf(b->model)->len + (double)model_packed_bytes(b->model);
    if (!rc)
        rc = bench_folder_make(b, folder, e);
    if (rc)
        return rc;
    l.packed = folder;
    rc = load_once(&l, e); /* leaves them there before it is freed */
    model_free(b->model);
    b->model = NULL;
    bench_folder_cool(folder);
    if (!rc)
        rc = bench_repeat(b, bench_add(b, "load", "load, packed already"), load_once, &l, e);
    bench_folder_remove(folder); /* what is mapped stays */
    return rc;
}

/* As long as the deepest row needs, and the model can. */
static int choose_context(struct bench *b, struct err *e)
{
    struct model *m;
    struct model_config c = {.kind = MODEL_GGUF, .file = b->o.file};
    int rc = model_open(&m, &c, e);
    if (rc)
        return rc;
    int trained = model_hparams(m)->context_train, deep = b->o.depth + BENCH_CHUNK;
    int least = BENCH_DECODE_DEEP + BENCH_STEPS, half = trained / 2 / PAGE_TOKENS * PAGE_TOKENS;
    b->context = deep > least ? deep : least;
    if (b->context > trained)
        b->context = trained;
    b->chunk = half < BENCH_CHUNK ? half : BENCH_CHUNK;
    model_free(m);
    if (b->chunk < BENCH_DECODE_AT)
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                       "%s: a context of %d tokens is too short to be measured", b->o.file,
                       trained);
    return 0;
}

static int load(struct bench *b, struct err *e)
{
    struct loading l = {.b = b};
    int rc = b->o.parts & BENCH_LOAD ? load_rows(b, e) : load_once(&l, e);
    if (rc)
        return rc;
    model_plan(b->model, b->chunk, BENCH_SEQUENCES, &b->sizes);
    count_products(b);
    /* Enough for the longest sequence, and for eight that are 2,048 tokens deep. */
    int deep = 8 * (BENCH_DECODE_DEEP / PAGE_TOKENS + 1), one = b->context / PAGE_TOKENS + 1;
    b->n_pages = b->chunk / PAGE_TOKENS + (one > deep ? one : deep);
    b->logits = mem_alloc((size_t)BENCH_SEQUENCES * (size_t)model_hparams(b->model)->n_vocab *
                          sizeof(float));
    if (!b->logits)
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for logits");
    return page_pool_new(&b->pool, b->n_pages, b->sizes.n_layer, b->sizes.slice_bytes, e);
}

/* The program's own reference, which is prose, as often as it takes. */
static int make_text(struct bench *b, struct err *e)
{
    struct buf text;
    buf_init(&text, TEXT_BYTES);
    int rc = job_docs_markdown(&text, e);
    while (!rc && b->text.n < b->context)
        rc = vocab_encode(model_vocab(b->model), text.data, text.len, 0, &b->text, e);
    buf_release(&text);
    return rc;
}

/* The pages that all sequences are copies of. */
static int fill_pages(struct bench *b, struct err *e)
{
    b->first = block_table_new(b->pool);
    struct forward_rows rows = {.tokens = b->text.ids, .n = b->chunk, .table = b->first};
    int rc = block_table_reserve(b->first, b->chunk, e);
    return rc ? rc : model_forward(b->model, &rows, 1, e);
}

int bench_sequence(struct bench *b, int n, int more, struct block_table **out, struct err *e)
{
    *out = block_table_new(b->pool);
    int rc = block_table_reserve(*out, n + more, e);
    for (int i = 0; !rc && i * PAGE_TOKENS < n; i++)
        page_copy(b->pool, (*out)->pages[i], b->first->pages[i % b->first->n_pages]);
    return rc;
}

/* ---- all of it ---- */

typedef int part_fn(struct bench *b, struct err *e);
static const struct {
    enum bench_part part;
    part_fn *run;
    int rows; /* for the share of the time */
} parts[] = {
    {BENCH_PREFILL, bench_prefill, 4},         {BENCH_DECODE, bench_decode, 10},
    {BENCH_GEMM, bench_gemm, KERN_TYPE_COUNT}, {BENCH_ATTENTION, bench_attention, 9},
    {BENCH_CODECS, bench_codecs, 3},           {BENCH_SPILL, bench_spill, 4},
};

int bench_run(struct bench *b, const struct bench_options *o, struct err *e)
{
    *b = (struct bench){.o = *o};
    b->rows = mem_need(BENCH_ROWS * sizeof(*b->rows));
    int n = o->parts & BENCH_LOAD ? 3 : 1;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        n += o->parts & parts[i].part ? parts[i].rows : 0;
    b->row_seconds = o->seconds / (n + 3);
    double peak_seconds = b->row_seconds < 0.6 ? 0.6 : b->row_seconds;
    if (getloadavg(b->load, 3) < 1)
        b->load[0] = 0;
    omp_set_num_threads(o->threads); /* of the load; the scratch of a model is for as many */
    b->team = team_new(o->threads);
    team_use(b->team);
    int rc = setup_kernels(&b->table, o->kernels, e);
    if (rc)
        return rc;
    peaks_init(&b->peaks, b->table.name, o->threads);
    rc = choose_context(b, e);
    if (!rc)
        rc = load(b, e);
    if (!rc)
        rc = make_text(b, e);
    if (!rc)
        rc = fill_pages(b, e);
    for (size_t i = 0; !rc && i < ARRAY_LEN(parts); i++) {
        if (!(o->parts & parts[i].part))
            continue;
        rc = peaks_measure(&b->peaks, peak_seconds, e);
        if (!rc)
            rc = parts[i].run(b, e);
    }
    return rc ? rc : peaks_measure(&b->peaks, peak_seconds, e);
}

void bench_release(struct bench *b)
{
    token_list_release(&b->text);
    block_table_free(b->first);
    page_pool_free(b->pool);
    model_free(b->model);
    free(b->logits);
    free(b->rows);
    team_free(b->team);
}

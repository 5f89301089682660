/* Pages of keys and values: how fast the codecs are, and what it takes to put a prefix away and to have it back. */
#include "pipeline/bench.h"

#include "stages/base/clock.h"
#include "stages/base/mem.h"
#include "stages/kv/store.h"
#include "stages/model/fill.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_US = 50 };

/* ---- codecs ---- */

struct coding {
    struct bench *b;
    struct codec *codec;
    enum codec_kind kind;
    bool shrinks;     /* then a page is shrunk, of a copy, before it is encoded */
    uint8_t *encoded; /* [n_pages][bound] */
    size_t bound, *size;
    uint8_t *page;
};

static int encode_pages(void *ctx, struct err *e)
{
    (void)e;
    struct coding *c = ctx;
    const struct block_table *t = c->b->first;
    for (int i = 0; i < t->n_pages; i++) {
        const void *page = page_data(c->b->pool, t->pages[i]);
        if (c->shrinks) {
            codec_shrink(c->codec, memcpy(c->page, page, page_pool_page_bytes(c->b->pool)));
            page = c->page;
        }
        c->size[i] = codec_encode(c->codec, c->kind, page, PAGE_TOKENS,
                                  c->encoded + (size_t)i * c->bound);
    }
    return 0;
}

static int decode_pages(void *ctx, struct err *e)
{
    struct coding *c = ctx;
    int rc = 0;
    for (int i = 0; !rc && i < c->b->first->n_pages; i++)
        rc = codec_decode(c->codec, c->kind, c->encoded + (size_t)i * c->bound, c->size[i],
                          c->page, PAGE_TOKENS, e);
    return rc;
}

static struct bench_row *coding_row(const struct coding *c, const char *verb)
{
    struct bench_row *r = bench_add(c->b, "codecs", "%s %s", codec_name(c->kind), verb);
    r->tokens = c->b->first->n_pages * PAGE_TOKENS;
    r->unit = "MB/s";
    r->amount = (double)c->b->first->n_pages * (double)page_pool_page_bytes(c->b->pool) / 1e6;
    return r;
}

int bench_codecs(struct bench *b, struct err *e)
{
    struct kv_shape shape = model_kv_shape(b->model);
    size_t n = (size_t)b->first->n_pages, page_bytes = page_pool_page_bytes(b->pool);
    struct coding c = {.b = b, .codec = codec_new(&shape), .bound = codec_bound(&shape)};
    c.encoded = mem_alloc(n * c.bound);
    c.size = mem_alloc(n * sizeof(*c.size));
    c.page = mem_aligned(page_bytes);
    int rc = c.encoded && c.size && c.page
                 ? 0
                 : err_set(e, REACH_JOB, ERR_NOMEM, "no memory for encoded pages");
    double all = b->row_seconds;
    b->row_seconds = all / 4; /* they are short, and many */
    for (int kind = 0; !rc && kind < CODEC_COUNT; kind++) {
        c.kind = (enum codec_kind)kind;
        c.shrinks = codec_shrinks(&shape, c.kind);
        struct bench_row *r = coding_row(&c, "encode");
        rc = bench_repeat(b, r, encode_pages, &c, e);
        size_t sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += c.size[i];
        r->factor = kind == CODEC_RAW ? 0 : (double)n * (double)page_bytes / (double)sum;
        if (!rc)
            rc = bench_repeat(b, coding_row(&c, "decode"), decode_pages, &c, e);
    }
    b->row_seconds = all;
    free(c.encoded);
    free(c.size);
    free(c.page);
    codec_free(c.codec);
    return rc;
}

/* ---- a prefix on disk ---- */

/* A store with a folder and a pool of its own: what it restores was not in memory. */
struct night {
    struct page_pool *pool;
    struct disk *disk;
    struct store *store;
    struct store_prompt *prompt;
    struct kv_counters counters;
    struct stability stability;
};

static int night_open(struct night *x, const struct bench *b, const char *folder, int tokens,
                      struct err *e)
{
    *x = (struct night){0};
    int rc = disk_open(&x->disk, &(struct disk_options){.folder = folder}, e);
    if (!rc)
        rc = page_pool_new(&x->pool, tokens / PAGE_TOKENS + 2, b->sizes.n_layer,
                           b->sizes.slice_bytes, e);
    struct store_options o = {.pool = x->pool,
                              .shape = model_kv_shape(b->model),
                              .reuse = true,
                              .codec = CODEC_SPLIT,
                              .keep = KEEP_ALL,
                              .n_vocab = model_hparams(b->model)->n_vocab,
                              .disk = x->disk,
                              .counters = &x->counters,
                              .stability = &x->stability};
    if (!rc)
        rc = store_open(&x->store, &o, e);
    return rc ? rc
              : store_hold(x->store, &x->prompt, b->text.ids, tokens, 0, PREFIX_DOCUMENT, e);
}

static void night_close(struct night *x)
{
    store_drop(x->prompt);
    store_close(x->store);
    disk_close(x->disk);
    page_pool_free(x->pool);
}

/* The prompt has its pages, and what the folder has of them is loaded. */
static int admit(struct night *x, struct err *e)
{
    int ready = -1;
    while (ready != 1) {
        if (ready < 0 && store_admit(x->store, x->prompt, x->prompt->keys.n_tokens, true) != 1)
            return err_set(e, REACH_JOB, ERR_BUG, "a pool that is empty takes no prompt");
        ready = store_ready(x->store, x->prompt);
        if (ready == 0)
            usleep(WAIT_US);
    }
    return 0;
}

static int compute(struct bench *b, struct night *x, int tokens, struct err *e)
{
    struct fill f = {.tokens = b->text.ids,
                     .n_tokens = tokens,
                     .pos = x->prompt->found,
                     .chunk = b->chunk,
                     .table = x->prompt->table,
                     .logits = b->logits};
    int rc = 0;
    while (!rc && f.pos < tokens)
        rc = fill_chunk(b->model, &f, e);
    return rc;
}

struct spill_rows {
    struct bench_row *compute, *spill, *restore;
};

static void take_time(struct bench_row *r, int64_t *since)
{
    int64_t now = clock_us();
    bench_sample(r, (double)(now - *since) / 1e6);
    *since = now;
}

/* One evening: compute, write; another: read. The numbers that come back must be those that went. */
static int spill_once(struct bench *b, const struct spill_rows *rows, const char *folder,
                      int tokens, struct err *e)
{
    struct night x;
    int rc = night_open(&x, b, folder, tokens, e);
    if (!rc)
        rc = admit(&x, e);
    int64_t at = clock_us();
    if (!rc)
        rc = compute(b, &x, tokens, e);
    if (!rc) {
        take_time(rows->compute, &at);
        store_computed(x.store, x.prompt, tokens);
        store_prompt_done(x.store, x.prompt, b->logits);
        store_drop(x.prompt);
        x.prompt = NULL;
        store_settle(x.store, true);
        take_time(rows->spill, &at);
    }
    night_close(&x);
    if (rc)
        return rc;
    bench_folder_cool(folder);
    at = clock_us();
    rc = night_open(&x, b, folder, tokens, e);
    if (!rc)
        rc = admit(&x, e);
    if (!rc)
        take_time(rows->restore, &at);
    size_t bytes = (size_t)model_hparams(b->model)->n_vocab * sizeof(float);
    if (!rc && (!x.prompt->has_logits || x.prompt->found != tokens ||
                memcmp(x.prompt->logits, b->logits, bytes) != 0))
        rc = err_set(e, REACH_JOB, ERR_IO, "%d of %d tokens came back from \"%s\"",
                     x.prompt->found, tokens, folder);
    night_close(&x);
    return rc;
}

int bench_spill(struct bench *b, struct err *e)
{
    char folder[BENCH_FOLDER];
    int tokens = b->context < b->o.prefix ? b->context : b->o.prefix, rc = 0;
    double bytes = (double)((tokens + PAGE_TOKENS - 1) / PAGE_TOKENS) *
                   (double)page_pool_page_bytes(b->pool);
    struct spill_rows rows = {bench_add(b, "spill", "compute %d tokens", tokens),
                              bench_add(b, "spill", "spill"), bench_add(b, "spill", "restore")};
    struct bench_row *const all[] = {rows.compute, rows.spill, rows.restore};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        all[i]->tokens = tokens;
        all[i]->unit = i == 0 ? "tokens/s" : "MB/s";
        all[i]->amount = i == 0 ? tokens : bytes / 1e6;
    }
    int64_t start = clock_us();
    do {
        rc = bench_folder_make(b, folder, e);
        if (rc)
            break;
        rc = spill_once(b, &rows, folder, tokens, e);
        bench_folder_remove(folder);
    } while (!rc && (double)(clock_us() - start) / 1e6 < 4 * b->row_seconds);
    if (!rc)
        rows.restore->factor = rows.compute->seconds[0] / rows.restore->seconds[0];
    return rc;
}

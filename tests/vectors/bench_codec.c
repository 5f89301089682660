/* How small and how fast the codecs of KV pages are, on pages of a real model.
 *
 *     bench_codec MODEL.gguf VECTORS.vec [REPEATS]
 *
 * The pages are those of the first 128 tokens of every prompt in VECTORS. Prints the ratio of raw to encoded
 * bytes, and the best speed of the repeats in bytes of raw pages: what the code can do on one core, when the
 * machine lets it.
 */
#include "stages/base/clock.h"
#include "stages/kv/codec.h"
#include "stages/model/model.h"
#include "tests/vectors/vector_file.h"

enum { PAGES = 2, MAX_PAGES = 64 };

static void need(int rc, const struct err *e)
{
    if (rc) {
        fprintf(stderr, "%s\n", e->msg);
        exit(1);
    }
}

/* Copies of the first pages of every prompt, one after another. */
static uint8_t *pages_of(const char *file, const char *vectors, struct kv_shape *shape, int *n)
{
    struct err e = {0};
    struct model *m;
    struct model_config c = {.kind = MODEL_GGUF, .file = strdup(file)};
    struct model_sizes z;
    struct kernels k;
    struct page_pool *pool;
    struct vector_file v;
    kernels_init(&k, kern_cpu_flags());
    vector_file_open(&v, vectors);
    need(model_open(&m, &c, &e), &e);
    need(model_load(m, &k, PAGES * PAGE_TOKENS, 1, &e), &e);
    model_plan(m, PAGES * PAGE_TOKENS, 1, &z);
    need(page_pool_new(&pool, PAGES, z.n_layer, z.slice_bytes, &e), &e);
    const struct hparams *h = model_hparams(m);
    *shape = (struct kv_shape){z.n_layer, h->n_kv_head, h->head_dim, z.slice_bytes};
    size_t page_bytes = (size_t)z.n_layer * z.slice_bytes;
    uint8_t *pages = malloc(MAX_PAGES * page_bytes);
    *n = 0;
    for (int i = 0; i < v.n_prompts && *n + PAGES <= MAX_PAGES; i++) {
        struct block_table *t = block_table_new(pool);
        struct forward_rows rows = {
            .tokens = v.prompts[i].ids, .n = PAGES * PAGE_TOKENS, .table = t};
        if (v.prompts[i].n >= rows.n) {
            need(block_table_reserve(t, rows.n, &e), &e);
            need(model_forward(m, &rows, 1, &e), &e);
            for (int j = 0; j < PAGES; j++, ++*n)
                for (int l = 0; l < z.n_layer; l++)
                    memcpy(pages + (size_t)*n * page_bytes + (size_t)l * z.slice_bytes,
                           page_slice(pool, t->pages[j], l), z.slice_bytes);
        }
        block_table_free(t);
    }
    printf("%s: %d pages of %zu bytes\n", h->name, *n, page_bytes);
    page_pool_free(pool);
    model_free(m);
    vector_file_close(&v);
    free(c.file);
    return pages;
}

static void bench(enum codec_kind kind, const struct kv_shape *shape, const uint8_t *pages,
                  int n, int repeats)
{
    struct err e = {0};
    struct codec *c = codec_new(shape);
    size_t page_bytes = (size_t)shape->n_layer * shape->slice_bytes, encoded = 0;
    uint8_t *out = malloc(codec_bound(shape)), *page = malloc(page_bytes);
    int64_t encode = INT64_MAX, decode = INT64_MAX; /* one page */
    for (int r = 0; r < repeats; r++) {
        for (int i = 0; i < n; i++) {
            int64_t start = clock_us();
            size_t size =
                codec_encode(c, kind, pages + (size_t)i * page_bytes, PAGE_TOKENS, out);
            int64_t middle = clock_us();
            need(codec_decode(c, kind, out, size, page, PAGE_TOKENS, &e), &e);
            int64_t end = clock_us();
            encode = middle - start < encode ? middle - start : encode;
            decode = end - middle < decode ? end - middle : decode;
            encoded += r == 0 ? size : 0;
        }
    }
    printf("%-8s ratio %.4f   encode %6.0f MB/s   decode %6.0f MB/s\n", codec_name(kind),
           (double)page_bytes * n / (double)encoded, (double)page_bytes / (double)encode,
           (double)page_bytes / (double)decode);
    free(out);
    free(page);
    codec_free(c);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_codec MODEL.gguf VECTORS.vec [REPEATS]\n");
        return 2;
    }
    int repeats = argc > 3 ? atoi(argv[3]) : 10, n;
    struct kv_shape shape;
    uint8_t *pages = pages_of(argv[1], argv[2], &shape, &n);
    for (int kind = 0; kind < CODEC_COUNT; kind++)
        bench((enum codec_kind)kind, &shape, pages, n, repeats < 1 ? 1 : repeats);
    free(pages);
    return 0;
}

/* How fast a model reads and writes on this machine, with every part as a run uses it.
 *
 *     bench_speed MODEL.gguf [THREADS [REPEATS]]
 *
 * Prints tokens per second of prefill (prompts of 512 tokens in one pass), of decode alone and of decode with
 * 8 sequences, each from position 512 on; best and median over the repeats. The best says what the code can do,
 * the median what the machine let it do.
 */
#include "stages/base/clock.h"
#include "stages/model/model.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 512, STEPS = 32, MAX_SEQS = 8, MAX_REPEATS = 100 };

struct bench {
    struct model *m;
    struct page_pool *pool;
    int32_t tokens[MAX_SEQS][PROMPT + STEPS];
    struct block_table *tables[MAX_SEQS];
    float *logits;
};

static void need(int rc, const struct err *e)
{
    if (rc) {
        fprintf(stderr, "%s\n", e->msg);
        exit(1);
    }
}

/* One pass over the next n tokens of the first n_seqs sequences. Returns seconds. */
static double pass(struct bench *b, int n_seqs, int pos, int n)
{
    struct err e = {0};
    struct forward_rows rows[MAX_SEQS];
    size_t n_vocab = (size_t)model_hparams(b->m)->n_vocab;
    for (int s = 0; s < n_seqs; s++)
        rows[s] = (struct forward_rows){.tokens = b->tokens[s],
                                        .pos = pos,
                                        .n = n,
                                        .table = b->tables[s],
                                        .want_logits = true,
                                        .logits = b->logits + (size_t)s * n_vocab};
    int64_t start = clock_us();
    need(model_forward(b->m, rows, n_seqs, &e), &e);
    return (double)(clock_us() - start) / 1e6;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *seconds, int n, int tokens)
{
    qsort(seconds, (size_t)n, sizeof(*seconds), by_size);
    printf("%-22s best %7.1f   median %7.1f tokens/s\n", what, tokens / seconds[0],
           tokens / seconds[n / 2]);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_speed MODEL.gguf [THREADS [REPEATS]]\n");
        return 2;
    }
    if (argc > 2)
        omp_set_num_threads(atoi(argv[2]));
    int repeats = argc > 3 ? atoi(argv[3]) : 5;
    repeats = repeats < 1 ? 1 : repeats > MAX_REPEATS ? MAX_REPEATS : repeats;
    struct err e = {0};
    static struct bench b;
    struct model_config c = {.kind = MODEL_GGUF, .file = argv[1]};
    struct kernels k;
    struct model_sizes sizes;
    kernels_init(&k, kern_cpu_flags());
    int64_t start = clock_us();
    need(model_open(&b.m, &c, &e), &e);
    need(model_load(b.m, &k, PROMPT, MAX_SEQS, &e), &e);
    model_plan(b.m, PROMPT, MAX_SEQS, &sizes);
    need(page_pool_new(&b.pool, MAX_SEQS * (PROMPT + STEPS + 63) / 64, sizes.n_layer,
                       sizes.slice_bytes, &e),
         &e);
    printf("%s, table %s, %d threads; opened and packed in %.2f s\n", model_hparams(b.m)->name,
           k.name, omp_get_max_threads(), (double)(clock_us() - start) / 1e6);
    int n_vocab = model_hparams(b.m)->n_vocab;
    b.logits = malloc((size_t)MAX_SEQS * (size_t)n_vocab * sizeof(float));
    double prefill[MAX_REPEATS], alone[MAX_REPEATS], eight[MAX_REPEATS];
    for (int s = 0; s < MAX_SEQS; s++) {
        for (int i = 0; i < PROMPT + STEPS; i++)
            b.tokens[s][i] = (int32_t)((i * 7919 + s * 104729) % (n_vocab - 256)) + 128;
        b.tables[s] = block_table_new(b.pool);
        need(block_table_reserve(b.tables[s], PROMPT + STEPS, &e), &e);
    }
    for (int s = 1; s < MAX_SEQS; s++) { /* KV of the others, untimed */
        struct forward_rows rows = {b.tokens[s], 0, PROMPT, b.tables[s], false, NULL, false};
        need(model_forward(b.m, &rows, 1, &e), &e);
    }
    for (int r = 0; r < repeats; r++) {
        prefill[r] = pass(&b, 1, 0, PROMPT);
        alone[r] = eight[r] = 0;
        for (int i = 0; i < STEPS; i++)
            alone[r] += pass(&b, 1, PROMPT + i, 1);
        for (int i = 0; i < STEPS; i++)
            eight[r] += pass(&b, MAX_SEQS, PROMPT + i, 1);
    }
    report("prefill, 512 tokens", prefill, repeats, PROMPT);
    report("decode, alone", alone, repeats, STEPS);
    report("decode, 8 sequences", eight, repeats, STEPS * MAX_SEQS);
    for (int s = 0; s < MAX_SEQS; s++)
        block_table_free(b.tables[s]);
    free(b.logits);
    page_pool_free(b.pool);
    model_free(b.m);
    return 0;
}

/* A fixed amount of a model's work, for an instrument that counts instructions (run_instructions.py).
 *
 *     forward_work MODEL.gguf prefill|decode|batch         one thread, the AVX2 table
 *     forward_work --compiler
 *
 * Prints how many tokens went through counted_pass(), which is all that is to be counted: 256 in one pass; or 32 one
 * by one, or 8 sequences of 8 tokens, behind a prompt of 256 that is not. Exit status 77: the CPU has no AVX2.
 */
#include "stages/model/model.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 256, MOST_SEQS = 8 };

static void need(int rc, const struct err *e)
{
    if (rc) {
        fprintf(stderr, "%s\n", e->msg);
        exit(1);
    }
}

int counted_pass(struct model *m, struct forward_rows *rows, int n, struct err *e);
__attribute__((noinline)) int counted_pass(struct model *m, struct forward_rows *rows, int n,
                                           struct err *e)
{
    int rc = model_forward(m, rows, n, e);
    __asm__ volatile(""); /* no tail call: the count ends when this returns */
    return rc;
}

struct work {
    const char *name;
    int seqs, steps; /* behind the prompt; steps 0: the prompt itself is counted */
};

static const struct work works[] = {{"prefill", 1, 0}, {"decode", 1, 32}, {"batch", 8, 8}};

static void run(struct model *m, const struct work *w)
{
    struct err e = {0};
    struct model_sizes sizes;
    struct page_pool *pool;
    struct forward_rows rows[MOST_SEQS];
    int32_t tokens[PROMPT + 64];
    int n_vocab = model_hparams(m)->n_vocab;
    float *logits = malloc((size_t)MOST_SEQS * (size_t)n_vocab * sizeof(*logits));
    for (int i = 0; i < PROMPT + 64; i++)
        tokens[i] = (i * 7919 + 31) % (n_vocab - 16);
    model_plan(m, PROMPT, MOST_SEQS, &sizes);
    need(page_pool_new(&pool, MOST_SEQS * (PROMPT / PAGE_TOKENS + 1), sizes.n_layer,
                       sizes.slice_bytes, &e),
         &e);
    for (int s = 0; s < w->seqs; s++) {
        rows[s] = (struct forward_rows){.tokens = tokens,
                                        .n = PROMPT,
                                        .table = block_table_new(pool),
                                        .want_logits = true,
                                        .logits = logits + (size_t)s * (size_t)n_vocab};
        need(block_table_reserve(rows[s].table, PROMPT + w->steps, &e), &e);
        need((w->steps ? model_forward : counted_pass)(m, &rows[s], 1, &e), &e);
        rows[s].n = 1;
    }
    for (int i = 0; i < w->steps; i++) {
        for (int s = 0; s < w->seqs; s++)
            rows[s].pos = PROMPT + i;
        need(counted_pass(m, rows, w->seqs, &e), &e);
    }
    printf("%d\n", w->steps ? w->seqs * w->steps : PROMPT);
    for (int s = 0; s < w->seqs; s++)
        block_table_free(rows[s].table);
    free(logits);
    page_pool_free(pool);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--compiler") == 0) {
#if defined(__clang__)
        printf("clang %d\n", __clang_major__);
#else
        printf("gcc %d\n", __GNUC__);
#endif
        return 0;
    }
    const struct work *w = NULL;
    for (size_t i = 0; argc == 3 && i < sizeof(works) / sizeof(works[0]); i++)
        if (strcmp(works[i].name, argv[2]) == 0)
            w = &works[i];
    if (!w) {
        fprintf(stderr, "usage: forward_work MODEL.gguf prefill|decode|batch\n");
        return 2;
    }
    if (!(kern_cpu_flags() & KERN_CPU_AVX2))
        return 77;
    omp_set_num_threads(1);
    struct err e = {0};
    struct model *m;
    struct kernels k;
    struct model_config c = {.kind = MODEL_GGUF, .file = argv[1]};
    kernels_init(&k, KERN_CPU_AVX2);
    need(model_open(&m, &c, &e), &e);
    need(model_load(m, &k, PROMPT, MOST_SEQS, &e), &e);
    run(m, w);
    model_free(m);
    return 0;
}

/* Compares the model's logits with those of an independent implementation (make_logits.py), in two ways:
 *
 *   in floats      products take their inputs as floats and KV pages are in single precision (exact_kernels.h):
 *                  all that is left is the order of sums. This shows that the forward pass is right: the same
 *                  most likely token at every position
 *   as shipped     inputs of products in 8 bits, or 16 near the end, and KV in half precision: this shows what
 *                  that costs
 *
 *     logits [--quick | --long] [--only NAME]
 *
 * Per position: KL(exact || ours) over the exact top tokens and one bucket for all others, in nats, at every
 * step-th position; and whether the most likely token is the same, at every position.
 * In floats, which is slow, the large models take their three shortest prompts; --long: all of them. --quick takes
 * one of them, as shipped only.
 */
#include "stages/model/model.h"
#include "tests/vectors/exact_kernels.h"
#include "tests/vectors/vector_file.h"

#include <limits.h>
#include <math.h>
#include <unistd.h>

struct bounds {
    double kl;     /* mean, at most */
    double greedy; /* share, at least */
};

/* A hundred times what is measured: 4e-9 at most, which is what the rounding of the file's numbers leaves. */
#define IN_FLOATS                                                                              \
    {                                                                                          \
        4e-7, 1                                                                                \
    }

#define TINY(arch, kl_shipped)                                                                 \
    {                                                                                          \
        "tiny " arch, "tests/vectors/tiny/" arch ".gguf", "tests/vectors/tiny/" arch ".vec",   \
            IN_FLOATS, {kl_shipped, 0.94}, NULL                                                \
    }

static const struct test {
    const char *name, *model, *vectors;
    struct bounds in_floats, shipped;
    const char *quick; /* prompt for --quick; NULL: all of them */
} tests[] = {
    TINY("llama", 1e-3),
    TINY("qwen2", 4e-3),
    TINY("qwen3", 4e-3),
    TINY("gemma3", 4e-4),
    {"smollm2",
     "samples/models/smollm2-135m-instruct-q4_1.gguf",
     "tests/vectors/smollm2.vec",
     IN_FLOATS,
     {0.0033, 0.96},
     "code"},
    {"gemma3-270m",
     "samples/models/gemma-3-270m-q4_k_m.gguf",
     "tests/vectors/gemma3.vec",
     IN_FLOATS,
     {0.0030, 0.96},
     "code"},
};
#undef TINY
#undef IN_FLOATS

enum {
    ROWS = 64,
    SHORT = 512 /* tokens of a prompt that large models take in floats without being told */
};

struct tally {
    double kl, worst;
    int kl_positions, same, positions;
    double lead; /* the greatest exact lead where the token differs */
};

static void die(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    exit(1);
}

/* KL of one position. */
static double divergence(const struct vector_file *v, const uint8_t *record,
                         const float *logits, uint8_t *is_top)
{
    double max = -INFINITY, sum = 0, rest = 0, kl = 0;
    for (int i = 0; i < v->n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int j = 0; j < v->top; j++)
        is_top[le32_get(record + 4 * j)] = 1;
    for (int i = 0; i < v->n_vocab; i++) {
        double p = exp(logits[i] - max);
        sum += p;
        rest += is_top[i] ? 0 : p;
    }
    double log_sum = max + log(sum);
    for (int j = 0; j < v->top; j++) {
        uint32_t id = le32_get(record + 4 * j);
        double logp = f32_at(record + 4 * (v->top + j));
        kl += exp(logp) * (logp - (logits[id] - log_sum));
        is_top[id] = 0;
    }
    double log_rest = f32_at(record + 8 * v->top);
    if (isfinite(log_rest))
        kl += exp(log_rest) * (log_rest - log(rest / sum));
    return kl;
}

static void count(struct tally *t, const struct vector_file *v, const struct vector_prompt *p,
                  int pos, const float *logits, uint8_t *is_top)
{
    int best = leading_first(logits, v->n_vocab);
    t->positions++;
    double lead = f32_at(p->lead + 4 * (size_t)pos);
    if (best == p->greedy[pos])
        t->same++;
    else
        t->lead = lead > t->lead ? lead : t->lead;
    if (pos % v->step != v->step - 1)
        return;
    double kl =
        divergence(v, p->expected + (size_t)(pos / v->step) * record_bytes(v), logits, is_top);
    t->kl += kl;
    t->kl_positions++;
    t->worst = kl > t->worst ? kl : t->worst;
}

/* All positions of a prompt: each row of a pass is a sequence of its own over one block table, because a pass
 * gives logits for the last row of a sequence only. */
static void run_prompt(struct model *m, struct page_pool *pool, const struct vector_file *v,
                       const struct vector_prompt *p, struct tally *t)
{
    struct err e = {0};
    struct block_table *table = block_table_new(pool);
    float *logits = malloc((size_t)ROWS * (size_t)v->n_vocab * sizeof(*logits));
    uint8_t *is_top = calloc((size_t)v->n_vocab, 1);
    struct forward_rows rows[ROWS];
    if (block_table_reserve(table, p->n, &e))
        die(&e);
    for (int begin = 0; begin < p->n; begin += ROWS) {
        int n = p->n - begin < ROWS ? p->n - begin : ROWS;
        for (int i = 0; i < n; i++)
            rows[i] = (struct forward_rows){.tokens = p->ids,
                                            .pos = begin + i,
                                            .n = 1,
                                            .table = table,
                                            .want_logits = true,
                                            .logits = logits + (size_t)i * (size_t)v->n_vocab};
        if (model_forward(m, rows, n, &e))
            die(&e);
        for (int i = 0; i < n; i++) {
            if (rows[i].failed) {
                err_set(&e, REACH_DOC, ERR_DEVICE, "%s: position %d failed", p->name,
                        begin + i);
                die(&e);
            }
            count(t, v, p, begin + i, rows[i].logits, is_top);
        }
    }
    block_table_free(table);
    free(logits);
    free(is_top);
}

/* 1: within the bounds. */
static int run_table(const struct test *test, const struct vector_file *v,
                     const struct kernels *k, const char *what, struct bounds bounds,
                     const char *only, int most)
{
    struct err e = {0};
    struct model *m;
    struct model_sizes sizes;
    struct page_pool *pool;
    struct model_config c = {.kind = MODEL_GGUF, .file = strdup(test->model)};
    if (model_open(&m, &c, &e))
        die(&e);
    model_plan(m, ROWS, ROWS, &sizes);
    if (model_load(m, k, ROWS, ROWS, &e) ||
        page_pool_new(&pool, 64, sizes.n_layer,
                      sizes.slice_bytes * (k->attn == attn_floats ? 2 : 1), &e))
        die(&e);
    char expected[HASH_HEX], digest[HASH_HEX];
    hash_hex(v->digest, expected);
    if (model_digest(m, digest, &e))
        die(&e);
    vector_file_need(strcmp(digest, expected) == 0, test->vectors,
                     "made for another model file");
    struct tally all = {0};
    for (int i = 0; i < v->n_prompts; i++) {
        if ((only && strcmp(only, v->prompts[i].name) != 0) || v->prompts[i].n > most)
            continue;
        struct tally t = {0};
        run_prompt(m, pool, v, &v->prompts[i], &t);
        printf("%s %s, %s: %d positions, mean KL %.3g, worst %.3g, greedy %.2f %%\n",
               test->name, what, v->prompts[i].name, t.positions, t.kl / t.kl_positions,
               t.worst, 100.0 * t.same / t.positions);
        all.kl += t.kl;
        all.kl_positions += t.kl_positions;
        all.same += t.same;
        all.positions += t.positions;
        all.worst = t.worst > all.worst ? t.worst : all.worst;
        all.lead = t.lead > all.lead ? t.lead : all.lead;
    }
    double kl = all.kl / all.kl_positions, greedy = (double)all.same / all.positions;
    int ok = kl <= bounds.kl && greedy >= bounds.greedy;
    printf("%s %s (%s): mean KL %.3g (bound %.3g), worst %.3g, greedy %.3f %% (%d of %d "
           "differ, widest exact lead %.3g)"
           ": %s\n",
           test->name, what, k->name, kl, bounds.kl, all.worst, 100 * greedy,
           all.positions - all.same, all.positions, all.lead, ok ? "ok" : "TOO FAR");
    fflush(stdout);
    page_pool_free(pool);
    model_free(m);
    free(c.file);
    return ok;
}

int main(int argc, char **argv)
{
    bool quick = false, whole = false;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--long") == 0)
            whole = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
    }
    struct kernels exact, shipped;
    kernels_init_float_inputs(&exact, kern_cpu_flags());
    exact.kv_store = kv_store_floats;
    exact.attn = attn_floats;
    kernels_init(&shipped, kern_cpu_flags());
    int passed = 0, failed = 0, skipped = 0;
    for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
        const struct test *t = &tests[i];
        if (only && strcmp(only, t->name) != 0)
            continue;
        int runs = quick && t->quick ? 1 : 2;
        if (access(t->model, R_OK) != 0) {
            printf("skip: %s is not here\n", t->model);
            skipped += runs;
            continue;
        }
        struct vector_file v;
        vector_file_open(&v, t->vectors);
        int ok = run_table(t, &v, &shipped, "as shipped", t->shipped, quick ? t->quick : NULL,
                           INT_MAX);
        if (runs == 2)
            ok += run_table(t, &v, &exact, "in floats", t->in_floats, NULL,
                            t->quick && !whole ? SHORT : INT_MAX);
        passed += ok;
        failed += runs - ok;
        vector_file_close(&v);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}

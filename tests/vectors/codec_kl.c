/* What the lossy codecs of KV pages cost: the same forward pass with exact pages and with pages that went through a
 * codec, on real text.
 *
 *     codec_kl [--quick | --long] [--only NAME]
 *
 * As a run does it: 64 tokens a pass; a page that is full is replaced by what its codec makes of it before the
 * next page is computed. So rows see lossy earlier pages, and their own page exact. All codecs and the exact pages
 * go through one pass side by side. From the third page on, at every 4th position: KL(exact || codec) in nats over
 * the whole vocabulary, and whether the most likely token is the same.
 *
 * Products take their inputs as floats: with inputs of 8 bits any change, however small, moves some of them to the
 * next integer, and that alone makes two runs differ by more than q8 does.
 *
 * The first 256 tokens of English, Dutch and a program; --quick: of the English only, and with sanitizers the
 * tiny model only; --long: all tokens of all prompts.
 */
#include "stages/kv/codec.h"
#include "stages/model/model.h"
#include "tests/vectors/vector_file.h"

#include <math.h>
#include <unistd.h>

enum {
    STEP = 4,
    SEQS = PAGE_TOKENS / STEP, /* of one arm in a pass: a pass gives logits of last rows only */
    ARMS = 5,                  /* exact, and the lossy codecs */
    FIRST_PAGE = 2,
    MAX_TOKENS = 2048,
    SHORT_TOKENS = 256
};

/* Mean KL at most; 0: only measured. */
static const double limits[CODEC_COUNT] = {
    [CODEC_Q8] = 5e-4, [CODEC_K8V4] = 0.009, [CODEC_Q4] = 0.025};

static const char *const prompts[] = {"prose", "dutch", "code"}; /* --quick: the first */

static const struct test {
    const char *name, *model, *vectors;
    bool tiny; /* all its prompts are short */
} tests[] = {
    {"tiny gemma3", "tests/vectors/tiny/gemma3.gguf", "tests/vectors/tiny/gemma3.vec", true},
    {"smollm2", "samples/models/smollm2-135m-instruct-q4_1.gguf", "tests/vectors/smollm2.vec",
     false},
    {"gemma3-270m", "samples/models/gemma-3-270m-q4_k_m.gguf", "tests/vectors/gemma3.vec",
     false},
};

struct arm {
    enum codec_kind kind; /* CODEC_RAW: the exact one */
    struct block_table *table;
    float *logits; /* [SEQS][n_vocab] */
    double kl;
    int same, positions;
    size_t raw_bytes, encoded_bytes;
};

struct bench {
    struct model *m;
    struct kernels k;
    struct page_pool *pool;
    struct codec *codec;
    uint8_t *encoded;
    size_t page_bytes;
    int n_vocab;
    struct arm arms[ARMS];
};

static void need(int rc, const struct err *e)
{
    if (rc) {
        fprintf(stderr, "%s\n", e->msg);
        exit(1);
    }
}

static void bench_open(struct bench *b, const char *file)
{
    struct err e = {0};
    struct model_config c = {.kind = MODEL_GGUF, .file = strdup(file)};
    struct model_sizes z;
    kernels_init_float_inputs(&b->k, kern_cpu_flags());
    need(model_open(&b->m, &c, &e), &e);
    need(model_load(b->m, &b->k, ARMS * PAGE_TOKENS, ARMS * SEQS, &e), &e);
    model_plan(b->m, ARMS * PAGE_TOKENS, ARMS * SEQS, &z);
    struct kv_shape shape = model_kv_shape(b->m);
    need(page_pool_new(&b->pool, 2 * ARMS * MAX_TOKENS / PAGE_TOKENS, z.n_layer, z.slice_bytes,
                       &e),
         &e);
    page_pool_use_small(b->pool, codec_slice_bytes(&shape, CODEC_Q8));
    const struct hparams *h = model_hparams(b->m);
    b->codec = codec_new(&shape);
    b->encoded = malloc(codec_bound(&shape));
    b->page_bytes = (size_t)z.n_layer * z.slice_bytes;
    b->n_vocab = h->n_vocab;
    for (int a = 0; a < ARMS; a++) {
        b->arms[a].kind = a == 0 ? CODEC_RAW : (enum codec_kind)(CODEC_Q8 + a - 1);
        b->arms[a].logits = malloc((size_t)SEQS * (size_t)b->n_vocab * sizeof(float));
    }
    free(c.file);
}

static void bench_close(struct bench *b)
{
    for (int a = 0; a < ARMS; a++)
        free(b->arms[a].logits);
    free(b->encoded);
    codec_free(b->codec);
    page_pool_free(b->pool);
    model_free(b->m);
}

static void pass(struct bench *b, const int32_t *ids, int pos)
{
    struct err e = {0};
    struct forward_rows rows[ARMS * SEQS];
    for (int i = 0; i < ARMS * SEQS; i++)
        rows[i] = (struct forward_rows){.tokens = ids,
                                        .pos = pos + i % SEQS * STEP,
                                        .n = STEP,
                                        .table = b->arms[i / SEQS].table,
                                        .want_logits = pos >= FIRST_PAGE * PAGE_TOKENS,
                                        .logits = b->arms[i / SEQS].logits +
                                                  (size_t)(i % SEQS) * (size_t)b->n_vocab};
    need(model_forward(b->m, rows, ARMS * SEQS, &e), &e);
    for (int i = 0; i < ARMS * SEQS; i++)
        vector_file_need(!rows[i].failed, "forward pass", "a value is not finite");
}

static double log_sum(const float *x, int n, double max)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return log(sum);
}

/* The sums of one position; p: scratch [n_vocab]. */
static void compare(struct bench *b, int seq, double *p)
{
    int n = b->n_vocab;
    const float *exact = b->arms[0].logits + (size_t)seq * (size_t)n;
    int best = leading_first(exact, n);
    double max = exact[best], log_z = log_sum(exact, n, max);
    for (int i = 0; i < n; i++)
        p[i] = exp(exact[i] - max - log_z);
    for (int a = 1; a < ARMS; a++) {
        struct arm *arm = &b->arms[a];
        const float *x = arm->logits + (size_t)seq * (size_t)n;
        double kl = log_sum(x, n, max) - log_z;
        for (int i = 0; i < n; i++)
            kl += p[i] * ((double)exact[i] - x[i]);
        arm->kl += kl;
        arm->same += leading_first(x, n) == best;
        arm->positions++;
    }
}

static void through_codec(struct bench *b, struct arm *arm, int page)
{
    struct err e = {0};
    page_id id = arm->table->pages[page];
    uint8_t *bytes = page_data(b->pool, id);
    if (arm->kind == CODEC_Q8) {
        codec_shrink(b->codec, bytes);
        page_shrink(b->pool, id);
    }
    size_t n = codec_encode(b->codec, arm->kind, bytes, PAGE_TOKENS, b->encoded);
    memset(bytes, 0xff, page_bytes(b->pool, id));
    need(codec_decode(b->codec, arm->kind, b->encoded, n, bytes, PAGE_TOKENS, &e), &e);
    arm->raw_bytes += b->page_bytes;
    arm->encoded_bytes += n;
}

static void run_prompt(struct bench *b, const struct vector_prompt *p, int max_tokens)
{
    struct err e = {0};
    int pages = (p->n < max_tokens ? p->n : max_tokens) / PAGE_TOKENS;
    double *scratch = malloc((size_t)b->n_vocab * sizeof(*scratch));
    for (int a = 0; a < ARMS; a++) {
        b->arms[a].table = block_table_new(b->pool);
        need(block_table_reserve(b->arms[a].table, pages * PAGE_TOKENS, &e), &e);
    }
    for (int page = 0; page < pages; page++) {
        pass(b, p->ids, page * PAGE_TOKENS);
        for (int a = 1; a < ARMS; a++)
            through_codec(b, &b->arms[a], page);
        for (int s = 0; page >= FIRST_PAGE && s < SEQS; s++)
            compare(b, s, scratch);
    }
    for (int a = 0; a < ARMS; a++)
        block_table_free(b->arms[a].table);
    free(scratch);
}

/* Among the first n_names of prompts[]; 0: any. */
static bool is_wanted(const char *name, int n_names)
{
    for (int i = 0; i < n_names; i++)
        if (strcmp(name, prompts[i]) == 0)
            return true;
    return n_names == 0;
}

static int run_test(const struct test *t, int max_tokens, int n_names)
{
    static struct bench b;
    struct vector_file v;
    int good = 0;
    b = (struct bench){0};
    vector_file_open(&v, t->vectors);
    bench_open(&b, t->model);
    for (int i = 0; i < v.n_prompts; i++)
        if (t->tiny || is_wanted(v.prompts[i].name, n_names))
            run_prompt(&b, &v.prompts[i], max_tokens);
    for (int a = 1; a < ARMS; a++) {
        const struct arm *arm = &b.arms[a];
        double kl = arm->kl / arm->positions, limit = limits[arm->kind];
        bool ok = kl >= 0 && (limit == 0 || kl <= limit);
        printf("%s %s: mean KL %.3g", t->name, codec_name(arm->kind), kl);
        if (limit > 0)
            printf(" (limit %.3g)", limit);
        printf(", greedy %.2f %% of %d, ratio %.3f: %s\n", 100.0 * arm->same / arm->positions,
               arm->positions, (double)arm->raw_bytes / (double)arm->encoded_bytes,
               ok ? "ok" : "TOO FAR");
        fflush(stdout);
        good += ok;
    }
    bench_close(&b);
    vector_file_close(&v);
    return good;
}

#ifdef SANITIZED
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

int main(int argc, char **argv)
{
    int max_tokens = SHORT_TOKENS, n_names = ARRAY_LEN(prompts);
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            n_names = 1;
        else if (strcmp(argv[i], "--long") == 0)
            max_tokens = MAX_TOKENS, n_names = 0;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
    }
    int passed = 0, failed = 0, skipped = 0;
    for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
        const struct test *t = &tests[i];
        if (only && strcmp(only, t->name) != 0)
            continue;
        if (sanitized && n_names == 1 && !t->tiny)
            continue;
        if (access(t->model, R_OK) != 0) {
            printf("skip: %s is not here\n", t->model);
            skipped += ARMS - 1;
            continue;
        }
        int good = run_test(t, max_tokens, n_names);
        passed += good;
        failed += ARMS - 1 - good;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}

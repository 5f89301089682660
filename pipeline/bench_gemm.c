/* Products alone: every type of weights, at the shape of the model's feed-forward matrix. */
#include "pipeline/bench.h"

#include "kernels/team.h"
#include "stages/base/le.h"
#include "stages/base/mem.h"

#include <stdlib.h>

/* Timed together, at least: clocks tell microseconds, and a small product takes few. */
static const double LEAST_OPS = 300e6;

struct product {
    const struct kernels *k;
    struct kern_weights w;
    struct kern_input in;
    float *out; /* [BENCH_CHUNK][n_out] */
    void *scratch;
    int times;
};

static int multiply(void *ctx, struct err *e)
{
    (void)e;
    const struct product *p = ctx;
    for (int i = 0; i < p->times; i++)
        p->k->matmul(p->out, (size_t)p->w.n_out, &p->w, &p->in, p->scratch);
    return 0;
}

/* ---- random weights ---- */

/* Where a block has its floats of 16 bits (of F32: the upper half), and which of their bits may have any value. With the
 * others set so they are 2^-7 to 2^-5 and of either sign. All other bytes of a block may have any value. */
static const struct {
    int at[2];
    uint16_t any, set;
} floats_of[KERN_TYPE_COUNT] = {
    [KERN_F32] = {{2, 2}, 0x80ff, 0x3c00},      [KERN_F16] = {{0, 0}, 0x87ff, 0x2000},
    [KERN_BF16] = {{0, 0}, 0x80ff, 0x3c00},     [KERN_Q4_0] = {{0, 0}, 0x87ff, 0x2000},
    [KERN_Q4_1] = {{0, 2}, 0x87ff, 0x2000},     [KERN_Q5_0] = {{0, 0}, 0x87ff, 0x2000},
    [KERN_Q5_1] = {{0, 2}, 0x87ff, 0x2000},     [KERN_Q8_0] = {{0, 0}, 0x87ff, 0x2000},
    [KERN_Q4_K] = {{0, 2}, 0x87ff, 0x2000},     [KERN_Q5_K] = {{0, 2}, 0x87ff, 0x2000},
    [KERN_Q6_K] = {{208, 208}, 0x87ff, 0x2000},
};

/* n bytes of blocks, n a multiple of 8. Marsaglia's xorshift. */
static void random_blocks(uint8_t *blocks, size_t n, enum kern_type t)
{
    uint64_t s = 1;
    for (size_t i = 0; i < n; i += 8) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        le64_put(blocks + i, s);
    }
    for (size_t i = 0; i < n; i += (size_t)kern_types[t].block_bytes)
        for (int j = 0; j < 2; j++) {
            uint8_t *p = blocks + i + floats_of[t].at[j];
            unsigned v = (le16_get(p) & floats_of[t].any) | floats_of[t].set;
            p[0] = (uint8_t)v;
            p[1] = (uint8_t)(v >> 8);
        }
}

/* n_out is a multiple of 32, as the feed-forward size of every model is. */
static void *random_weights(enum kern_type t, int n_out, int n_in)
{
    size_t n = kern_row_bytes(t, (size_t)n_in) * (size_t)n_out;
    uint8_t *file = mem_alloc(n);
    void *packed = mem_aligned(kern_packed_bytes(t, n_out, n_in));
    if (file && packed) {
        random_blocks(file, n, t);
        kern_pack(packed, file, t, n_out, n_in, 0, n_out);
    } else {
        free(packed);
        packed = NULL;
    }
    free(file);
    return packed;
}

/* ---- rows ---- */

static struct bench_row *add_row(struct bench *b, const struct product *p)
{
    const struct kern_type_info *type = &kern_types[p->w.type];
    struct bench_row *r =
        bench_add(b, "gemm", "gemm %s %d x %d", type->name, p->w.n_in, p->w.n_out);
    bool floats = type->block_values == 1;
    double ops = 2.0 * p->times * p->in.rows * p->w.n_in * p->w.n_out;
    *(floats ? &r->work.flops : &r->work.ops) = ops;
    r->tokens = p->in.rows;
    r->amount = ops / 1e9;
    r->unit = floats ? "GFLOP/s" : "GOP/s";
    return r;
}

static int gemm_of(struct bench *b, enum kern_type t, struct err *e)
{
    const struct hparams *h = model_hparams(b->model);
    int block = kern_types[t].block_values, rows = BENCH_CHUNK;
    int n_out = h->n_ff, n_in = (h->n_embd + block - 1) / block * block;
    size_t n = (size_t)rows * (size_t)n_in;
    float *x = mem_aligned(n * sizeof(*x));
    void *weights = random_weights(t, n_out, n_in);
    uint8_t bad[BENCH_CHUNK];
    struct product p = {.k = &b->table,
                        .w = {t, n_out, n_in, weights},
                        .in = {rows, n_in, x, mem_aligned(kern_input_bytes(rows, n_in))},
                        .out = mem_aligned((size_t)rows * (size_t)n_out * sizeof(float)),
                        .scratch = mem_aligned(kern_matmul_scratch(team_threads())),
                        .times = 1 + (int)(LEAST_OPS / (2.0 * (double)n * n_out))};
    int rc = 0;
    if (!x || !weights || !p.in.mem || !p.out || !p.scratch) {
        rc =
            err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a product of %d x %d", n_in, n_out);
    } else {
        bench_fill(x, n);
        b->table.prepare(&p.in, bad);
        rc = bench_repeat(b, NULL, multiply, &p, e);
        if (!rc)
            rc = bench_repeat(b, add_row(b, &p), multiply, &p, e);
    }
    free(x);
    free(weights);
    free(p.in.mem);
    free(p.out);
    free(p.scratch);
    return rc;
}

int bench_gemm(struct bench *b, struct err *e)
{
    int rc = 0;
    for (int t = 0; !rc && t < KERN_TYPE_COUNT; t++)
        rc = gemm_of(b, (enum kern_type)t, e);
    return rc;
}

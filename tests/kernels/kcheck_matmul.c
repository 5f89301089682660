/* Packing, preparing and products, for every type of weight. */
#include "tests/kernels/kcheck.h"

#include "kernels/cpu/input.h"

#include <math.h>

/* A product's shape and data. */
struct product_case {
    struct matrix weights;
    struct kern_input in;
    int kind;
    size_t ld;
    void *scratch;
};

static int random_width(enum kern_type t, int most)
{
    int per = kern_types[t].block_values, unit = per < 32 ? 32 : per;
    if (per == 1 && upto(2))
        return odd_size(most); /* float types take any width */
    return unit * (1 + upto(upto(4) ? 1 + 600 / unit : 1 + most / unit));
}

static void make_case(struct product_case *c, enum kern_type t, int rows, int scales)
{
    static void *scratch;
    if (!scratch)
        scratch = aligned_alloc(64, kern_matmul_scratch(8));
    int k = random_width(t, 2000), n = odd_size(150);
    matrix_make(&c->weights, t, n, k, scales);
    c->kind = upto(DATA_KINDS - 1);
    c->in = (struct kern_input){.rows = rows, .k = k};
    c->in.x = edge_floats(0, (size_t)rows * (size_t)k, c->kind);
    c->in.mem = edge_aligned(1, kern_input_bytes(rows, k));
    c->ld = (size_t)(n + upto(4));
    c->scratch = scratch;
}

static size_t out_bytes(const struct product_case *c)
{
    return ((size_t)(c->in.rows - 1) * c->ld + (size_t)c->weights.n_out) * sizeof(float);
}

static float *run_case(const struct product_case *c, const struct kernels *k, int slot)
{
    uint8_t bad[1024] = {0};
    struct kern_input in = c->in;
    k->prepare(&in, bad);
    float *out = guarded(slot, out_bytes(c), 4 * upto(16));
    k->matmul(out, c->ld, &c->weights.packed, &in, c->scratch);
    check_guards(slot, k->name);
    return out;
}

static int arg_of(void **state)
{
    return ((const struct kcheck_test *)*state)->arg;
}

/* Batch sizes around the groups of rows, few and many. */
static int random_rows(void)
{
    return upto(3) ? 1 + upto(13) : 1 + upto(80);
}

static void fast_matmul_equals_ref(const struct kernels *ref, const struct kernels *fast,
                                   enum kern_type t)
{
    need_fast();
    for (int round = 0; round < kcheck.rounds; round++) {
        struct product_case c;
        make_case(&c, t, random_rows(), upto(4));
        const float *want = run_case(&c, ref, 0);
        for (int i = 0; i < 3; i++) {
            int threads = (const int[]){1, 2, 5}[i];
            if (i && round % 4)
                continue;
            set_threads(threads);
            const float *got = run_case(&c, fast, 1);
            check_same(want, got, out_bytes(&c), "%d x %d, %d rows, data %d, %d threads",
                       c.weights.n_out, c.in.k, c.in.rows, c.kind, threads);
        }
        set_threads(2);
    }
}

static void matmul_fast_equals_ref(void **state)
{
    fast_matmul_equals_ref(&kcheck.ref, &kcheck.fast, (enum kern_type)arg_of(state));
}

static void float_inputs_fast_equals_ref(void **state)
{
    fast_matmul_equals_ref(&kcheck.ref_float, &kcheck.fast_float,
                           (enum kern_type)arg_of(state));
}

/* A row of a batch has the bytes that it has alone, whichever tile it fell into. */
static void rows_do_not_depend_on_their_batch(void **state)
{
    enum kern_type t = (enum kern_type)arg_of(state);
    for (int round = 0; round < kcheck.rounds / 4 + 1; round++) {
        struct product_case c;
        make_case(&c, t, 2 + upto(20), 0);
        const float *all = run_case(&c, &kcheck.fast, 0);
        size_t ld = c.ld, k = (size_t)c.in.k;
        for (int begin = 0, n; begin < c.in.rows; begin += n) {
            struct product_case part = c;
            n = 1 + upto(c.in.rows - begin);
            part.in.rows = n;
            part.in.x = c.in.x + (size_t)begin * k;
            const float *got = run_case(&part, &kcheck.fast, 1);
            for (int r = 0; r < n; r++)
                check_same(all + (size_t)(begin + r) * ld, got + (size_t)r * ld,
                           (size_t)c.weights.n_out * sizeof(float),
                           "row %d of %d in a batch of %d", begin + r, c.in.rows, n);
        }
    }
}

/* The int8 product against double: sums of exact terms; two roundings per block and term. */
static void add_int8_share(struct share *s, const struct product_case *c, const float *out,
                           int row, int col)
{
    const struct input_block *blocks = c->in.mem;
    int n_blocks = c->in.k / 32, r = row % ROW_GROUP;
    double sum = 0, size = 0;
    for (int b = 0; b < n_blocks; b++) {
        const struct input_block *a = blocks + (size_t)(row / ROW_GROUP) * (size_t)n_blocks + b;
        double part[2] = {0}, min = 0, n = 0;
        for (int k = 0; k < 32; k++) {
            struct weight w = matrix_weight(&c->weights, col, 32 * b + k);
            int q = a->q[k / 4][r][k % 4];
            part[k / 16] += w.d * w.q * q;
            min = w.m;
            n += q;
        }
        sum += ((part[0] + part[1]) + min * n) * a->d[r];
        size += (fabs(part[0]) + fabs(part[1]) + fabs(min * n)) * a->d[r];
    }
    double bound = (4 * n_blocks + 4) * 0x1p-24 * size + 0x1p-120;
    share_add(s, fabs(out[(size_t)row * c->ld + (size_t)col] - sum), bound);
}

static void add_float_share(struct share *s, const struct product_case *c, const float *out,
                            int row, int col)
{
    const float *x = c->in.x + (size_t)row * (size_t)c->in.k;
    double sum = 0, size = 0;
    for (int k = 0; k < c->in.k; k++) {
        struct weight w = matrix_weight(&c->weights, col, k);
        double value = w.d * w.q + w.m;
        sum += value * x[k];
        size += (fabs(w.d * w.q) + fabs(w.m)) * fabs((double)x[k]);
    }
    double bound = (c->in.k + 2) * 0x1p-24 * size + 0x1p-120;
    share_add(s, fabs(out[(size_t)row * c->ld + (size_t)col] - sum), bound);
}

static void matmul_ref_is_right(void **state)
{
    enum kern_type t = (enum kern_type)arg_of(state);
    bool quantised = kern_types[t].block_values > 1;
    struct share int8 = {0}, floats = {0};
    for (int round = 0; round < kcheck.rounds / 6 + 2; round++) {
        struct product_case c;
        make_case(&c, t, 1 + upto(8), 0);
        for (int i = 0; i < 2; i++) {
            const float *out = run_case(&c, i ? &kcheck.ref_float : &kcheck.ref, 0);
            for (int j = 0; j < 20; j++) {
                int row = upto(c.in.rows), col = upto(c.weights.n_out);
                if (quantised && !i)
                    add_int8_share(&int8, &c, out, row, col);
                else
                    add_float_share(&floats, &c, out, row, col);
            }
        }
    }
    if (quantised)
        share_report(&int8, "int8 inputs");
    share_report(&floats, "float inputs");
}

/* Dequantised rows are the formula rounded once. With scales of like size it is exact in double. */
static void dequantize_is_right(void **state)
{
    enum kern_type t = (enum kern_type)arg_of(state);
    for (int round = 0; round < kcheck.rounds / 4 + 1; round++) {
        struct matrix m;
        int k = random_width(t, 1000);
        matrix_make(&m, t, 1 + upto(5), k, 0);
        for (int i = 0; i < m.n_out; i++) {
            float *out = guarded(0, (size_t)k * sizeof *out, 4 * upto(16));
            kern_dequantize_row(out, m.file + (size_t)i * kern_row_bytes(t, (size_t)k), t, k);
            check_guards(0, "dequantize");
            for (int j = 0; j < k; j++) {
                struct weight w = matrix_weight(&m, i, j);
                if (out[j] != (float)(w.d * w.q + w.m))
                    fail_msg("row %d value %d: want %a, got %a", i, j, w.d * w.q + w.m,
                             (double)out[j]);
            }
        }
    }
}

/* Packing loses nothing: a product with a unit vector returns the dequantised weights. And its ranges
 * may be packed apart. */
static void pack_keeps_every_weight(void **state)
{
    enum kern_type t = (enum kern_type)arg_of(state);
    for (int round = 0; round < kcheck.rounds / 10 + 1; round++) {
        struct product_case c;
        make_case(&c, t, 1, 3);
        int n = c.weights.n_out, k = c.in.k, hot = upto(k), cut = (upto(n) + 8) / 16 * 16;
        size_t bytes = kern_packed_bytes(t, n, k);
        cut = cut < n ? cut : 0;
        void *parts = guarded(1, bytes, 0);
        kern_pack(parts, c.weights.file, t, n, k, cut, n);
        if (cut)
            kern_pack(parts, c.weights.file, t, n, k, 0, cut);
        check_guards(1, "pack");
        check_same(c.weights.packed.data, parts, bytes, "packed in two ranges");

        float *x = edge_floats(0, (size_t)k, 2), *row = edge_bytes(2, (size_t)k * sizeof *row);
        x[hot] = 1.0f;
        const float *out = run_case(&c, &kcheck.fast_float, 0);
        for (int i = 0; i < n; i++) {
            kern_dequantize_row(row, c.weights.file + (size_t)i * kern_row_bytes(t, (size_t)k),
                                t, k);
            if (out[i] != row[hot])
                fail_msg("output %d input %d: want %a, got %a", i, hot, (double)row[hot],
                         (double)out[i]);
        }
    }
}

static void prepare_fast_equals_ref(void **state)
{
    (void)state;
    need_fast();
    for (int round = 0; round < 4 * kcheck.rounds; round++) {
        int rows = 1 + upto(20), k = upto(3) ? 32 * (1 + upto(60)) : odd_size(500),
            kind = upto(DATA_KINDS);
        float *x = edge_floats(0, (size_t)rows * (size_t)k, kind);
        if (!upto(6))
            x[upto(rows * k)] = upto(2) ? NAN : -INFINITY;
        void *mem[2];
        uint8_t bad[2][32] = {{0}};
        for (int i = 0; i < 2; i++) {
            mem[i] = guarded(i, kern_input_bytes(rows, k), 0);
            struct kern_input in = {rows, k, x, mem[i]};
            set_threads(i ? 1 + upto(5) : 1);
            (i ? &kcheck.fast : &kcheck.ref)->prepare(&in, bad[i]);
            check_guards(i, "prepare");
        }
        check_same(bad[0], bad[1], sizeof bad[0], "bad flags");
        check_same(mem[0], mem[1], kern_input_bytes(rows, k), "%d rows of %d, data %d", rows, k,
                   kind);
    }
}

/* |x - d*q| <= d/2 and some roundings; and what is reported is what is not finite. */
static void prepare_ref_is_right(void **state)
{
    (void)state;
    struct share s = {0};
    for (int round = 0; round < kcheck.rounds; round++) {
        int rows = 1 + upto(9), k = 32 * (1 + upto(20)), poison = upto(3) ? -1 : upto(rows);
        float *x = edge_floats(0, (size_t)rows * (size_t)k, upto(DATA_KINDS));
        if (poison >= 0)
            x[poison * k + upto(k)] = upto(2) ? NAN : INFINITY;
        struct input_block *blocks = guarded(0, kern_input_bytes(rows, k), 0);
        struct kern_input in = {rows, k, x, blocks};
        uint8_t bad[16] = {0};
        kcheck.ref.prepare(&in, bad);
        for (int row = 0; row < rows; row++) {
            assert_int_equal(bad[row], row == poison);
            for (int i = 0; i < k; i++) {
                const struct input_block *a = blocks + row / ROW_GROUP * (k / 32) + i / 32;
                int r = row % ROW_GROUP, q = a->q[i % 32 / 4][r][i % 4];
                double d = a->d[r], want = row == poison ? 0 : x[row * k + i];
                share_add(&s, fabs(want - d * q), d * 0.50002 + (d == 0 ? 0x1p-90 : 0));
            }
        }
    }
    share_report(&s, "rounding to int8");
}

static float *run_remainder(const struct kernels *k, int slot, const float *x, int rows, int n)
{
    float *out = guarded(slot, (size_t)rows * (size_t)n * sizeof *out, 4 * upto(16));
    k->remainder(out, x, rows, n);
    check_guards(slot, k->name);
    return out;
}

static void remainder_fast_equals_ref(void **state)
{
    (void)state;
    need_fast();
    for (int round = 0; round < 4 * kcheck.rounds; round++) {
        int n = upto(3) ? 32 * (1 + upto(60)) : odd_size(500), kind = upto(DATA_KINDS);
        int rows = upto(8) ? 1 + upto(20) : 40000 / n + 2; /* so many are shared out */
        float *x = edge_floats(0, (size_t)rows * (size_t)n, kind);
        if (!upto(6))
            x[upto(rows * n)] = upto(2) ? NAN : -INFINITY;
        set_threads(1 + upto(5));
        const float *want = run_remainder(&kcheck.ref, 0, x, rows, n),
                    *got = run_remainder(&kcheck.fast, 1, x, rows, n);
        check_same(want, got, (size_t)rows * (size_t)n * sizeof *x, "%d rows of %d, data %d",
                   rows, n, kind);
    }
}

/* d*q and what is left make x again: what fma rounds away is 2^-24 of the remainder, which d bounds. And the
 * 8 bits of the remainder leave half a step of (d/2)/127, or what is below the cut. */
static void remainder_ref_is_right(void **state)
{
    (void)state;
    struct share whole = {0}, left = {0};
    for (int round = 0; round < kcheck.rounds; round++) {
        int rows = 1 + upto(9), n = 32 * (1 + upto(20)), poison = upto(3) ? -1 : upto(rows);
        float *x = edge_floats(0, (size_t)rows * (size_t)n, upto(DATA_KINDS));
        if (poison >= 0)
            x[poison * n + upto(n)] = upto(2) ? NAN : INFINITY;
        const float *out = run_remainder(&kcheck.ref, 1, x, rows, n);
        struct input_block *blocks[2];
        uint8_t bad[16] = {0};
        for (int i = 0; i < 2; i++) {
            blocks[i] = edge_aligned(1 + i, kern_input_bytes(rows, n));
            struct kern_input in = {rows, n, i ? out : x, blocks[i]};
            kcheck.ref.prepare(&in, bad);
        }
        for (int row = 0; row < rows; row++) {
            for (int i = 0; i < n; i++) {
                size_t at = (size_t)(row / ROW_GROUP) * (size_t)(n / 32) + (size_t)i / 32;
                const struct input_block *a = blocks[0] + at, *b = blocks[1] + at;
                int r = row % ROW_GROUP;
                double d = a->d[r], want = row == poison ? 0 : x[row * n + i];
                double high = d * a->q[i % 32 / 4][r][i % 4],
                       low = (double)b->d[r] * b->q[i % 32 / 4][r][i % 4];
                share_add(&whole, fabs(want - high - out[row * n + i]),
                          fabs(want - high) * 0x1p-24 + 0x1p-149);
                share_add(&left, fabs(want - high - low),
                          d * 0.50002 * 0.50002 / 127 + 0x1p-90);
            }
        }
    }
    share_report(&whole, "8 bits and the remainder");
    share_report(&left, "rounding to 16 bits");
}

int kcheck_matmul_tests(struct kcheck_test *list, int n)
{
    n = kcheck_add(list, n, prepare_ref_is_right, 0, "prepare: ref is right");
    n = kcheck_add(list, n, prepare_fast_equals_ref, 0, "prepare: fast equals ref");
    n = kcheck_add(list, n, remainder_ref_is_right, 0, "remainder: ref is right");
    n = kcheck_add(list, n, remainder_fast_equals_ref, 0, "remainder: fast equals ref");
    for (int t = 0; t < KERN_TYPE_COUNT; t++) {
        const char *name = kern_types[t].name;
        n = kcheck_add(list, n, dequantize_is_right, t, "dequantize %s: right", name);
        n = kcheck_add(list, n, pack_keeps_every_weight, t, "pack %s: keeps every weight",
                       name);
        n = kcheck_add(list, n, matmul_ref_is_right, t, "matmul %s: ref is right", name);
        n = kcheck_add(list, n, matmul_fast_equals_ref, t, "matmul %s: fast equals ref", name);
        n = kcheck_add(list, n, float_inputs_fast_equals_ref, t,
                       "matmul %s, float inputs: fast equals ref", name);
        n = kcheck_add(list, n, rows_do_not_depend_on_their_batch, t,
                       "matmul %s: rows do not see their batch", name);
    }
    return n;
}

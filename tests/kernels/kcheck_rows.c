/* Ops over rows: norms, rotation, gates, sums, softmax. */
#include "tests/kernels/kcheck.h"

#include <math.h>

/* The ops with one shape of arguments for all: out [rows][ld] from x, y [rows][ld]. */
enum op {
    RMS_NORM,
    ROPE_PAIRS,
    ROPE_HALVES,
    SILU_MUL,
    GELU_MUL,
    ADD,
    SCALE,
    ADD_BIAS,
    SOFTMAX,
    OPS
};

static const char *const op_names[OPS] = {"rms_norm", "rope of pairs", "rope of halves",
                                          "silu_mul", "gelu_mul",      "add",
                                          "scale",    "add_bias",      "softmax"};

struct rows_case {
    enum op op;
    int rows, n, heads, rot, kind;
    size_t ld;
    const float *x, *y, *angles;
    bool in_place; /* of the gates and norms: out is x */
};

static void make_case(struct rows_case *c, enum op op)
{
    *c = (struct rows_case){.op = op, .rows = 1 + upto(6), .n = odd_size(1200), .heads = 1};
    c->kind = upto(DATA_KINDS);
    if (op == ROPE_PAIRS || op == ROPE_HALVES) {
        int head_dim = 2 * odd_size(130);
        c->heads = 1 + upto(4);
        c->rot = upto(3) ? head_dim : 2 * (1 + upto(head_dim / 2));
        c->n = c->heads * head_dim;
        c->angles = edge_floats(2, (size_t)c->rows * (size_t)c->rot, 0);
    }
    if (op == SOFTMAX)
        c->rows = 1;
    c->ld = (size_t)(c->n + upto(9));
    c->in_place = upto(2);
    size_t size = (size_t)(c->rows - 1) * c->ld + (size_t)c->n;
    c->x = edge_floats(0, size, c->kind);
    c->y = edge_floats(1, op == RMS_NORM || op == ADD_BIAS ? (size_t)c->n : size,
                       upto(2) ? 0 : c->kind);
}

static size_t out_bytes(const struct rows_case *c)
{
    return ((size_t)(c->rows - 1) * c->ld + (size_t)c->n) * sizeof(float);
}

/* Ops in place start from a copy of x. The gap between n and ld is x's there, else 0xaa. */
static float *run_case(const struct rows_case *c, const struct kernels *k, int slot)
{
    float *out = guarded(slot, out_bytes(c), 4 * upto(16));
    const float *in = c->x;
    bool copies = c->op != RMS_NORM && c->op != SILU_MUL && c->op != GELU_MUL;
    if (copies || c->in_place) {
        memcpy(out, c->x, out_bytes(c));
        in = out;
    }
    int head_dim = c->n / c->heads;
    switch (c->op) {
    case RMS_NORM:
        k->rms_norm(out, c->ld, in, c->ld, c->y, c->rows, c->n, 1e-5f);
        break;
    case ROPE_PAIRS:
    case ROPE_HALVES:
        k->rope(out, c->ld, c->rows, c->heads, head_dim, c->rot, c->op == ROPE_HALVES,
                c->angles);
        break;
    case SILU_MUL:
        k->silu_mul(out, in, c->y, c->ld, c->rows, c->n);
        break;
    case GELU_MUL:
        k->gelu_mul(out, in, c->y, c->ld, c->rows, c->n);
        break;
    case ADD:
        k->add(out, c->y, c->ld, c->rows, c->n);
        break;
    case SCALE:
        k->scale(out, c->y[0], c->ld, c->rows, c->n);
        break;
    case ADD_BIAS:
        k->add_bias(out, c->y, c->ld, c->rows, c->n);
        break;
    default:
        k->softmax(out, c->n);
    }
    check_guards(slot, k->name);
    return out;
}

static void rows_fast_equals_ref(void **state)
{
    enum op op = (enum op)((const struct kcheck_test *)*state)->arg;
    need_fast();
    for (int round = 0; round < 8 * kcheck.rounds; round++) {
        struct rows_case c;
        make_case(&c, op);
        set_threads((const int[]){1, 2, 5}[upto(3)]);
        const float *want = run_case(&c, &kcheck.ref, 0), *got = run_case(&c, &kcheck.fast, 1);
        check_same(want, got, out_bytes(&c), "%d rows of %d, data %d", c.rows, c.n, c.kind);
    }
}

/* Enough rows that the fast table shares them out. */
static void many_rows_equal_few(void **state)
{
    enum op op = (enum op)((const struct kcheck_test *)*state)->arg;
    for (int round = 0; round < kcheck.rounds / 20 + 1; round++) {
        struct rows_case c;
        make_case(&c, op);
        if (c.rows == 1 && op >= SOFTMAX)
            return;
        c.rows = 40000 / c.n + 2;
        size_t size = (size_t)(c.rows - 1) * c.ld + (size_t)c.n;
        c.x = edge_floats(0, size, c.kind);
        if (op != RMS_NORM && op != ADD_BIAS)
            c.y = edge_floats(1, size, 0);
        if (c.rot)
            c.angles = edge_floats(2, (size_t)c.rows * (size_t)c.rot, 0);
        set_threads(1);
        const float *want = run_case(&c, &kcheck.fast, 0);
        for (int i = 0; i < 2; i++) {
            set_threads(i ? 5 : 2);
            check_same(want, run_case(&c, &kcheck.fast, 1), out_bytes(&c), "%d rows of %d",
                       c.rows, c.n);
        }
    }
}

/* Formula of output (row, i) in double, and the bound on the error of the floats. */
static double formula(const struct rows_case *c, int row, int i, double *bound)
{
    const float *x = c->x + (size_t)row * c->ld, *y = c->y + (size_t)row * c->ld;
    const double eps = 0x1p-24;
    double g = x[i], sum = 0, z, want;
    int head_dim = c->n / c->heads, half = c->rot / 2, at = i % head_dim;
    switch (c->op) {
    case RMS_NORM: /* sums of squares have no cancellation: n/16 + 4 roundings, halved by the root */
        for (int j = 0; j < c->n; j++)
            sum += (double)x[j] * x[j];
        want = g / sqrt(sum / c->n + (double)1e-5f) * c->y[i];
        *bound = (c->n / 32.0 + 10) * eps * fabs(want);
        return want;
    case ROPE_PAIRS:
    case ROPE_HALVES: {
        if (at >= c->rot)
            return *bound = 0, g;
        bool neox = c->op == ROPE_HALVES, second = neox ? at >= half : at % 2;
        int angle = neox ? at % half : at / 2,
            other = neox ? (second ? -half : half) : (second ? -1 : 1);
        double co = c->angles[row * c->rot + angle],
               si = c->angles[row * c->rot + half + angle];
        double a = g * co, b = x[i + other] * si;
        *bound = 2 * eps * (fabs(a) + fabs(b));
        return second ? a + b : a - b;
    }
    case SILU_MUL:
    case GELU_MUL:
        z = c->op == SILU_MUL ? -g : -2 * sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        want = g / (1 + exp(z)) * y[i];
        /* exp of a rounded z; past 88 and below -69 it is cut, where little is left of it */
        *bound = (8 + 4 * fabs(z)) * eps * fabs(want) + fabs(g * y[i]) * (z > 87    ? 1e-37
                                                                          : z < -68 ? 1e-29
                                                                                    : 0);
        return want;
    case ADD:
    case ADD_BIAS:
        want = g + (c->op == ADD ? y[i] : c->y[i]);
        *bound = eps * fabs(want);
        return want;
    case SCALE:
        want = g * c->y[0];
        *bound = eps * fabs(want);
        return want;
    default: { /* SOFTMAX; the rounding of x - max moves exp by as much */
        double top = -INFINITY;
        for (int j = 0; j < c->n; j++)
            top = fmax(top, x[j]);
        for (int j = 0; j < c->n; j++)
            sum += exp(x[j] - top);
        want = exp(g - top) / sum;
        *bound = (c->n / 16.0 + 12 + 2 * fmin(fabs(g - top), 100)) * eps * want + c->n * 2e-30;
        return want;
    }
    }
}

static void rows_ref_is_right(void **state)
{
    enum op op = (enum op)((const struct kcheck_test *)*state)->arg;
    struct share s = {0};
    for (int round = 0; round < 2 * kcheck.rounds; round++) {
        struct rows_case c;
        make_case(&c, op);
        const float *out = run_case(&c, &kcheck.ref, 0);
        for (int i = 0; i < 10; i++) {
            int row = upto(c.rows), col = upto(c.n);
            double bound, want = formula(&c, row, col, &bound);
            share_add(&s, fabs(out[(size_t)row * c.ld + (size_t)col] - want), bound + 0x1p-140);
        }
    }
    share_report(&s, op_names[op]);
}

static void softmax_takes_masked_values(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        float *x = edge_floats(0, 37, 0);
        for (int j = 0; j < 37; j += 3)
            x[j] = -INFINITY;
        (i ? &kcheck.fast : &kcheck.ref)->softmax(x, 37);
        for (int j = 0; j < 37; j++)
            assert_true(j % 3 ? x[j] > 0 : x[j] == 0);
    }
}

int kcheck_rows_tests(struct kcheck_test *list, int n)
{
    for (int op = 0; op < OPS; op++) {
        n = kcheck_add(list, n, rows_ref_is_right, op, "%s: ref is right", op_names[op]);
        n = kcheck_add(list, n, rows_fast_equals_ref, op, "%s: fast equals ref", op_names[op]);
        if (op < SOFTMAX)
            n = kcheck_add(list, n, many_rows_equal_few, op, "%s: threads do not matter",
                           op_names[op]);
    }
    n = kcheck_add(list, n, softmax_takes_masked_values, 0, "softmax: takes masked values");
    return n;
}

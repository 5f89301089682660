/* The arithmetic has not moved: digests of what the reference returns for fixed data.
 *
 * Tables that agree with each other may still both have changed, and with them every answer that was
 * given before. These digests hold on every machine, compiler and level of optimisation. Whoever
 * changes one on purpose changes the arithmetic's version in the keys of stored pages too. */
#include "tests/kernels/kcheck.h"

#include <math.h>

static uint64_t digest_add(uint64_t h, const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 1099511628211u;
    return h;
}

static uint64_t digest(const void *p, size_t n)
{
    return digest_add(14695981039346656037u, p, n);
}

static void check_digest(const char *what, uint64_t got, uint64_t want)
{
    if (got != want)
        fail_msg("%s: digest is 0x%016llx, was 0x%016llx", what, (unsigned long long)got,
                 (unsigned long long)want);
}

static void products_have_not_moved(void **state)
{
    (void)state;
    enum { ROWS = 7, N = 19, K = 512 };
    static const uint64_t want[KERN_TYPE_COUNT][2] = {
        [KERN_F32] = {0x075fb4a2875f191c, 0x075fb4a2875f191c},
        [KERN_F16] = {0x625856ca9633687f, 0x625856ca9633687f},
        [KERN_BF16] = {0xcccc954bb3488d2d, 0xcccc954bb3488d2d},
        [KERN_Q4_0] = {0x9d143328e25502ba, 0x3162823021feeab0},
        [KERN_Q4_1] = {0x72bd6667e5becbe3, 0x0a1159c6bfa1d135},
        [KERN_Q5_0] = {0xaf5bdb77969fabd6, 0x14581a1b0edcab23},
        [KERN_Q5_1] = {0xb7d2b15e5b66feb4, 0xa5b3a766bdf7e365},
        [KERN_Q8_0] = {0x0f47a12090a85211, 0x949f70f79368ced8},
        [KERN_Q4_K] = {0x20d23ebd8e2ee3a5, 0xefe8cbd19b4649b1},
        [KERN_Q5_K] = {0x6fed4d26b269f2ff, 0x94e73bf370cfa235},
        [KERN_Q6_K] = {0x6eecbe6cec83683d, 0x2856e8b4dfdeeca1},
    };
    void *scratch = aligned_alloc(64, kern_matmul_scratch(2));
    for (int t = 0; t < KERN_TYPE_COUNT; t++) {
        kcheck.state = 12345;
        struct matrix m;
        matrix_make(&m, (enum kern_type)t, N, K, 0);
        float *x = edge_floats(0, ROWS * K, 1), out[ROWS * N];
        uint8_t bad[ROWS];
        struct kern_input in = {ROWS, K, x, edge_aligned(1, kern_input_bytes(ROWS, K))};
        kcheck.ref.prepare(&in, bad);
        kcheck.ref.matmul(out, N, &m.packed, &in, scratch);
        check_digest(kern_types[t].name, digest(out, sizeof out), want[t][0]);
        kcheck.ref_float.matmul(out, N, &m.packed, &in, scratch);
        check_digest("with float inputs", digest(out, sizeof out), want[t][1]);
    }
    free(scratch);
}

static void remainders_have_not_moved(void **state)
{
    (void)state;
    enum { N = 300 };
    float out[N];
    kcheck.state = 12345;
    kcheck.ref.remainder(out, edge_floats(0, N, 1), 1, N);
    check_digest("remainder", digest(out, sizeof out), 0x33dc44cc0c33b8df);
}

static void rows_have_not_moved(void **state)
{
    (void)state;
    enum { N = 300 };
    const struct kernels *k = &kcheck.ref;
    kcheck.state = 12345;
    float *x = edge_floats(0, N, 0), *y = edge_floats(1, N, 0), out[N];
    for (int i = 0; i < N; i++)
        x[i] *= 4;
    k->rms_norm(out, N, x, N, y, 1, N, 1e-6f);
    check_digest("rms_norm", digest(out, sizeof out), 0x0c7dbe0781617c8c);
    k->silu_mul(out, x, y, N, 1, N);
    check_digest("silu_mul", digest(out, sizeof out), 0x12e2fb00ce37a186);
    k->gelu_mul(out, x, y, N, 1, N);
    check_digest("gelu_mul", digest(out, sizeof out), 0x84bfaf29d2b4680e);
    memcpy(out, x, sizeof out);
    k->softmax(out, N);
    check_digest("softmax", digest(out, sizeof out), 0x1d4d4f62cef97b93);
    for (int i = 0; i < N; i++)
        out[i] = kern_exp(x[i] * 5);
    check_digest("exp", digest(out, sizeof out), 0xa600d2bb4539f951);
}

static void rotation_has_not_moved(void **state)
{
    (void)state;
    enum { HEADS = 3, D = 64 };
    double freq[D / 2];
    float angles[D], x[HEADS * D];
    uint64_t h = digest("", 0);
    kern_rope_freqs(freq, D, 10000);
    check_digest("frequencies", digest(freq, sizeof freq), 0x25faa57b9ac5d08d);
    for (int pos = 0; pos < 100000; pos += 777) {
        kern_rope_angles(angles, freq, D, pos);
        h = digest_add(h, angles, sizeof angles);
    }
    check_digest("angles", h, 0xa6a059d71bcca63b);
    for (int neox = 0; neox < 2; neox++) {
        kcheck.state = 12345;
        fill(x, HEADS * D, 0);
        kcheck.ref.rope(x, HEADS * D, 1, HEADS, D, D, neox, angles);
        check_digest(neox ? "rope of halves" : "rope of pairs", digest(x, sizeof x),
                     neox ? 0xd2c3a9c7d575c117 : 0xe106d1c82830a0e6);
    }
}

static void attention_has_not_moved(void **state)
{
    (void)state;
    enum { D = 32, LEN = 150, ROWS = 5, HEADS = 4, KV = 2 };
    kcheck.state = 12345;
    float *k = edge_floats(0, LEN * KV * D, 0), *v = edge_floats(1, LEN * KV * D, 0);
    float *q = edge_floats(2, ROWS * HEADS * D, 0), out[ROWS * HEADS * D];
    void *slices[3];
    const void *seen[3];
    uint8_t bad[LEN];
    size_t bytes = kern_page_slice_bytes(KV, D);
    for (int i = 0; i < 3; i++)
        seen[i] = slices[i] = memset(edge_aligned(3 + i, bytes), 0, bytes);
    kcheck.ref.kv_store(slices, 0, k, v, KV * D, LEN, KV, D, bad);
    uint64_t h = digest("", 0);
    for (int i = 0; i < 3; i++)
        h = digest_add(h, slices[i], bytes);
    check_digest("pages", h, 0xe7bd8a65dfe899d9);
    struct kern_attn_rows c = {.out = out,
                               .q = q,
                               .ld_out = HEADS * D,
                               .ld_q = HEADS * D,
                               .slices = seen,
                               .pos = LEN - ROWS,
                               .rows = ROWS};
    for (c.window = 0; c.window < 80; c.window += 70) {
        kcheck.ref.attn(&c, 1, HEADS, KV, D, NULL);
        check_digest(c.window ? "windowed attention" : "attention", digest(out, sizeof out),
                     c.window ? 0x517b46c01318644b : 0xb640a6834736d371);
    }
    c.window = 0;
    for (c.q8_pages = 0; c.q8_pages < 2; c.q8_pages++)
        random_q8_page(slices[c.q8_pages], KV, D, 0.02f);
    kcheck.ref.attn(&c, 1, HEADS, KV, D, NULL);
    check_digest("attention over pages in 8 bits", digest(out, sizeof out), 0xb68c043d886bed96);
}

int kcheck_pinned_tests(struct kcheck_test *list, int n)
{
    n = kcheck_add(list, n, products_have_not_moved, 0, "pinned: products");
    n = kcheck_add(list, n, remainders_have_not_moved, 0, "pinned: remainders");
    n = kcheck_add(list, n, rows_have_not_moved, 0, "pinned: rows");
    n = kcheck_add(list, n, rotation_has_not_moved, 0, "pinned: rotation");
    n = kcheck_add(list, n, attention_has_not_moved, 0, "pinned: attention");
    return n;
}

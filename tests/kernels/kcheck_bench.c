/* Times of every op: the best of many calls, beside a peak of the machine taken in the same moments.
 *
 * Products and attention of 512 rows are compared with the peak of their instruction, few rows with the
 * bytes per second that a plain read of memory reaches: their weights come from copies that no cache holds. */
#include "kernels/peak.h"
#include "tests/kernels/kcheck.h"

#include <math.h>
#include <omp.h>
#include <time.h>

/* One thread's own time, which a busy machine disturbs less; with more threads only the clock tells. */
static double now(void)
{
    struct timespec t;
    clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need_memory(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    if (!p) {
        fprintf(stderr, "kcheck: no memory\n");
        exit(1);
    }
    memset(p, 0, n);
    return p;
}

static float *normal(size_t n)
{
    float *x = need_memory(n * sizeof *x);
    fill(x, n, 0);
    return x;
}

/* Best seconds of one call of body(arg) and the best peak seen meanwhile, over some 0.2 s. */
struct timing {
    double seconds, peak;
};

typedef void body_fn(void *arg);
typedef double peak_fn(void);

static struct timing time_body(body_fn *body, void *arg, peak_fn *peak)
{
    struct timing best = {1e9, 0};
    body(arg); /* pages in, caches warm */
    double start = now();
    for (int i = 0; i < 3 || now() - start < 0.2; i++) {
        double t = now();
        body(arg);
        t = now() - t;
        best.seconds = t < best.seconds ? t : best.seconds;
        if (peak && i % 4 == 0) {
            double p = peak();
            best.peak = p > best.peak ? p : best.peak;
        }
    }
    return best;
}

/* Of one thread, in 1e9 per second of its own time. */
static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double peak_byte_products(void)
{
    struct kern_peaks p;
    kern_peaks_init(&p, kcheck.fast.name);
    double t = thread_seconds(), n = p.bytes();
    return n / (thread_seconds() - t) / 1e9;
}

static double peak_float_products(void)
{
    struct kern_peaks p;
    kern_peaks_init(&p, kcheck.fast.name);
    double t = thread_seconds(), n = p.floats();
    return n / (thread_seconds() - t) / 1e9;
}

static double peak_memory_read(const void *mem, size_t n)
{
    struct kern_peaks p;
    kern_peaks_init(&p, kcheck.fast.name);
    double t = thread_seconds();
    p.read(mem, n);
    return (double)n / (thread_seconds() - t) / 1e9;
}

static double memory_peak(void)
{
    static void *mem;
    enum { SIZE = 256 << 20 };
    if (!mem)
        mem = need_memory(SIZE);
    double best = 0;
    for (int i = 0; i < 3; i++) {
        double total = 0;
#pragma omp parallel reduction(+ : total)
        {
            size_t n = SIZE / (size_t)omp_get_num_threads() / 512 * 512;
            total += peak_memory_read((uint8_t *)mem + n * (size_t)omp_get_thread_num(), n);
        }
        best = total > best ? total : best;
    }
    return best;
}

/* ---- products ---- */

struct product {
    const struct kernels *k;
    struct kern_weights *copies; /* walked in turn */
    int n_copies, next, threads;
    struct kern_input in;
    float *out;
    size_t ld;
    void *scratch;
};

static void multiply(void *arg)
{
    struct product *p = arg;
    p->k->matmul(p->out, p->ld, &p->copies[p->next++ % p->n_copies], &p->in, p->scratch);
}

static void prepare(void *arg)
{
    struct product *p = arg;
    uint8_t bad[512];
    p->k->prepare(&p->in, bad);
}

static void release_product(struct product *p)
{
    for (int i = 0; i < p->n_copies; i++)
        free((void *)(uintptr_t)p->copies[i].data);
    free(p->copies);
    free(p->out);
    free(p->scratch);
    free(p->in.mem);
    free((void *)(uintptr_t)p->in.x);
}

static struct product make_product(enum kern_type t, int rows, int n_in, int n_out,
                                   size_t all_bytes)
{
    struct matrix m;
    matrix_make(&m, t, n_out, n_in, 0);
    size_t bytes = kern_packed_bytes(t, n_out, n_in);
    struct product p = {
        .k = &kcheck.fast, .n_copies = 1 + (int)(all_bytes / bytes), .ld = (size_t)n_out};
    p.copies = need_memory((size_t)p.n_copies * sizeof *p.copies);
    for (int i = 0; i < p.n_copies; i++) {
        void *data = need_memory(bytes);
        memcpy(data, m.packed.data, bytes);
        p.copies[i] = m.packed;
        p.copies[i].data = data;
    }
    p.in = (struct kern_input){rows, n_in, normal((size_t)rows * (size_t)n_in),
                               need_memory(kern_input_bytes(rows, n_in))};
    p.out = need_memory((size_t)rows * (size_t)n_out * sizeof(float));
    p.scratch = need_memory(kern_matmul_scratch(omp_get_max_threads()));
    prepare(&p);
    return p;
}

static void bench_many_rows(enum kern_type t, const struct kernels *fast,
                            const struct kernels *ref, const char *inputs, bool floats)
{
    int threads = omp_get_max_threads(), k = kern_types[t].block_values == 256 ? 512 : 576;
    struct product p = make_product(t, 512, k, 1536, 0);
    double ops = 2.0 * 512 * k * 1536;
    p.k = fast;
    struct timing fast_time =
        time_body(multiply, &p, floats ? peak_float_products : peak_byte_products);
    p.in.rows = 6;
    p.k = ref;
    struct timing ref_time = time_body(multiply, &p, NULL);
    p.in.rows = 512;
    double gops = ops / fast_time.seconds / 1e9;
    printf(
        "%-6s matmul %-5s %-5s 512 rows %4d -> 1536  %7.1f GOP/s  %5.0fx ref  %3.0f %% of %d x "
        "%.0f\n",
        fast->name, kern_types[t].name, inputs, k, gops,
        gops / (ops * 6 / 512 / ref_time.seconds / 1e9),
        100 * gops / (fast_time.peak * threads), threads, fast_time.peak);
    release_product(&p);
}

static void bench_few_rows(enum kern_type t, double memory)
{
    static const int sizes[] = {1, 4, 6, 8, 12, 24};
    int k = kern_types[t].block_values == 256 ? 512 : 576;
    printf("%-6s matmul %-5s %4d -> 1536, from memory:", kcheck.fast.name, kern_types[t].name,
           k);
    struct product p = make_product(t, 24, k, 1536, (size_t)150 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        p.in.rows = sizes[i];
        prepare(&p);
        struct timing time = time_body(multiply, &p, NULL);
        double bytes = (double)kern_packed_bytes(t, 1536, k);
        printf("  %d rows %.0f GOP/s", sizes[i],
               2.0 * sizes[i] * k * 1536 / time.seconds / 1e9);
        if (sizes[i] < 8)
            printf(" (%.1f GB/s, %.0f %%)", bytes / time.seconds / 1e9,
                   100 * bytes / time.seconds / 1e9 / memory);
    }
    printf("\n");
    release_product(&p);
}

/* ---- rows ---- */

enum { ROWS = 64, N = 1536 };

struct rows {
    const struct kernels *k;
    enum {
        PREPARE,
        REMAINDER,
        RMS_NORM,
        ROPE,
        SILU,
        GELU,
        ADD,
        SCALE,
        BIAS,
        SOFTMAX,
        KV_STORE,
        ROW_OPS
    } op;
    float *x, *y, *out;
    void *mem;
};

static const char *const row_ops[ROW_OPS] = {"prepare",  "remainder", "rms_norm", "rope",
                                             "silu_mul", "gelu_mul",  "add",      "scale",
                                             "add_bias", "softmax",   "kv_store"};

static void run_rows(void *arg)
{
    const struct rows *r = arg;
    uint8_t bad[ROWS];
    struct kern_input in = {ROWS, N, r->x, r->mem};
    void *slices[1] = {r->mem};
    switch (r->op) {
    case PREPARE:
        r->k->prepare(&in, bad);
        break;
    case REMAINDER:
        r->k->remainder(r->out, r->x, ROWS, N);
        break;
    case RMS_NORM:
        r->k->rms_norm(r->out, N, r->x, N, r->y, ROWS, N, 1e-5f);
        break;
    case ROPE:
        r->k->rope(r->out, N, ROWS, N / 64, 64, 64, false, r->y);
        break;
    case SILU:
        r->k->silu_mul(r->out, r->x, r->y, N, ROWS, N);
        break;
    case GELU:
        r->k->gelu_mul(r->out, r->x, r->y, N, ROWS, N);
        break;
    case ADD:
        r->k->add(r->out, r->y, N, ROWS, N);
        break;
    case SCALE:
        r->k->scale(r->out, 1.0f, N, ROWS, N);
        break;
    case BIAS:
        r->k->add_bias(r->out, r->y, N, ROWS, N);
        break;
    case SOFTMAX:
        r->k->softmax(r->out, ROWS * N);
        break;
    default:
        r->k->kv_store(slices, 0, r->x, r->y, N, ROWS, N / 64, 64, bad);
    }
}

static void bench_rows(void)
{
    struct rows r = {.x = normal(ROWS * N), .y = normal(ROWS * N), .out = normal(ROWS * N)};
    r.mem = need_memory(kern_input_bytes(ROWS, N) + kern_page_slice_bytes(N / 64, 64));
    for (int op = 0; op < ROW_OPS; op++) {
        r.op = op;
        r.k = &kcheck.fast;
        struct timing fast = time_body(run_rows, &r, NULL);
        r.k = &kcheck.ref;
        struct timing ref = time_body(run_rows, &r, NULL);
        printf("%-6s %-9s %d rows of %d  %7.2f G values/s  %5.1fx ref\n", kcheck.fast.name,
               row_ops[op], ROWS, N, ROWS * N / fast.seconds / 1e9, ref.seconds / fast.seconds);
    }
    free(r.x);
    free(r.y);
    free(r.out);
    free(r.mem);
}

/* ---- attention ---- */

struct attention {
    const struct kernels *k;
    struct kern_attn_rows call;
    int heads, kv_heads, d;
    void *scratch;
};

static void attend(void *arg)
{
    const struct attention *a = arg;
    a->k->attn(&a->call, 1, a->heads, a->kv_heads, a->d, a->scratch);
}

/* q8: all pages but the last are of 8 bits. */
static void bench_attn(int heads, int kv_heads, int d, int len, int rows, bool q8)
{
    enum { MOST = 64 };
    struct attention a = {&kcheck.fast, .heads = heads, .kv_heads = kv_heads, .d = d};
    const void *slices[MOST];
    void *pages[MOST];
    size_t width = (size_t)(heads * d), kv_width = (size_t)(kv_heads * d);
    float *k = normal((size_t)len * kv_width), *q = normal((size_t)rows * width);
    uint8_t *bad = need_memory((size_t)len);
    for (int i = 0; i * KERN_PAGE_TOKENS < len; i++)
        slices[i] = pages[i] = need_memory(kern_page_slice_bytes(kv_heads, d));
    kcheck.fast.kv_store(pages, 0, k, k, kv_width, len, kv_heads, d, bad);
    int q8_pages = q8 ? (len - 1) / KERN_PAGE_TOKENS : 0;
    for (int i = 0; i < q8_pages; i++)
        random_q8_page(pages[i], kv_heads, d, 0.02f);
    for (size_t i = 0; i < (size_t)rows * width; i++)
        q[i] /= sqrtf((float)d);
    float *out = need_memory((size_t)rows * width * sizeof *out);
    a.call = (struct kern_attn_rows){.out = out,
                                     .q = q,
                                     .ld_out = width,
                                     .ld_q = width,
                                     .slices = slices,
                                     .q8_pages = q8_pages,
                                     .pos = len - rows,
                                     .rows = rows};
    a.scratch = need_memory(kern_attn_scratch(omp_get_max_threads(), heads, kv_heads, d));
    struct timing t = time_body(attend, &a, peak_float_products);
    double flop = 4.0 * rows * heads * d * (len - rows / 2.0),
           bytes = (q8 ? 2.0 : 4.0) * len * (double)kv_width;
    int threads = omp_get_max_threads();
    printf("%-6s attn %s %d heads (%d kv) of %-3d %5d keys, %3d rows  %6.1f GFLOP/s  "
           "%3.0f %% of %d x %.0f",
           kcheck.fast.name, q8 ? "q8 " : "f16", heads, kv_heads, d, len, rows,
           flop / t.seconds / 1e9, 100 * flop / t.seconds / 1e9 / (t.peak * threads), threads,
           t.peak);
    printf(rows == 1 ? "  (%.1f GB/s of keys and values)\n" : "\n", bytes / t.seconds / 1e9);
    for (int i = 0; i * KERN_PAGE_TOKENS < len; i++)
        free(pages[i]);
    free(k);
    free(q);
    free(bad);
    free(out);
    free(a.scratch);
}

/* The tables take turns, so that their ratio does not depend on the hour. */
void kcheck_bench(void)
{
    kcheck_take_table(0);
    set_threads(omp_get_max_threads());
    double memory = memory_peak();
    printf("%d threads. Memory: %.1f GB/s\n", omp_get_max_threads(), memory);
    for (int i = 0; i < kcheck.n_tables; i++) {
        kcheck_take_table(i);
        printf("%s, peaks of one thread: byte products %.0f GOP/s, floats %.0f GFLOP/s\n",
               kcheck.fast.name, peak_byte_products(), peak_float_products());
    }
    for (int t = 0; t < KERN_TYPE_COUNT; t++)
        for (int i = 0; i < kcheck.n_tables; i++) {
            kcheck_take_table(i);
            bench_many_rows((enum kern_type)t, &kcheck.fast, &kcheck.ref,
                            kern_types[t].block_values > 1 ? "int8" : "float",
                            kern_types[t].block_values == 1);
        }
    bench_many_rows(KERN_Q4_1, &kcheck.fast_float, &kcheck.ref_float, "float", true);
    for (int t = 0; t < KERN_TYPE_COUNT; t++)
        for (int i = 0; i < kcheck.n_tables; i++) {
            kcheck_take_table(i);
            memory = fmax(memory, memory_peak());
            bench_few_rows((enum kern_type)t, memory);
        }
    for (int i = 0; i < kcheck.n_tables; i++) {
        kcheck_take_table(i);
        bench_rows();
    }
    for (int rows = 256; rows > 0; rows -= 255)
        for (int i = 0; i < kcheck.n_tables; i++) {
            kcheck_take_table(i);
            for (int q8 = 0; q8 < 2; q8++) {
                bench_attn(9, 3, 64, 2048, rows, q8);
                bench_attn(4, 1, 256, 2048, rows, q8);
            }
        }
}

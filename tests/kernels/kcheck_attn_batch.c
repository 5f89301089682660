/* Batches of sequences that share pages: each row's bytes are those of the row alone. */
#include "tests/kernels/kcheck.h"

#include "kernels/cpu/half.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_CALLS = 70, MOST_WIDTH = 1500, MOST_PAGES = 5, PAGE = KERN_PAGE_TOKENS };

/* Calls in the order of their making: one shares some whole pages of an earlier one, so prefixes are trees. What was
 * never written is NaN. */
struct batch {
    int n_kv_head, group, d, n;
    bool q8; /* with pages of 8 bits among them */
    struct kern_attn_rows calls[MOST_CALLS];
    const void *slices[MOST_CALLS][MOST_PAGES];
    size_t width; /* floats of a row: all heads */
    size_t rows;
    void *memory; /* of the pages */
};

static int small_odd(void)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 9};
    return sizes[upto(7)];
}

/* Keys [0, n) of a page. */
static void fill_page(uint16_t *page, const struct batch *b, int n)
{
    size_t width = (size_t)(b->n_kv_head * b->d);
    float *k = edge_floats(0, (size_t)n * width, 0), *v = edge_floats(1, (size_t)n * width, 0);
    for (size_t i = 0; i < kern_page_slice_bytes(b->n_kv_head, b->d) / 2; i++)
        page[i] = 0x7e01;
    uint8_t bad[PAGE];
    void *slice = page;
    kcheck.ref.kv_store(&slice, 0, k, v, width, n, b->n_kv_head, b->d, bad);
}

/* Whole pages of a call that are of 8 bits: shared ones are what they are. */
static int choose_q8(const struct batch *b, const struct kern_attn_rows *with, int shared,
                     int whole)
{
    if (shared && with->q8_pages < shared)
        return with->q8_pages;
    return b->q8 ? shared + upto(whole - shared + 1) : shared;
}

static void add_call(struct batch *b, uint8_t *memory, int most_shared)
{
    struct kern_attn_rows *c = &b->calls[b->n];
    const struct kern_attn_rows *with = b->n ? &b->calls[upto(b->n)] : NULL;
    int whole = with ? (with->pos + with->rows) / PAGE : 0;
    int shared = whole < most_shared ? whole : most_shared;
    shared = shared && upto(4) ? 1 + upto(shared) : 0;
    int len = shared * PAGE + 1 + upto((MOST_PAGES - shared) * PAGE);
    int q8_pages = choose_q8(b, with, shared, len / PAGE);
    size_t bytes = kern_page_slice_bytes(b->n_kv_head, b->d);
    for (int p = 0; p * PAGE < len; p++) {
        uint8_t *own = memory + ((size_t)b->n * MOST_PAGES + (size_t)p) * bytes;
        if (p >= shared && p < q8_pages)
            random_q8_page(own, b->n_kv_head, b->d, 0.02f);
        else if (p >= shared)
            fill_page((uint16_t *)(void *)own, b,
                      len - p * PAGE < PAGE ? len - p * PAGE : PAGE);
        b->slices[b->n][p] = p < shared ? with->slices[p] : own;
    }
    int rows = upto(5) ? 1 : 1 + upto(len < 40 ? len : 40);
    *c = (struct kern_attn_rows){
        .slices = b->slices[b->n], .q8_pages = q8_pages, .pos = len - rows, .rows = rows};
    c->window = upto(3) ? 0 : 1 + upto(len + 10);
    b->rows += (size_t)rows;
    b->n++;
}

/* Same queries and places of outputs for every call of a batch, its rows one below the other. */
static void place_rows(struct batch *b, const float *q, float *out)
{
    for (int i = 0; i < b->n; i++) {
        b->calls[i].ld_q = b->calls[i].ld_out = b->width;
        b->calls[i].q = q;
        b->calls[i].out = out;
        q += (size_t)b->calls[i].rows * b->width;
        out += (size_t)b->calls[i].rows * b->width;
    }
}

static void make_batch(struct batch *b, int round, int n)
{
    static const int dims[] = {64, 16, 80, 128, 96, 48, 112, 256, 32};
    *b = (struct batch){.d = dims[round % 9], .n_kv_head = 1 + upto(3), .group = small_odd()};
    b->q8 = upto(2);
    while (b->group > 1 && b->n_kv_head * b->group * b->d > MOST_WIDTH)
        b->group--;
    b->width = (size_t)(b->n_kv_head * b->group * b->d);
    size_t bytes = kern_page_slice_bytes(b->n_kv_head, b->d);
    uint8_t *memory = aligned_alloc(64, (bytes * MOST_PAGES * (size_t)n + 63) / 64 * 64);
    if (!memory)
        abort();
    b->memory = memory;
    for (int most_shared = 1 + upto(MOST_PAGES); b->n < n;)
        add_call(b, memory, most_shared);
    for (int i = 0; i < n; i++) { /* what no row of a call sees need not be there */
        const struct kern_attn_rows *c = &b->calls[i];
        for (int p = 0; c->window && i % 2 && (p + 1) * PAGE <= c->pos - c->window + 1; p++)
            b->slices[i][p] = NULL;
    }
}

static void attn_batch_equals_calls_alone(void **state)
{
    (void)state;
    need_fast();
    for (int round = 0; round < kcheck.rounds / 3 + 9; round++) {
        static struct batch b;
        make_batch(&b, round, round % 20 == 19 ? MOST_CALLS : 1 + upto(32));
        size_t bytes = b.rows * b.width * sizeof(float);
        int n_head = b.n_kv_head * b.group;
        float *q = edge_floats(6, b.rows * b.width, 0), *want = guarded(0, bytes, 0);
        for (size_t i = 0; i < b.rows * b.width; i++)
            q[i] *= 3 / sqrtf((float)b.d);
        size_t need = kern_attn_scratch(8, n_head, b.n_kv_head, b.d);
        void *scratch = aligned_alloc(64, (need + 63) / 64 * 64);
        place_rows(&b, q, want);
        for (int i = 0; i < b.n; i++)
            kcheck.ref.attn(&b.calls[i], 1, n_head, b.n_kv_head, b.d, scratch);
        for (int i = 0; i < 3; i++) {
            set_threads((const int[]){1, 2, 5}[i]);
            float *got = guarded(1, bytes, 4 * upto(16));
            place_rows(&b, q, got);
            kcheck.fast.attn(b.calls, b.n, n_head, b.n_kv_head, b.d, scratch);
            check_guards(1, "attn");
            check_same(want, got, bytes, "%d calls, %d by %d heads of %d", b.n, b.n_kv_head,
                       b.group, b.d);
        }
        free(scratch);
        free(b.memory);
    }
}

int kcheck_attn_batch_tests(struct kcheck_test *list, int n)
{
    return kcheck_add(list, n, attn_batch_equals_calls_alone, 0,
                      "attn: a batch that shares pages equals its calls alone");
}

/* Pages and attention. */
#include "tests/kernels/kcheck.h"

#include "kernels/cpu/half.h"
#include "kernels/cpu/kv_slice.h"

#include <math.h>

enum { MOST_PAGES = 12, PAGE = KERN_PAGE_TOKENS };

/* A sequence of len keys in pages; what was never written is NaN. The first q8_pages are of 8 bits. */
struct sequence {
    int len, n_kv_head, group, d, kind, q8_pages;
    float *k, *v; /* [len][n_kv_head*d] */
    uint16_t *pages[MOST_PAGES];
    const void *slices[MOST_PAGES];
};

static int head_dim_of(int round)
{
    static const int dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 256, 24, 20};
    return dims[round % 11];
}

static size_t slice_halves(const struct sequence *s)
{
    return kern_page_slice_bytes(s->n_kv_head, s->d) / 2;
}

/* Pages in a random order in memory. */
static void make_sequence(struct sequence *s, int round, int most_len)
{
    *s = (struct sequence){.d = head_dim_of(round), .kind = upto(6)};
    s->n_kv_head = 1 + upto(3);
    s->group = 1 + upto(5);
    s->len = odd_size(most_len);
    size_t row = (size_t)(s->n_kv_head * s->d), n = row * (size_t)s->len;
    s->k = edge_floats(3, n, 0);
    s->v = edge_floats(4, n, 0);
    for (size_t i = 0; i < n; i++) {
        if (s->kind == 1)
            s->k[i] *= 30;
        if (s->kind == 4)
            s->v[i] = upto(2) ? -0.0f : 0.0f;
        if (s->kind == 5) {
            s->k[i] *= 0x1p-17f;
            s->v[i] *= 0x1p-17f;
        }
    }
    int n_pages = (s->len + PAGE - 1) / PAGE, turn = upto(n_pages);
    size_t bytes = slice_halves(s) * 2;
    uint8_t *mem = edge_aligned(5, bytes * (size_t)n_pages);
    void *to[MOST_PAGES];
    for (int i = 0; i < n_pages; i++) {
        s->pages[i] = (uint16_t *)(void *)(mem + bytes * (size_t)((i * 5 + turn) % n_pages));
        if (n_pages % 5 == 0) /* then 5 is no step through all */
            s->pages[i] = (uint16_t *)(void *)(mem + bytes * (size_t)((i + turn) % n_pages));
        for (size_t j = 0; j < slice_halves(s); j++)
            s->pages[i][j] = 0x7e01;
        s->slices[i] = to[i] = s->pages[i];
    }
    uint8_t bad[PAGE * MOST_PAGES] = {0};
    kcheck.ref.kv_store(to, 0, s->k, s->v, row, s->len, s->n_kv_head, s->d, bad);
    s->q8_pages = upto(2) ? 0 : upto(s->len / PAGE + 1);
    for (int i = 0; i < s->q8_pages; i++)
        random_q8_page(s->pages[i], s->n_kv_head, s->d, s->kind == 1 ? 3 : 0.02f);
}

/* Queries for rows that end at the sequence's last position. */
static struct kern_attn_rows make_call(const struct sequence *s, int rows, int window)
{
    int n_head = s->n_kv_head * s->group;
    size_t ld = (size_t)(n_head * s->d + upto(5)),
           n = (size_t)(rows - 1) * ld + (size_t)(n_head * s->d);
    float *q = edge_floats(6, n, 0), amp = s->kind == 1   ? 30
                                           : s->kind == 2 ? 0
                                           : s->kind == 3 ? 8
                                                          : 1;
    for (size_t i = 0; i < n; i++)
        q[i] *= amp / sqrtf((float)s->d);
    return (struct kern_attn_rows){.q = q,
                                   .ld_q = ld,
                                   .ld_out = ld,
                                   .slices = s->slices,
                                   .q8_pages = s->q8_pages,
                                   .pos = s->len - rows,
                                   .rows = rows,
                                   .window = window};
}

static size_t out_bytes(const struct sequence *s, const struct kern_attn_rows *c)
{
    return ((size_t)(c->rows - 1) * c->ld_out + (size_t)(s->n_kv_head * s->group * s->d)) *
           sizeof(float);
}

static float *run_call(const struct sequence *s, struct kern_attn_rows c,
                       const struct kernels *k, int slot)
{
    static void *scratch;
    static size_t size;
    size_t need = kern_attn_scratch(8, s->n_kv_head * s->group, s->n_kv_head, s->d);
    if (need > size) {
        free(scratch);
        scratch = aligned_alloc(64, (need + 63) / 64 * 64);
        size = need;
    }
    c.out = guarded(slot, out_bytes(s, &c), 4 * upto(16));
    k->attn(&c, 1, s->n_kv_head * s->group, s->n_kv_head, s->d, scratch);
    check_guards(slot, k->name);
    return c.out;
}

static int random_window(int len)
{
    return upto(2) ? 0 : 1 + upto(len + 10);
}

static void attn_fast_equals_ref(void **state)
{
    (void)state;
    need_fast();
    for (int round = 0; round < kcheck.rounds; round++) {
        struct sequence s;
        make_sequence(&s, round, 500);
        int rows = 1 + upto(s.len < 50 ? s.len : 50), window = random_window(s.len);
        struct kern_attn_rows c = make_call(&s, rows, window);
        for (int page = 0; window > 0 && (page + 1) * PAGE <= c.pos - window + 1; page++)
            s.slices[page] = NULL;
        const float *want = run_call(&s, c, &kcheck.ref, 0);
        for (int i = 0; i < 3; i++) {
            set_threads((const int[]){1, 2, 5}[i]);
            check_same(want, run_call(&s, c, &kcheck.fast, 1), out_bytes(&s, &c),
                       "d %d, len %d, rows %d, window %d, group %d, data %d", s.d, s.len, rows,
                       window, s.group, s.kind);
        }
    }
}

/* One call after the other, or any split of the rows into calls of one batch: the same bytes. */
static void attn_rows_do_not_depend_on_their_tile(void **state)
{
    (void)state;
    for (int round = 0; round < kcheck.rounds / 2 + 1; round++) {
        struct sequence s;
        make_sequence(&s, round, 300);
        int n_head = s.n_kv_head * s.group, rows = 1 + upto(s.len < 60 ? s.len : 60),
            n_calls = 0;
        struct kern_attn_rows c = make_call(&s, rows, random_window(s.len)), parts[64];
        const float *all = run_call(&s, c, &kcheck.fast, 0);
        float *out = guarded(1, out_bytes(&s, &c), 0);
        for (int begin = 0, n; begin < rows; begin += n) {
            n = upto(2) ? 1 : 1 + upto(rows - begin);
            parts[n_calls] = c;
            parts[n_calls].q = c.q + (size_t)begin * c.ld_q;
            parts[n_calls].out = out + (size_t)begin * c.ld_out;
            parts[n_calls].pos = c.pos + begin;
            parts[n_calls++].rows = n;
        }
        void *scratch =
            aligned_alloc(64, (kern_attn_scratch(8, n_head, s.n_kv_head, s.d) + 63) / 64 * 64);
        kcheck.fast.attn(parts, n_calls, n_head, s.n_kv_head, s.d, scratch);
        free(scratch);
        check_guards(1, "attn");
        check_same(all, out, out_bytes(&s, &c), "%d rows in %d calls", rows, n_calls);
    }
}

static void attn_wide_window_equals_full(void **state)
{
    (void)state;
    for (int round = 0; round < kcheck.rounds / 3 + 1; round++) {
        struct sequence s;
        make_sequence(&s, round, 300);
        struct kern_attn_rows c = make_call(&s, 1 + upto(s.len < 20 ? s.len : 20), 0);
        const struct kernels *k = upto(2) ? &kcheck.fast : &kcheck.ref;
        const float *full = run_call(&s, c, k, 0);
        c.window = s.len + upto(100);
        check_same(full, run_call(&s, c, k, 1), out_bytes(&s, &c), "window %d of %d", c.window,
                   s.len);
    }
}

static void attn_does_not_see_where_pages_lie(void **state)
{
    (void)state;
    for (int round = 0; round < kcheck.rounds / 3 + 1; round++) {
        struct sequence s;
        make_sequence(&s, round, 400);
        struct kern_attn_rows c =
            make_call(&s, 1 + upto(s.len < 20 ? s.len : 20), random_window(s.len));
        const float *want = run_call(&s, c, &kcheck.fast, 0);
        int n_pages = (s.len + PAGE - 1) / PAGE;
        size_t n = slice_halves(&s);
        uint16_t *copy = edge_aligned(7, n * 2 * (size_t)n_pages);
        for (int i = 0; i < n_pages; i++) {
            uint16_t *to = copy + n * (size_t)(n_pages - 1 - i);
            memcpy(to, s.pages[i], n * 2);
            s.slices[i] = to;
        }
        check_same(want, run_call(&s, c, &kcheck.fast, 1), out_bytes(&s, &c), "pages moved");
    }
}

/* A row whose output is -0, while keys that it does not see and whose V is positive would make it +0. */
static void attn_zero_has_one_sign(void **state)
{
    (void)state;
    enum { D = 16, LEN = 128 };
    static uint16_t page[2][2 * PAGE * D];
    float q[(LEN - 64) * D], all[(LEN - 64) * D], alone[D];
    const void *slices[2] = {page[0], page[1]};
    for (int i = 0; i < (LEN - 64) * D; i++)
        q[i] = 1.0f;
    for (int j = 0; j < LEN; j++)
        for (int c = 0; c < D;
             c++) { /* key 64 scores 1600, the others 0; V: -1, then -0, then 1 */
            page[j / PAGE][page_key_at(j % PAGE, c, D)] = j == 64 ? 0x5640 : 0;
            page[j / PAGE][page_value_at(j % PAGE, c, D)] = j < 64    ? 0xbc00
                                                            : j == 64 ? 0x8000
                                                                      : 0x3c00;
        }
    void *scratch = aligned_alloc(64, (kern_attn_scratch(2, 1, 1, D) + 63) / 64 * 64);
    for (int i = 0; i < 2; i++) {
        const struct kernels *k = i ? &kcheck.fast : &kcheck.ref;
        struct kern_attn_rows c = {.out = all,
                                   .q = q,
                                   .ld_out = D,
                                   .ld_q = D,
                                   .slices = slices,
                                   .pos = 64,
                                   .rows = LEN - 64};
        k->attn(&c, 1, 1, 1, D, scratch);
        c.rows = 1;
        c.out = alone;
        k->attn(&c, 1, 1, 1, D, scratch);
        check_same(alone, all, sizeof alone, "%s: alone and in a tile", k->name);
    }
    free(scratch);
}

static double key_of(const struct sequence *s, int j, int kv, int channel)
{
    const void *slice = s->pages[j / PAGE];
    struct kv_part p = f16_part(slice, kv, s->d);
    if (j / PAGE >= s->q8_pages)
        return half_to_float(((const uint16_t *)p.keys)[page_key_at(j % PAGE, channel, s->d)]);
    p = q8_part(slice, kv, s->d);
    return (double)((const int8_t *)p.keys)[channel * PAGE + j % PAGE] *
           half_to_float(p.key_scales[channel]);
}

static double value_of(const struct sequence *s, int j, int kv, int channel)
{
    const void *slice = s->pages[j / PAGE];
    struct kv_part p = f16_part(slice, kv, s->d);
    int at = j % PAGE * s->d + channel;
    if (j / PAGE >= s->q8_pages)
        return half_to_float(((const uint16_t *)p.values)[at]);
    p = q8_part(slice, kv, s->d);
    return (double)((const int8_t *)p.values)[at] * half_to_float(p.value_scales[j % PAGE]);
}

/* Softmax in double over the values that are stored. Scores err by d roundings of their terms' sizes,
 * weights by as much and exp's own, sums by one rounding a key. */
static void add_share(struct share *share, const struct sequence *s,
                      const struct kern_attn_rows *c, const float *out, int row, int head,
                      int channel)
{
    int last = c->pos + row, first = c->window > 0 ? last - c->window + 1 : 0;
    struct key_range keys = {first > 0 ? first : 0, last + 1};
    int kv = head / s->group, d = s->d;
    const float *q = c->q + (size_t)row * c->ld_q + head * d;
    double score[PAGE * MOST_PAGES], top = -INFINITY, slack = 0, sum = 0, o = 0, size = 0;
    for (int j = keys.begin; j < keys.end; j++) {
        double terms = 0;
        score[j] = 0;
        for (int i = 0; i < d; i++) {
            double t = q[i] * key_of(s, j, kv, i);
            score[j] += t;
            terms += fabs(t);
        }
        slack = fmax(slack, terms);
        top = fmax(top, score[j]);
    }
    for (int j = keys.begin; j < keys.end; j++) {
        double e = exp(score[j] - top), v = value_of(s, j, kv, channel);
        sum += e;
        o += e * v;
        size += e * fabs(v) + 1e-29;
    }
    double got = out[(size_t)row * c->ld_out + (size_t)(head * d + channel)];
    double roundings = 2.0 * (d + 4) * slack + 2.0 * (keys.end - keys.begin) + 40;
    share_add(share, fabs(got - o / sum), roundings * 0x1p-24 * size / sum + 0x1p-130);
}

static void attn_ref_is_right(void **state)
{
    (void)state;
    struct share share = {0};
    for (int round = 0; round < kcheck.rounds / 3 + 1; round++) {
        struct sequence s;
        make_sequence(&s, round, 300);
        struct kern_attn_rows c =
            make_call(&s, 1 + upto(s.len < 8 ? s.len : 8), random_window(s.len));
        const float *out = run_call(&s, c, &kcheck.ref, 0);
        for (int i = 0; i < 10; i++)
            add_share(&share, &s, &c, out, upto(c.rows), upto(s.n_kv_head * s.group),
                      upto(s.d));
    }
    share_report(&share, "attn");
}

static void kv_store_fast_equals_ref(void **state)
{
    (void)state;
    need_fast();
    for (int round = 0; round < 2 * kcheck.rounds; round++) {
        int d = 1 + upto(140), heads = 1 + upto(4), rows = 1 + upto(150), pos = upto(100),
            kind = upto(DATA_KINDS);
        size_t ld = (size_t)(heads * d + upto(3)),
               n = (size_t)(rows - 1) * ld + (size_t)(heads * d);
        float *k = edge_floats(0, n, kind), *v = edge_floats(1, n, kind);
        if (!upto(5))
            k[(size_t)upto(rows) * ld] = upto(2) ? NAN : 70000.0f;
        int n_pages = (pos + rows + PAGE - 1) / PAGE;
        size_t bytes = kern_page_slice_bytes(heads, d);
        uint8_t bad[2][160] = {{0}};
        void *mem[2];
        for (int i = 0; i < 2; i++) {
            void *slices[8];
            mem[i] = guarded(i, bytes * (size_t)n_pages, 0);
            for (int p = 0; p < n_pages; p++)
                slices[p] = (uint8_t *)mem[i] + bytes * (size_t)p;
            set_threads(1 + upto(5));
            (i ? &kcheck.fast : &kcheck.ref)
                ->kv_store(slices, pos, k, v, ld, rows, heads, d, bad[i]);
            check_guards(i, "kv_store");
        }
        check_same(bad[0], bad[1], sizeof bad[0], "bad flags");
        check_same(mem[0], mem[1], bytes * (size_t)n_pages,
                   "%d rows from %d, %d heads of %d, data %d", rows, pos, heads, d, kind);
    }
}

/* Every value is where kv_slice.h says, and rows that do not fit a half are reported. */
static void kv_store_ref_is_right(void **state)
{
    (void)state;
    enum { D = 48, HEADS = 2, ROWS = 70, POS = 30 };
    size_t bytes = kern_page_slice_bytes(HEADS, D);
    float *k = edge_floats(0, ROWS * HEADS * D, 0), *v = edge_floats(1, ROWS * HEADS * D, 0);
    uint16_t *page[2] = {guarded(0, bytes, 0), guarded(1, bytes, 0)};
    void *slices[2] = {page[0], page[1]};
    uint8_t bad[ROWS] = {0};
    k[5 * HEADS * D + 3] = 65519.996f; /* still rounds to 65504 */
    v[6 * HEADS * D + 3] = -65520.0f;
    kcheck.ref.kv_store(slices, POS, k, v, HEADS * D, ROWS, HEADS, D, bad);
    for (int r = 0; r < ROWS; r++) {
        assert_int_equal(bad[r], r == 6);
        for (int i = 0; i < HEADS * D; i++) {
            int head = i / D, c = i % D, j = (POS + r) % PAGE;
            const uint16_t *slice = page[(POS + r) / PAGE] + head * 2 * PAGE * D;
            assert_int_equal(slice[(j / 16 * D + c) * 16 + j % 16],
                             float_to_half(k[r * HEADS * D + i]));
            assert_int_equal(slice[PAGE * D + j * D + c], float_to_half(v[r * HEADS * D + i]));
        }
    }
}

/* What kernels.h says of a page in 8 bits, with places counted by hand. */
static void q8_slices_lie_as_said(void **state)
{
    (void)state;
    enum { D = 24 };
    static uint8_t slice[2 * (128 * D + 192)];
    assert_int_equal(kern_q8_slice_bytes(2, D), 2 * (128 * D + 192)); /* 2 * (D + 64), padded */
    struct kv_part p = q8_part(slice, 1, D);
    const uint8_t *head = slice + 128 * D + 192;
    assert_true(p.keys == (const void *)head);
    assert_true(p.values == (const void *)(head + 64 * D));
    assert_true(p.key_scales == (const void *)(head + 128 * D));
    assert_true(p.value_scales == (const void *)(head + 128 * D + 2 * D));
}

int kcheck_attn_tests(struct kcheck_test *list, int n)
{
    n = kcheck_add(list, n, kv_store_ref_is_right, 0, "kv_store: ref is right");
    n = kcheck_add(list, n, kv_store_fast_equals_ref, 0, "kv_store: fast equals ref");
    n = kcheck_add(list, n, q8_slices_lie_as_said, 0, "pages in 8 bits lie as said");
    n = kcheck_add(list, n, attn_ref_is_right, 0, "attn: ref is right");
    n = kcheck_add(list, n, attn_fast_equals_ref, 0, "attn: fast equals ref");
    n = kcheck_add(list, n, attn_rows_do_not_depend_on_their_tile, 0,
                   "attn: rows do not see their tile");
    n = kcheck_add(list, n, attn_wide_window_equals_full, 0, "attn: a wide window equals full");
    n = kcheck_add(list, n, attn_does_not_see_where_pages_lie, 0,
                   "attn: does not see where pages lie");
    n = kcheck_add(list, n, attn_zero_has_one_sign, 0, "attn: zero has one sign");
    return n;
}

/* A row's logits depend on its own sequence alone: tiny models, alone and in batches of any shape, with one and
 * two threads, by every table, give the same bytes. What is not finite fails its own sequence only. */
#include "stages/base/file.h"
#include "stages/base/mem.h"
#include "stages/kv/store.h"
#include "stages/model/model.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SEQS = 5, MAX_LEN = 200, MAX_ROWS = 160, MAX_LOGITS = 60 };

static const char *const files[] = {
    "tests/vectors/tiny/llama.gguf", "tests/vectors/tiny/qwen2.gguf",
    "tests/vectors/tiny/qwen3.gguf", "tests/vectors/tiny/gemma3.gguf"};

static struct model *model_of(const char *path, unsigned cpu_flags)
{
    struct err e = {0};
    struct model *m;
    struct model_config c = {.kind = MODEL_GGUF, .file = strdup(path)};
    struct kernels k;
    kernels_init(&k, cpu_flags);
    if (model_open(&m, &c, &e) || model_load(m, &k, MAX_ROWS, MAX_LOGITS, &e))
        fail_msg("%s", e.msg);
    free(c.file);
    return m;
}

static struct page_pool *pool_of(const struct model *m, int n_pages)
{
    struct err e = {0};
    struct model_sizes s;
    struct page_pool *p;
    model_plan(m, MAX_ROWS, MAX_LOGITS, &s);
    assert_int_equal(page_pool_new(&p, n_pages, s.n_layer, s.slice_bytes, &e), 0);
    return p;
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* Sequences of several lengths, and the logits after each of their tokens. */
struct texts {
    int32_t ids[N_SEQS][MAX_LEN];
    int len[N_SEQS];
    int n_vocab;
    float *logits; /* [N_SEQS][MAX_LEN][n_vocab] */
};

static struct texts texts_of(const struct model *m)
{
    struct texts t = {.n_vocab = model_hparams(m)->n_vocab};
    uint32_t seed = 7;
    for (int s = 0; s < N_SEQS; s++) {
        t.len[s] = (const int[]){200, 130, 64, 17, 1}[s];
        for (int i = 0; i < t.len[s]; i++)
            t.ids[s][i] = (int32_t)(next_random(&seed) % (uint32_t)t.n_vocab);
    }
    t.logits = calloc((size_t)N_SEQS * MAX_LEN * (size_t)t.n_vocab, sizeof(float));
    return t;
}

static float *logits_at(const struct texts *t, int seq, int pos)
{
    return t->logits + ((size_t)seq * MAX_LEN + (size_t)pos) * (size_t)t->n_vocab;
}

static void pass(struct model *m, struct forward_rows *rows, int n)
{
    struct err e = {0};
    if (model_forward(m, rows, n, &e))
        fail_msg("%s", e.msg);
    for (int i = 0; i < n; i++)
        assert_false(rows[i].failed);
}

/* The definition: one sequence, one token a pass. */
static void one_by_one(struct model *m, const struct texts *t)
{
    struct err e = {0};
    struct page_pool *pool = pool_of(m, 8);
    for (int s = 0; s < N_SEQS; s++) {
        struct block_table *table = block_table_new(pool);
        assert_int_equal(block_table_reserve(table, t->len[s], &e), 0);
        for (int i = 0; i < t->len[s]; i++) {
            struct forward_rows rows = {t->ids[s],      i, 1, table, true, logits_at(t, s, i),
                                        .failed = false};
            pass(m, &rows, 1);
        }
        block_table_free(table);
    }
    page_pool_free(pool);
}

static int by_logit(const void *a, const void *b)
{
    const struct logit *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? 1 : -1) : x->id - y->id;
}

/* The list holds the greatest of logits, in order. */
static void assert_leading(const struct forward_rows *r, const float *logits, int n_vocab)
{
    struct logit *all = malloc((size_t)n_vocab * sizeof(*all));
    for (int32_t i = 0; i < n_vocab; i++)
        all[i] = (struct logit){logits[i], i};
    qsort(all, (size_t)n_vocab, sizeof(*all), by_logit);
    assert_memory_equal(r->leading, all, (size_t)r->n_leading * sizeof(*all));
    free(all);
}

/* `width` sequences side by side, token by token. Some want a few of their logits, now and then one wants all. */
static void leading_equal(struct model *m, const struct texts *t, int width)
{
    enum { MOST = 40 };
    static const int wanted[] = {1, 1, 2, 3, 9, 1, MOST};
    struct err e = {0};
    struct page_pool *pool = pool_of(m, 32);
    struct block_table *tables[N_SEQS];
    struct logit lists[N_SEQS][MOST];
    float *out = malloc((size_t)N_SEQS * (size_t)t->n_vocab * sizeof(*out));
    for (int s = 0; s < width; s++) {
        tables[s] = block_table_new(pool);
        assert_int_equal(block_table_reserve(tables[s], t->len[s], &e), 0);
    }
    for (int i = 0; i < t->len[0]; i++) {
        struct forward_rows rows[N_SEQS];
        int n = 0;
        for (; n < width && i < t->len[n]; n++)
            rows[n] = (struct forward_rows){
                .tokens = t->ids[n],
                .pos = i,
                .n = 1,
                .table = tables[n],
                .want_logits = true,
                .logits = out + (size_t)n * (size_t)t->n_vocab,
                .n_leading =
                    i % 16 == 3 && n == 1
                        ? 0
                        : wanted[(size_t)(i / 4 + n) % (i % 4 ? 4 : ARRAY_LEN(wanted))],
                .leading = lists[n]};
        pass(m, rows, n);
        for (int s = 0; s < n; s++)
            if (rows[s].n_leading)
                assert_leading(&rows[s], logits_at(t, s, i), t->n_vocab);
            else
                assert_memory_equal(rows[s].logits, logits_at(t, s, i),
                                    (size_t)t->n_vocab * sizeof(float));
    }
    for (int s = 0; s < width; s++)
        block_table_free(tables[s]);
    page_pool_free(pool);
    free(out);
}

static void the_leading_logits_are_those_of_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct model *m = model_of(files[i], kern_cpu_flags());
        struct texts t = texts_of(m);
        one_by_one(m, &t);
        for (int width = 1; width <= N_SEQS; width++)
            leading_equal(m, &t, width);
        free(t.logits);
        model_free(m);
    }
}

/* Passes of random composition until all sequences are done; every logit row must equal the expected one. */
static void batches_equal(struct model *m, const struct texts *t, uint32_t seed)
{
    struct err e = {0};
    struct page_pool *pool = pool_of(m, 32);
    struct block_table *tables[N_SEQS];
    int done[N_SEQS] = {0}, checked = 0, left = N_SEQS;
    float *out = malloc((size_t)N_SEQS * (size_t)t->n_vocab * sizeof(*out));
    for (int s = 0; s < N_SEQS; s++)
        tables[s] = block_table_new(pool);
    while (left > 0) {
        struct forward_rows rows[N_SEQS];
        int which[N_SEQS], n = 0, room = MAX_ROWS, start = (int)(next_random(&seed) % N_SEQS);
        for (int i = 0; i < N_SEQS; i++) {
            int s = (start + i) % N_SEQS, rest = t->len[s] - done[s];
            int most = rest < room ? rest : room;
            if (most == 0 || (n > 0 && next_random(&seed) % 4 == 0))
                continue;
            int take = next_random(&seed) % 3 == 0
                           ? 1
                           : 1 + (int)(next_random(&seed) % (uint32_t)most);
            assert_int_equal(block_table_reserve(tables[s], done[s] + take, &e), 0);
            rows[n] = (struct forward_rows){t->ids[s],
                                            done[s],
                                            take,
                                            tables[s],
                                            next_random(&seed) % 4 != 0,
                                            out + (size_t)n * (size_t)t->n_vocab,
                                            .failed = false};
            which[n++] = s;
            room -= take;
        }
        if (n == 0)
            continue;
        pass(m, rows, n);
        for (int i = 0; i < n; i++) {
            int s = which[i];
            done[s] += rows[i].n;
            left -= done[s] == t->len[s];
            if (!rows[i].want_logits)
                continue;
            assert_memory_equal(rows[i].logits, logits_at(t, s, done[s] - 1),
                                (size_t)t->n_vocab * sizeof(float));
            checked++;
        }
    }
    assert_true(checked > N_SEQS);
    for (int s = 0; s < N_SEQS; s++)
        block_table_free(tables[s]);
    assert_int_equal(page_pool_audit(pool, 0, &e), 0);
    page_pool_free(pool);
    free(out);
}

static void rows_do_not_depend_on_batch_threads_or_table(void **state)
{
    (void)state;
    int threads = omp_get_max_threads();
    for (size_t f = 0; f < ARRAY_LEN(files); f++) {
        struct model *ref = model_of(files[f], 0);
        struct texts t = texts_of(ref);
        omp_set_num_threads(1);
        one_by_one(ref, &t);
        batches_equal(ref, &t, 1);
        model_free(ref);
        for (uint32_t table = 0; table < 2; table++) {
            struct model *fast =
                model_of(files[f], table ? kern_cpu_flags() : kern_cpu_flags() & KERN_CPU_AVX2);
            for (uint32_t i = 0; i < 4; i++) {
                omp_set_num_threads(1 + (int)i % 2);
                batches_equal(fast, &t, 10 * i + 100 * table + (uint32_t)f);
            }
            model_free(fast);
        }
        free(t.logits);
    }
    omp_set_num_threads(threads);
}

/* More rows that want logits than one tile of a product with inputs in 16 bits takes, and no multiple of it: the
 * tokens of one sequence, each a sequence of its own over the same pages. */
static void logits_of_many_rows_are_those_of_each_alone(void **state)
{
    (void)state;
    struct err e = {0};
    for (size_t f = 0; f < ARRAY_LEN(files); f++) {
        struct model *m = model_of(files[f], kern_cpu_flags());
        struct texts t = texts_of(m);
        one_by_one(m, &t);
        struct page_pool *pool = pool_of(m, 8);
        struct block_table *table = block_table_new(pool);
        size_t n_vocab = (size_t)t.n_vocab;
        float *out = malloc(MAX_LOGITS * n_vocab * sizeof(*out));
        struct forward_rows rows[MAX_LOGITS];
        assert_int_equal(block_table_reserve(table, MAX_LOGITS, &e), 0);
        for (int i = 0; i < MAX_LOGITS; i++)
            rows[i] = (struct forward_rows){
                t.ids[0], i, 1, table, true, out + (size_t)i * n_vocab, .failed = false};
        pass(m, rows, MAX_LOGITS);
        assert_memory_equal(out, logits_at(&t, 0, 0), MAX_LOGITS * n_vocab * sizeof(*out));
        block_table_free(table);
        page_pool_free(pool);
        model_free(m);
        free(out);
        free(t.logits);
    }
}

static void pages_of_a_shared_prefix_give_the_same_bytes(void **state)
{
    (void)state;
    struct err e = {0};
    struct model *m = model_of(files[3], kern_cpu_flags());
    struct texts t = texts_of(m);
    one_by_one(m, &t);
    struct page_pool *pool = pool_of(m, 16);
    struct kv_counters counters = {0};
    struct stability stability = {0};
    struct store *store;
    struct store_options o = {.pool = pool,
                              .shape = model_kv_shape(m),
                              .reuse = true,
                              .n_vocab = t.n_vocab,
                              .counters = &counters,
                              .stability = &stability};
    assert_int_equal(store_open(&store, &o, &e), 0);
    float *out = malloc((size_t)t.n_vocab * sizeof(*out));
    for (int round = 0; round < 2; round++) {
        struct store_prompt *p;
        assert_int_equal(store_hold(store, &p, t.ids[0], t.len[0], 0, PREFIX_DOCUMENT, &e), 0);
        assert_int_equal(store_admit(store, p, t.len[0], true), 1);
        assert_int_equal(store_ready(store, p), 1);
        int pos = p->found;
        assert_int_equal(pos, round * 192);
        while (pos < t.len[0]) {
            int n = t.len[0] - pos < MAX_ROWS ? t.len[0] - pos : MAX_ROWS;
            struct forward_rows rows = {t.ids[0], pos, n, p->table, true, out, .failed = false};
            pass(m, &rows, 1);
            pos += n;
        }
        assert_memory_equal(out, logits_at(&t, 0, t.len[0] - 1),
                            (size_t)t.n_vocab * sizeof(float));
        store_computed(store, p, t.len[0]);
        store_drop(p);
    }
    store_close(store);
    page_pool_free(pool);
    model_free(m);
    free(out);
    free(t.logits);
}

/* A copy of a tiny model with some bytes of its tensors changed. */
static void write_broken(const char *path, const char *from, const char *tensor, size_t at,
                         const void *bytes, size_t n)
{
    struct err e = {0};
    struct buf b;
    struct gguf g;
    buf_init(&b, 1 << 24);
    assert_int_equal(file_read(from, &b, &e), 0);
    assert_int_equal(gguf_parse(&g, (const uint8_t *)b.data, b.len, &e), 0);
    const struct gguf_tensor *t = gguf_tensor(&g, tensor);
    assert_non_null(t);
    memcpy(b.data + (t->data - g.bytes) + at, bytes, n);
    assert_int_equal(file_write_atomic(path, b.data, b.len, &e), 0);
    gguf_release(&g);
    buf_release(&b);
}

static void a_value_that_is_not_finite_fails_its_own_sequence_only(void **state)
{
    (void)state;
    struct err e = {0};
    char path[] = "/tmp/quire-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    /* qwen2 has its embedding in Q4_0: the scale of token 5 becomes infinite. */
    const uint8_t infinity[2] = {0x00, 0x7c};
    size_t row = kern_row_bytes(KERN_Q4_0, 96);
    write_broken(path, files[1], "token_embd.weight", 5 * row, infinity, 2);
    struct model *broken = model_of(path, kern_cpu_flags()),
                 *whole = model_of(files[1], kern_cpu_flags());
    unlink(path);
    const int32_t good[3] = {7, 8, 9}, bad[3] = {7, 5, 9};
    int n_vocab = model_hparams(whole)->n_vocab;
    float *out = malloc(3 * (size_t)n_vocab * sizeof(*out));
    for (int i = 0; i < 2; i++) {
        struct model *m = i ? broken : whole;
        struct page_pool *pool = pool_of(m, 2);
        struct block_table *a = block_table_new(pool), *b = block_table_new(pool);
        assert_int_equal(block_table_reserve(a, 3, &e), 0);
        assert_int_equal(block_table_reserve(b, 3, &e), 0);
        struct forward_rows rows[2] = {
            {bad, 0, 3, a, true, out + 2 * (size_t)n_vocab, .failed = false},
            {good, 0, 3, b, false, NULL, .failed = false}};
        assert_int_equal(model_forward(m, rows, 2, &e), 0);
        assert_int_equal(rows[0].failed, i);
        assert_false(rows[1].failed);
        block_table_free(a);
        block_table_free(b);
        page_pool_free(pool);
    }
    model_free(broken);
    model_free(whole);
    free(out);
}

/* As many rows and logits as were planned, in one pass: the address sanitizer sees what leaves its region of scratch. */
static void a_full_pass_stays_in_its_scratch(void **state)
{
    (void)state;
    struct err e = {0};
    for (size_t f = 0; f < ARRAY_LEN(files); f++) {
        struct model *m = model_of(files[f], kern_cpu_flags());
        struct texts t = texts_of(m);
        struct page_pool *pool = pool_of(m, 8);
        struct block_table *one = block_table_new(pool), *many = block_table_new(pool);
        struct forward_rows rows[MAX_LOGITS + 1];
        assert_int_equal(block_table_reserve(one, MAX_LOGITS, &e), 0);
        assert_int_equal(block_table_reserve(many, MAX_ROWS - MAX_LOGITS, &e), 0);
        for (int i = 0; i < MAX_LOGITS; i++)
            rows[i] = (struct forward_rows){
                t.ids[0], i, 1, one, true, logits_at(&t, 0, i), .failed = false};
        rows[MAX_LOGITS] = (struct forward_rows){t.ids[1], 0,    MAX_ROWS - MAX_LOGITS, many,
                                                 false,    NULL, .failed = false};
        pass(m, rows, MAX_LOGITS + 1);
        block_table_free(one);
        block_table_free(many);
        page_pool_free(pool);
        model_free(m);
        free(t.logits);
    }
}

static void a_position_past_the_context_is_refused(void **state)
{
    (void)state;
    struct err e = {0};
    struct model *m = model_of(files[0], kern_cpu_flags());
    struct page_pool *pool = pool_of(m, 10);
    struct block_table *t = block_table_new(pool);
    int32_t ids[520] = {0};
    assert_int_equal(block_table_reserve(t, 512, &e), 0);
    struct forward_rows rows = {ids, 511, 2, t, false, NULL, .failed = false};
    assert_int_equal(block_table_reserve(t, 520, &e), 0);
    assert_int_equal(model_forward(m, &rows, 1, &e),
                     -ERR_LIMIT); /* the model was trained for 512 */
    assert_int_equal(e.reach, REACH_DOC);
    block_table_free(t);
    page_pool_free(pool);
    model_free(m);
}

/* Scratch is planned: model_load() takes what model_plan() said, and a pass takes nothing. */
static void a_pass_allocates_nothing(void **state)
{
    (void)state;
    struct model *m = model_of(files[2], kern_cpu_flags());
    struct texts t = texts_of(m);
    struct page_pool *pool = pool_of(m, 8);
    struct err e = {0};
    struct block_table *table = block_table_new(pool);
    assert_int_equal(block_table_reserve(table, 200, &e), 0);
    struct forward_rows rows = {t.ids[0],       0, 100, table, true, logits_at(&t, 0, 99),
                                .failed = false};
    mem_fail_after(1);
    pass(m, &rows, 1);
    void *p = mem_alloc(1); /* the pass has not used the failure up */
    assert_null(p);
    mem_fail_after(0);
    block_table_free(table);
    page_pool_free(pool);
    model_free(m);
    free(t.logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_leading_logits_are_those_of_all),
        cmocka_unit_test(rows_do_not_depend_on_batch_threads_or_table),
        cmocka_unit_test(logits_of_many_rows_are_those_of_each_alone),
        cmocka_unit_test(pages_of_a_shared_prefix_give_the_same_bytes),
        cmocka_unit_test(a_value_that_is_not_finite_fails_its_own_sequence_only),
        cmocka_unit_test(a_full_pass_stays_in_its_scratch),
        cmocka_unit_test(a_position_past_the_context_is_refused),
        cmocka_unit_test(a_pass_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

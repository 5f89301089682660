/* A folder that was damaged, keys that collide, pages of another class, and everything at random: what is found is
 * right, whatever happened to the bytes. */
#include "tests/unit/disk_rig.h"
#include "tests/unit/store_rig.h"

#include "kernels/kernels.h"

#include <time.h>

#ifdef SANITIZED
enum { STRIDE = 23, SOAK_MS = 3000, COLLIDING = 600 };
#else
enum { STRIDE = 3, SOAK_MS = 8000, COLLIDING = 4000 };
#endif

static const char segment[] = "00000000.seg";

static void open_rig(struct store_rig *g, int n_pages)
{
    *g = (struct store_rig){.options.keep = KEEP_ALL, .options.codec = CODEC_SPLIT};
    store_rig_open(g, n_pages, rig_folder);
}

/* ---- damage ---- */

enum { N_PROMPTS = 3 };
static const int prompt_lengths[N_PROMPTS] = {150, 64, 20};

static const int32_t *prompt_of(int k)
{
    static int32_t tokens[N_PROMPTS][150];
    for (int i = 0; i < 150; i++)
        tokens[k][i] = 1000 * (k + 1) + i;
    return tokens[k];
}

/* All prompts; how many were found whole. */
static int whole(struct store_rig *g)
{
    int n = 0;
    for (int k = 0; k < N_PROMPTS; k++)
        n += rig_found(g, prompt_of(k), prompt_lengths[k]) == prompt_lengths[k];
    return n;
}

static uint8_t *make_folder(size_t *n)
{
    struct store_rig g;
    open_rig(&g, 8);
    assert_int_equal(whole(&g), 0);
    store_rig_close(&g);
    return rig_load(segment, n);
}

static void clear_folder(void)
{
    DIR *dir = opendir(rig_folder);
    for (struct dirent *x; (x = readdir(dir)) != NULL;)
        if (x->d_name[0] != '.')
            unlink(rig_path(x->d_name));
    closedir(dir);
}

/* A run over these bytes, and another one over what it leaves. Returns the prompts that were found whole. */
static int try_folder(const uint8_t *bytes, size_t n, int64_t *corrupt)
{
    struct store_rig g;
    clear_folder();
    rig_store(segment, bytes, n);
    open_rig(&g, 8);
    int found = whole(&g);
    rig_settle(&g);
    *corrupt += rig_stats(g.disk).corrupt;
    store_rig_close(&g);
    open_rig(&g, 8);
    if (whole(&g) < N_PROMPTS) { /* what the first run did not read, it did not find damaged */
        rig_settle(&g);
        assert_int_equal(whole(&g), N_PROMPTS);
    }
    store_rig_close(&g);
    return found;
}

static void flipped_bits_are_found_and_computed_again(void **state)
{
    (void)state;
    size_t n;
    uint8_t *bytes = make_folder(&n);
    int64_t corrupt = 0;
    int spoilt = 0, tried = 0;
    for (size_t at = 0; at < n; at += STRIDE, tried++) {
        uint8_t flip = (uint8_t)(1 << at % 8);
        bytes[at] ^= flip;
        spoilt += try_folder(bytes, n, &corrupt) < N_PROMPTS;
        bytes[at] ^= flip;
    }
    assert_int_equal(try_folder(bytes, n, &corrupt), N_PROMPTS);
    assert_true(corrupt >
                tried / 4); /* padding is not looked at; a bad head is a record less */
    assert_true(spoilt >= corrupt);
    free(bytes);
}

static void a_segment_may_end_anywhere(void **state)
{
    (void)state;
    size_t n;
    uint8_t *bytes = make_folder(&n);
    int64_t corrupt = 0;
    int most = 0;
    for (size_t at = 0; at <= n; at += STRIDE + 29 - at % 2) {
        int found = try_folder(bytes, at, &corrupt);
        assert_true(found >= most - 1);
        most = found > most ? found : most;
    }
    for (size_t at = 64; at <= n; at += 64) { /* records begin and end at these */
        (void)try_folder(bytes, at, &corrupt);
        (void)try_folder(bytes, at - 1, &corrupt);
    }
    free(bytes);
}

static void zeroes_in_a_segment_are_computed_again(void **state)
{
    (void)state;
    size_t n;
    uint8_t *bytes = make_folder(&n), *zeroed = malloc(n);
    int64_t corrupt = 0;
    for (size_t at = 0; at + 64 <= n; at += 64) {
        for (size_t size = 64; size <= n; size *= 8) {
            memcpy(zeroed, bytes, n);
            memset(zeroed + at, 0, at + size > n ? n - at : size);
            (void)try_folder(zeroed, n, &corrupt);
        }
    }
    free(zeroed);
    free(bytes);
}

/* ---- keys ---- */

static void colliding_keys_never_give_a_wrong_page(void **state)
{
    (void)state;
    static int32_t tokens[200];
    uint64_t seed = 7;
    int found = 0;
    struct store_rig g = {.options = {.keep = KEEP_ALL, .cut_key_bits = 8},
                          .disk_options.cut_key_bits = 8};
    store_rig_open(&g, 24, rig_folder);
    for (int i = 0; i < COLLIDING; i++) {
        int n = 1 + (int)(rig_random(&seed) % 200);
        for (int t = 0; t < n; t++)
            /* Many first pages, and the same pages behind them: where keys collide, parents tell. */
            tokens[t] = t % 64 == 0 ? (int32_t)(rig_random(&seed) % (t ? 2 : 64)) : t;
        found += rig_found(&g, tokens, n) > 0; /* looks at every position */
        if (i % 16 == 0)
            rig_settle(&g);
    }
    assert_true(found > COLLIDING / 8);
    assert_int_equal(rig_stats(g.disk).corrupt, 0);
    store_rig_close(&g);
}

/* ---- classes of codecs ---- */

static int found_by(enum codec_kind codec, uint8_t context, int n)
{
    struct store_rig g = {
        .options = {.keep = KEEP_ALL, .codec = codec, .context = {context, 1}}};
    store_rig_open(&g, 8, rig_folder);
    int found = rig_found(&g, prompt_of(0), n);
    store_rig_close(&g);
    return found;
}

static void a_lossy_page_is_never_found_by_an_exact_store_nor_the_other_way_round(void **state)
{
    (void)state;
    for (int same = 0; same < 2;
         same++) { /* the same context, too: the record says what it is */
        assert_int_equal(found_by(CODEC_SPLIT, 1, 150), 0);
        assert_int_equal(found_by(CODEC_Q8, same ? 1 : 2, 150), 0);
        assert_int_equal(found_by(CODEC_SPLIT, 1, 150), 150);
        assert_int_equal(found_by(CODEC_RAW, 1, 150), 150); /* both exact */
        clear_folder();
        assert_int_equal(found_by(CODEC_Q8, same ? 1 : 2, 150), 0);
        assert_int_equal(found_by(CODEC_Q4, same ? 1 : 3, 150), 0);
        assert_int_equal(found_by(CODEC_SPLIT, 1, 150), 0);
        assert_int_equal(found_by(CODEC_Q8, same ? 1 : 2, 150), 150);
        clear_folder();
    }
}

/* ---- rounded pages ---- */

enum { LAYERS = 2, HEADS = 2, HEAD_DIM = 32, LOSSY_N = 5 * PAGE_TOKENS + 9 };

struct lossy_rig {
    struct page_pool *pool;
    struct disk *disk;
    struct store *store;
    struct kv_counters counters;
    struct stability stability;
    size_t slice;
    bool exact;
};

static void open_lossy(struct lossy_rig *g, enum codec_kind codec, bool disk)
{
    struct err e = {0};
    *g = (struct lossy_rig){.slice = kern_page_slice_bytes(HEADS, HEAD_DIM),
                            .exact = !codec_is_lossy(codec)};
    assert_int_equal(page_pool_new(&g->pool, 8, LAYERS, g->slice, &e), 0);
    if (disk)
        g->disk = rig_open(NULL);
    struct kv_shape shape = {LAYERS, HEADS, HEAD_DIM, (g->slice + 63) & ~(size_t)63};
    if (codec_shrinks(&shape, codec))
        page_pool_use_small(g->pool, codec_slice_bytes(&shape, codec));
    struct store_options o = {.pool = g->pool,
                              .shape = shape,
                              .reuse = true,
                              .codec = codec,
                              .keep = KEEP_ALL,
                              .n_vocab = RIG_VOCAB,
                              .disk = g->disk,
                              .counters = &g->counters,
                              .stability = &g->stability};
    assert_int_equal(store_open(&g->store, &o, &e), 0);
}

static void close_lossy(struct lossy_rig *g)
{
    struct err e = {0};
    store_settle(g->store, true);
    assert_int_equal(page_pool_audit(g->pool, 0, &e), 0);
    store_close(g->store);
    disk_close(g->disk);
    page_pool_free(g->pool);
}

/* A page as a model makes it: from its tokens, and from all bytes of the page before, rounded as they are. */
static void make_page(const struct lossy_rig *g, const struct store_prompt *p, int page)
{
    uint8_t digest[HASH_BYTES] = {0};
    size_t bytes = page_pool_page_bytes(g->pool);
    if (page > 0) {
        page_id before = p->table->pages[page - 1];
        hash_bytes(page_data(g->pool, before), page_bytes(g->pool, before), digest);
    }
    uint64_t seed = (uint64_t)p->tokens[page * PAGE_TOKENS];
    for (int i = 0; i < 8; i++)
        seed = seed << 7 ^ seed >> 3 ^ digest[i];
    uint16_t *halves = page_data(g->pool, p->table->pages[page]);
    for (size_t i = 0; i < bytes / 2; i++) { /* finite, of both signs, between 2^-9 and 2^3 */
        uint64_t r = rig_random(&seed);
        halves[i] = (uint16_t)((r & 0x83ff) | (6 + r / 65536 % 12) << 10);
    }
}

/* The full pages of the prompt, into out; from parts_at on it is another one. Returns the tokens found. */
static int lossy_pages(struct lossy_rig *g, int n, int parts_at, uint8_t *out)
{
    struct err e = {0};
    struct store_prompt *p;
    static int32_t tokens[LOSSY_N];
    float logits[RIG_VOCAB] = {0};
    for (int i = 0; i < LOSSY_N; i++)
        tokens[i] = 31 * i + 5 + (i >= parts_at);
    assert_int_equal(store_hold(g->store, &p, tokens, n, 0, PREFIX_DOCUMENT, &e), 0);
    int ready = -1;
    while (ready != 1) {
        if (ready < 0)
            assert_int_equal(store_admit(g->store, p, n, true), 1);
        ready = store_ready(g->store, p);
    }
    int found = p->found;
    assert_true(g->exact || found % PAGE_TOKENS == 0 ||
                found == n); /* no part of a rounded page */
    for (int i = found / PAGE_TOKENS; i <= (n - 1) / PAGE_TOKENS && found < n; i++) {
        make_page(g, p, i);
        int end = (i + 1) * PAGE_TOKENS;
        store_computed(g->store, p, end < n ? end : n);
    }
    if (found < n)
        store_prompt_done(g->store, p, logits);
    size_t bytes = page_pool_page_bytes(g->pool);
    memset(out, 0, bytes * (size_t)(n / PAGE_TOKENS));
    for (int i = 0; i < n / PAGE_TOKENS; i++) {
        page_id id = p->table->pages[i];
        memcpy(out + (size_t)i * bytes, page_data(g->pool, id), page_bytes(g->pool, id));
    }
    store_drop(p);
    store_settle(g->store, true);
    return found;
}

static int used_by(const struct lossy_rig *g)
{
    struct page_stats s;
    page_pool_stats(g->pool, &s);
    return s.used;
}

/* What a prompt takes of the pool never grows past what it was admitted with, and shrinks to what is kept. */
static void small_pages_take_the_room_that_was_planned(void **state)
{
    (void)state;
    static const struct {
        int n, total, units;
    } cases[] = {{329, 329, 7}, {320, 320, 6}, {320, 321, 7}, {63, 63, 2},
                 {64, 64, 2},   {64, 65, 3},   {10, 200, 8},  {200, 210, 5}};
    struct lossy_rig g;
    struct err e = {0};
    static int32_t tokens[LOSSY_N];
    for (int i = 0; i < LOSSY_N; i++)
        tokens[i] = 31 * i + 5;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct store_prompt *p;
        int n = cases[i].n;
        open_lossy(&g, CODEC_SPLIT, false);
        assert_int_equal(store_units(g.store, n, cases[i].total), (cases[i].total + 63) / 64);
        close_lossy(&g);
        open_lossy(&g, CODEC_Q8, false);
        assert_int_equal(store_units(g.store, n, cases[i].total), cases[i].units);
        assert_int_equal(store_hold(g.store, &p, tokens, n, 0, PREFIX_DOCUMENT, &e), 0);
        assert_int_equal(store_admit(g.store, p, cases[i].total, true), 1);
        assert_int_equal(store_ready(g.store, p), 1);
        assert_int_equal(used_by(&g), cases[i].units);
        for (int page = 0; page <= (n - 1) / PAGE_TOKENS; page++) {
            int end = (page + 1) * PAGE_TOKENS;
            make_page(&g, p, page);
            store_computed(g.store, p, end < n ? end : n);
            assert_int_equal(page_is_small(g.pool, p->table->pages[page]), end <= n);
            assert_true(used_by(&g) <= cases[i].units);
        }
        int full = n / PAGE_TOKENS, pages = (cases[i].total + 63) / 64;
        assert_int_equal(used_by(&g), full + 2 * (pages - full));
        store_drop(p);
        assert_int_equal(used_by(&g), 0);
        close_lossy(&g);
    }
}

static void turn_over(struct lossy_rig *g)
{
    struct err e = {0};
    struct block_table *all = block_table_new(g->pool);
    assert_int_equal(block_table_reserve_small(all, store_room(g->store) * PAGE_TOKENS, &e), 0);
    block_table_free(all);
}

static void rounded_pages_are_the_same_cold_warm_and_computed_again(void **state)
{
    (void)state;
    static const enum codec_kind codecs[] = {CODEC_Q8, CODEC_K8V4, CODEC_Q4, CODEC_LAYERED,
                                             CODEC_SPLIT};
    enum { FULL = LOSSY_N / PAGE_TOKENS };
    for (size_t c = 0; c < sizeof(codecs) / sizeof(codecs[0]); c++) {
        struct lossy_rig g;
        open_lossy(&g, codecs[c], false);
        size_t bytes = page_pool_page_bytes(g.pool) * FULL;
        uint8_t *want = malloc(bytes), *got = malloc(bytes);
        assert_int_equal(lossy_pages(&g, LOSSY_N, LOSSY_N, want), 0);
        assert_int_equal(lossy_pages(&g, LOSSY_N, LOSSY_N, got), FULL * PAGE_TOKENS);
        assert_memory_equal(got, want, bytes);
        if (!g.exact)
            assert_int_equal(lossy_pages(&g, LOSSY_N, 200, got), 3 * PAGE_TOKENS);
        turn_over(&g);
        assert_int_equal(lossy_pages(&g, LOSSY_N, LOSSY_N, got), 0);
        assert_memory_equal(got, want, bytes);
        close_lossy(&g);
        for (int night = 0; night < 2; night++) {
            open_lossy(&g, codecs[c], true);
            assert_int_equal(lossy_pages(&g, LOSSY_N, LOSSY_N, got), night ? LOSSY_N : 0);
            assert_memory_equal(got, want, bytes);
            turn_over(&g);
            assert_int_equal(lossy_pages(&g, LOSSY_N, LOSSY_N, got), LOSSY_N);
            assert_memory_equal(got, want, bytes);
            /* Another end: the pages before it are loaded, the rest is computed from them. */
            struct prefix_keys k;
            struct err e = {0};
            int32_t tokens[LOSSY_N];
            for (int i = 0; i < LOSSY_N; i++)
                tokens[i] = 31 * i + 5;
            assert_int_equal(
                prefix_keys_make(&k, (uint8_t[HASH_BYTES]){0}, tokens, LOSSY_N, &e), 0);
            turn_over(&g);
            disk_remove(g.disk, prefix_key(&k, 3));
            prefix_keys_release(&k);
            assert_int_equal(lossy_pages(&g, LOSSY_N, LOSSY_N, got), 3 * PAGE_TOKENS);
            assert_memory_equal(got, want, bytes);
            close_lossy(&g);
        }
        free(want);
        free(got);
        clear_folder();
    }
}

/* ---- everything at random ---- */

enum { SLOTS = 5, SOAK_LONGEST = 420, SOAK_PAGES = 24, NIGHTS = 10 };

struct slot {
    int32_t tokens[SOAK_LONGEST];
    struct store_prompt *p;
    bool ready, parked;
};

static uint64_t soak_seed;

static int any(int n)
{
    return (int)(rig_random(&soak_seed) % (uint64_t)n);
}

static void new_prompt(struct store_rig *g, struct slot *s)
{
    int n = any(4) ? 1 + any(SOAK_LONGEST) : 64 * (1 + any(6)) + any(3) - 1;
    for (int i = 0; i < n; i++) /* a few beginnings, which part in the middle of pages */
        s->tokens[i] = i % 50 == 0 ? any(i < 150 ? 2 : 4) : i;
    s->p = rig_hold(g, s->tokens, n);
}

/* One thing happens to a prompt. */
static void happen(struct store_rig *g, struct slot *s)
{
    float logits[RIG_VOCAB];
    if (!s->p) {
        new_prompt(g, s);
        return;
    }
    int n = s->p->keys.n_tokens;
    if (any(12) == 0) {
        store_drop(s->p);
        *s = (struct slot){.p = NULL};
    } else if (!s->p->table) {
        (void)store_admit(g->store, s->p, n, !s->parked);
    } else if (!s->ready) {
        if (store_ready(g->store, s->p) != 1)
            return;
        if (s->parked && any(8) == 0 && store_can_park(g->store)) { /* before it is whole */
            rig_logits(s->tokens, n, logits);
            store_park(g->store, s->p, logits);
            return;
        }
        rig_compute(g, s->p);
        s->p->found = n;
        s->ready = true;
    } else if (any(2) && store_can_park(g->store)) {
        rig_logits(s->tokens, n, logits);
        store_park(g->store, s->p, logits);
        s->parked = true;
        s->ready = false;
    } else {
        store_drop(s->p);
        *s = (struct slot){.p = NULL};
    }
}

static void flip_somewhere(void)
{
    DIR *dir = opendir(rig_folder);
    for (struct dirent *x; (x = readdir(dir)) != NULL;) {
        struct stat st;
        if (!strstr(x->d_name, ".seg") || any(3) || stat(rig_path(x->d_name), &st) != 0)
            continue;
        int fd = open(rig_path(x->d_name), O_RDWR);
        uint8_t byte;
        off_t at = st.st_size > 0 ? (off_t)(rig_random(&soak_seed) % (uint64_t)st.st_size) : 0;
        if (pread(fd, &byte, 1, at) == 1 && byte != 0) { /* no hole: that would take a block */
            byte ^= (uint8_t)(1 << any(8));
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        close(fd);
    }
    closedir(dir);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void random_use_of_a_folder_that_rots_never_finds_a_wrong_page(void **state)
{
    (void)state;
    static const enum codec_kind codecs[] = {CODEC_SPLIT, CODEC_SPLIT, CODEC_RAW, CODEC_Q8};
    static struct slot slots[SLOTS];
    long long hits[KV_TIER_COUNT] = {0}, corrupt = 0, evicted = 0;
    int64_t end = now_ms() + SOAK_MS;
    soak_seed = 2026;
    for (int night = 0; night < NIGHTS || now_ms() < end; night++) {
        enum codec_kind codec = codecs[any(4)];
        struct store_rig g = {.own = any(2),
                              .disk_options.limit = 1 << 20,
                              .options = {.keep = (enum keep)any(2),
                                          .codec = codec,
                                          .context = {codec == CODEC_Q8}}};
        memset(slots, 0, sizeof(slots));
        store_rig_open(&g, SOAK_PAGES, rig_folder);
        for (int i = 0; i < 3000; i++) {
            happen(&g, &slots[any(SLOTS)]);
            if (any(200) == 0)
                flip_somewhere();
        }
        for (int i = 0; i < SLOTS; i++)
            store_drop(slots[i].p);
        rig_settle(&g);
        evicted += rig_stats(g.disk).evicted;
        corrupt += g.counters.pages_corrupt;
        for (int t = 0; t < KV_TIER_COUNT; t++)
            hits[t] += g.counters.hit_tokens[t];
        store_rig_close(&g);
    }
    assert_true(hits[KV_RAM] > 0 && hits[KV_DISK] > 0 && corrupt > 0 && evicted > 0);
}

#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, rig_setup_fast, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DISK(flipped_bits_are_found_and_computed_again),
        ON_DISK(a_segment_may_end_anywhere),
        ON_DISK(zeroes_in_a_segment_are_computed_again),
        ON_DISK(colliding_keys_never_give_a_wrong_page),
        ON_DISK(a_lossy_page_is_never_found_by_an_exact_store_nor_the_other_way_round),
        ON_DISK(rounded_pages_are_the_same_cold_warm_and_computed_again),
        ON_DISK(small_pages_take_the_room_that_was_planned),
        ON_DISK(random_use_of_a_folder_that_rots_never_finds_a_wrong_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What makes two models the same to the KV store, and the memory of digests between runs: it is believed only where
 * it must be right. */
#include "stages/base/log.h"
#include "stages/model/digest_cache.h"
#include "stages/model/model.h"
#include "tests/unit/gguf_writer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { FILE_MAX = 1 << 20, EMBD = 32, VOCAB = 259 };

static char folder[] = "/tmp/quire-identity-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][300];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void save(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Times of ten minutes ago: the change time stays, and is what makes a file too young. */
static void age(const char *path)
{
    struct timespec t[2] = {{.tv_sec = time(NULL) - 600}, {.tv_sec = time(NULL) - 600}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static struct model *opened(const char *path, bool verify)
{
    struct err e = {0};
    struct model *m;
    char name[300];
    snprintf(name, sizeof(name), "%s", path);
    struct model_config c = {.kind = MODEL_GGUF, .file = name, .verify = verify};
    if (model_open(&m, &c, &e))
        fail_msg("%s", e.msg);
    return m;
}

struct digest {
    uint8_t bytes[HASH_BYTES];
};

static struct digest context_with(const char *path, const struct page_use *use)
{
    struct err e = {0};
    struct digest d;
    struct model *m = opened(path, false);
    assert_int_equal(model_context_digest(m, use, d.bytes, &e), 0);
    model_free(m);
    return d;
}

static const struct page_use exact = {.codec = "exact", .attention = "full"};

static struct digest context_of(const char *path)
{
    return context_with(path, &exact);
}

/* ---- a model as small as they get, with its parts as parameters ---- */

struct small {
    const char *chat, *name, *first_token;
    float theta, eps, scale;
    int window, weight;
    bool turned; /* tensors in another order */
};

static const struct small usual = {"{{a}}", "one", "<a>", 10000, 1e-5f, 1, 0, 7, false};

static void put_number(struct gguf_writer *w, const char *key, uint32_t v)
{
    put_key(w, key, 4);
    put_u32(w, v);
}

static void put_real(struct gguf_writer *w, const char *key, float v)
{
    put_key(w, key, 6);
    put_f32(w, v);
}

static void put_word(struct gguf_writer *w, const char *key, const char *v)
{
    put_key(w, key, 8);
    put_str(w, v);
}

static void put_vocab(struct gguf_writer *w, const struct small *s)
{
    put_word(w, "tokenizer.ggml.model", "llama");
    put_array(w, "tokenizer.ggml.tokens", 8, VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        char name[16];
        snprintf(name, sizeof(name), "<0x%02X>", i - 3);
        put_str(w, i == 0 ? "<unk>" : i == 1 ? s->first_token : i == 2 ? "<b>" : name);
    }
    put_array(w, "tokenizer.ggml.scores", 6, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        put_f32(w, (float)-i);
}

static const char *small_file(const struct small *s)
{
    static const struct {
        const char *name;
        uint64_t rows;
    } tensors[] = {{"token_embd.weight", VOCAB},       {"output_norm.weight", 1},
                   {"blk.0.attn_norm.weight", 1},      {"blk.0.attn_q.weight", EMBD},
                   {"blk.0.attn_k.weight", EMBD},      {"blk.0.attn_v.weight", EMBD},
                   {"blk.0.attn_output.weight", EMBD}, {"blk.0.ffn_norm.weight", 1},
                   {"blk.0.ffn_gate.weight", EMBD},    {"blk.0.ffn_up.weight", EMBD},
                   {"blk.0.ffn_down.weight", EMBD}};
    enum { N = ARRAY_LEN(tensors) };
    struct gguf_writer *w = malloc(sizeof(*w));
    uint64_t offset = 0, at[N];
    put_header(w, 3, N, 16);
    put_word(w, "general.architecture", "llama");
    put_word(w, "general.name", s->name);
    put_word(w, "tokenizer.chat_template", s->chat);
    put_vocab(w, s);
    put_number(w, "llama.block_count", 1);
    put_number(w, "llama.embedding_length", EMBD);
    put_number(w, "llama.feed_forward_length", EMBD);
    put_number(w, "llama.attention.head_count", 2);
    put_number(w, "llama.context_length", 128);
    put_number(w, "llama.attention.sliding_window", (uint32_t)s->window);
    put_real(w, "llama.rope.freq_base", s->theta);
    put_real(w, "llama.attention.layer_norm_rms_epsilon", s->eps);
    put_word(w, "llama.rope.scaling.type", "linear");
    put_real(w, "llama.rope.scaling.factor", s->scale);
    for (int k = 0; k < N; k++) {
        int i = s->turned ? N - 1 - k : k;
        bool vector = tensors[i].rows == 1;
        put_tensor(w, tensors[i].name, vector ? 1 : 2, (uint64_t[]){EMBD, tensors[i].rows}, 0,
                   offset);
        at[i] = offset;
        offset += EMBD * tensors[i].rows * 4;
    }
    put_padding(w, 32);
    size_t data = w->len;
    assert_true(data + offset <= sizeof(w->data));
    for (int i = 0; i < N; i++)
        for (uint64_t k = 0; k < EMBD * tensors[i].rows * 4; k += 4)
            le32_put(w->data + data + at[i] + k, 0x3f000000u + (uint32_t)i);
    w->data[data + at[4]] = (uint8_t)s->weight;
    const char *path = in_folder("small.gguf");
    save(path, w->data, data + offset);
    free(w);
    return path;
}

static struct digest of_small(struct small s)
{
    return context_of(small_file(&s));
}

static bool same(struct digest a, struct digest b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static void all_that_changes_a_number_changes_the_digest(void **state)
{
    (void)state;
    struct digest d[8] = {of_small(usual)};
    struct small s[8];
    for (int i = 0; i < 8; i++)
        s[i] = usual;
    s[1].weight ^= 1;
    s[2].theta = 10001;
    s[3].first_token = "<c>";
    s[4].eps = 2e-5f;
    s[5].window = 64;
    s[6].scale = 2;
    s[7].window = 65;
    for (int i = 1; i < 8; i++) {
        d[i] = of_small(s[i]);
        for (int k = 0; k < i; k++)
            if (same(d[i], d[k]))
                fail_msg("variants %d and %d are the same", i, k);
    }
    assert_true(same(of_small(usual), d[0]));
}

static void all_else_leaves_the_digest_as_it_is(void **state)
{
    (void)state;
    struct digest d = of_small(usual);
    struct small s = usual;
    s.chat = "{{another}} template, longer";
    assert_true(same(of_small(s), d));
    s.name = "two";
    assert_true(same(of_small(s), d));
    s.turned = true;
    assert_true(same(of_small(s), d));
    assert_int_equal(rename(in_folder("small.gguf"), in_folder("other.gguf")), 0);
    assert_true(same(context_of(in_folder("other.gguf")), d));
}

static void each_hyperparameter_counts(void **state)
{
    (void)state;
    struct hparams h, was;
    uint8_t first[HASH_BYTES], now[HASH_BYTES];
    memset(&h, 0, sizeof(h));
    hparams_digest(&h, first);
    was = h;
#define CHANGED(change)                                                                        \
    do {                                                                                       \
        change;                                                                                \
        hparams_digest(&h, now);                                                               \
        assert_memory_not_equal(first, now, sizeof(now));                                      \
        h = was;                                                                               \
    } while (0)
    CHANGED(h.arch = ARCH_QWEN2);
    CHANGED(h.n_vocab = 1);
    CHANGED(h.n_layer = 1);
    CHANGED(h.n_embd = 1);
    CHANGED(h.n_ff = 1);
    CHANGED(h.n_head = 1);
    CHANGED(h.n_kv_head = 1);
    CHANGED(h.head_dim = 1);
    CHANGED(h.rms_eps = 1e-6f);
    CHANGED(h.embed_scale = 2);
    CHANGED(h.attn_scale = 2);
    CHANGED(h.neox = true);
    CHANGED(h.rot = 2);
    CHANGED(h.rope_base = 1);
    CHANGED(h.rope_base_local = 1);
    CHANGED(h.rope_linear = 2);
    CHANGED(h.rope_llama3 = true);
    CHANGED(h.qk_norm = true);
    CHANGED(h.qkv_bias = true);
    CHANGED(h.post_norms = true);
    CHANGED(h.gelu = true);
    CHANGED(h.tied = true);
    CHANGED(h.window = 1);
    CHANGED(h.local[MAX_LAYERS - 1] = 1);
#undef CHANGED
    snprintf(h.name, sizeof(h.name), "another");
    h.context_train = 5;
    hparams_digest(&h, now);
    assert_memory_equal(first, now, sizeof(now));
}

static void the_use_of_pages_counts(void **state)
{
    (void)state;
    const char *path = small_file(&usual);
    struct page_use grid = {"exact", false, "full", 512}, q8 = {"q8", true, "full", 512},
                    halves = {"q8", false, "full", 512},
                    other_grid = {"q8", true, "full", 1024}, q4 = {"q4", false, "full", 512},
                    sparse = {"exact", false, "block 64", 0};
    struct digest d = context_of(path), of_q8 = context_with(path, &q8);
    assert_false(same(of_q8, d));
    assert_false(same(context_with(path, &q4), of_q8));
    assert_false(same(context_with(path, &halves), of_q8));
    assert_false(same(context_with(path, &other_grid), of_q8));
    assert_false(same(context_with(path, &sparse), d));
    /* Exact pages do not depend on the passes that wrote them. */
    assert_true(same(context_with(path, &grid), d));
}

static void the_null_model_has_an_identity(void **state)
{
    (void)state;
    struct err e = {0};
    struct model *m;
    struct model_config c = {.kind = MODEL_NULL};
    struct digest a, b;
    struct page_use q8 = {"q8", false, "full", 512};
    assert_int_equal(model_open(&m, &c, &e), 0);
    assert_int_equal(model_context_digest(m, &exact, a.bytes, &e), 0);
    assert_int_equal(model_context_digest(m, &q8, b.bytes, &e), 0);
    assert_false(same(a, b));
    model_free(m);
}

/* ---- the cache ---- */

static const int64_t second_ns = 1000000000;

static struct model_digests digests_of(int seed)
{
    struct model_digests d;
    memset(d.file, seed, sizeof(d.file));
    memset(d.weights, seed + 1, sizeof(d.weights));
    return d;
}

static struct file_id id_of(const char *path)
{
    struct err e = {0};
    struct file_id id;
    assert_int_equal(file_id_of(path, &id, &e), 0);
    return id;
}

/* A file and its line in an empty cache; hashed a minute after the last change. */
static struct file_id remembered(const char *path, struct model_digests *d)
{
    unlink(in_folder("quire/digests"));
    save(path, "content", 7);
    struct file_id id = id_of(path);
    *d = digests_of(1);
    digest_cache_put(path, &id, id.ctime_ns + 60 * second_ns, d);
    return id;
}

static void a_file_that_is_the_same_is_remembered(void **state)
{
    (void)state;
    struct model_digests d, got;
    const char *path = in_folder("a.gguf");
    struct file_id id = remembered(path, &d);
    assert_true(digest_cache_find(path, &id, &got));
    assert_memory_equal(&got, &d, sizeof(d));
    struct file_id other[5] = {id, id, id, id, id};
    other[0].dev++;
    other[1].ino++;
    other[2].size++;
    other[3].mtime_ns++;
    other[4].ctime_ns++;
    for (int i = 0; i < 5; i++)
        assert_false(digest_cache_find(path, &other[i], &got));
    save(in_folder("b.gguf"), "content", 7);
    assert_false(digest_cache_find(in_folder("b.gguf"), &id, &got));
    assert_false(digest_cache_find(in_folder("absent.gguf"), &id, &got));
}

static void a_file_that_changed_just_now_is_not_remembered(void **state)
{
    (void)state;
    struct model_digests d = digests_of(3), got;
    const char *path = in_folder("young.gguf");
    save(path, "content", 7);
    age(path);
    struct file_id id = id_of(path);
    digest_cache_put(path, &id, id.ctime_ns + 2 * second_ns - 1, &d);
    assert_false(digest_cache_find(path, &id, &got));
    digest_cache_put(path, &id, id.ctime_ns - 60 * second_ns, &d); /* from the future */
    assert_false(digest_cache_find(path, &id, &got));
    digest_cache_put(path, &id, id.ctime_ns + 2 * second_ns, &d);
    assert_true(digest_cache_find(path, &id, &got));
}

static void a_line_with_any_byte_changed_is_a_miss(void **state)
{
    (void)state;
    struct model_digests d, got;
    const char *path = in_folder("a.gguf"), *cache = in_folder("quire/digests");
    struct file_id id = remembered(path, &d);
    struct buf text;
    struct err e = {0};
    buf_init(&text, 4096);
    assert_int_equal(file_read(cache, &text, &e), 0);
    for (size_t i = 0; i < text.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text.data[i] ^= (char)(1 << bit);
            save(cache, text.data, text.len);
            assert_false(digest_cache_find(path, &id, &got));
            text.data[i] ^= (char)(1 << bit);
        }
        save(cache, text.data, i); /* torn */
        assert_false(digest_cache_find(path, &id, &got));
    }
    save(cache, text.data, text.len);
    assert_true(digest_cache_find(path, &id, &got));
    buf_release(&text);
}

static void a_cache_that_is_not_ours_alone_is_a_miss(void **state)
{
    (void)state;
    struct model_digests d, got;
    const char *path = in_folder("a.gguf"), *cache = in_folder("quire/digests");
    struct file_id id = remembered(path, &d);
    assert_int_equal(chmod(cache, 0666), 0);
    assert_false(digest_cache_find(path, &id, &got));
    assert_int_equal(chmod(cache, 0644), 0);
    assert_true(digest_cache_find(path, &id, &got));
    assert_int_equal(rename(cache, in_folder("elsewhere")), 0);
    assert_int_equal(symlink(in_folder("elsewhere"), cache), 0);
    assert_false(digest_cache_find(path, &id, &got));
    assert_int_equal(unlink(cache), 0);
    assert_int_equal(mkfifo(cache, 0600), 0);
    assert_false(digest_cache_find(path, &id, &got)); /* and does not wait */
    assert_int_equal(unlink(cache), 0);
}

static void no_place_for_the_cache_is_no_error(void **state)
{
    (void)state;
    struct model_digests d = digests_of(5), got;
    const char *path = in_folder("a.gguf");
    struct file_id id = remembered(path, &d);
    setenv("XDG_CACHE_HOME", "/proc/self/none", 1);
    digest_cache_put(path, &id, id.ctime_ns + 60 * second_ns, &d);
    assert_false(digest_cache_find(path, &id, &got));
    setenv("XDG_CACHE_HOME", "relative", 1); /* as if it were not set */
    setenv("HOME", in_folder("home"), 1);
    digest_cache_put(path, &id, id.ctime_ns + 60 * second_ns, &d);
    assert_true(digest_cache_find(path, &id, &got));
    assert_int_equal(access(in_folder("home/.cache/quire/digests"), R_OK), 0);
    unsetenv("HOME");
    assert_false(digest_cache_find(path, &id, &got));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void the_cache_keeps_the_newest_of_few_hundred(void **state)
{
    (void)state;
    struct model_digests d, got;
    struct file_id first = remembered(in_folder("a.gguf"), &d), id;
    char name[32];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "many-%d", i);
        save(in_folder(name), "x", 1);
        id = id_of(in_folder(name));
        for (int twice = 0; twice < 2; twice++) { /* a path has one line */
            d = digests_of(i);
            digest_cache_put(in_folder(name), &id, id.ctime_ns + 60 * second_ns, &d);
        }
        if (i == 254)
            assert_true(digest_cache_find(in_folder("a.gguf"), &first, &got));
    }
    assert_false(digest_cache_find(in_folder("a.gguf"), &first, &got));
    assert_true(digest_cache_find(in_folder(name), &id, &got));
    assert_memory_equal(&got, &d, sizeof(d));
    snprintf(name, sizeof(name), "many-%d", 44);
    id = id_of(in_folder(name));
    assert_true(digest_cache_find(in_folder(name), &id, &got));
    unlink(in_folder("quire/digests"));
}

static struct digest file_digest(const char *path, bool verify)
{
    struct err e = {0};
    char hex[HASH_HEX];
    struct digest d;
    struct model *m = opened(path, verify);
    assert_int_equal(model_digest(m, hex, &e), 0);
    model_free(m);
    memcpy(d.bytes, hex, sizeof(d.bytes));
    return d;
}

static void a_model_believes_the_cache_unless_told_to_verify(void **state)
{
    (void)state;
    unlink(in_folder("quire/digests"));
    const char *path = small_file(&usual);
    struct digest right = file_digest(path, false);
    struct model_digests wrong = digests_of(0x11), got;
    struct file_id id = id_of(path);
    if (time(NULL) < id.ctime_ns / second_ns + 2) /* too young to be remembered */
        assert_int_equal(access(in_folder("quire/digests"), F_OK), -1);
    digest_cache_put(path, &id, id.ctime_ns + 60 * second_ns, &wrong);
    struct digest believed = file_digest(path, false);
    assert_memory_equal(believed.bytes, "11111111", 8);
    while (time(NULL) < id.ctime_ns / second_ns + 4) /* so that it may be remembered */
        usleep(100000);
    assert_true(same(file_digest(path, true), right));
    assert_true(digest_cache_find(path, &id, &got));
    assert_memory_not_equal(&got, &wrong, sizeof(got));
    assert_true(same(file_digest(path, false), right));
}

static int set_up(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    if (!mkdtemp(folder))
        return -1;
    return setenv("XDG_CACHE_HOME", folder, 1);
}

static int tear_down(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_changes_a_number_changes_the_digest),
        cmocka_unit_test(all_else_leaves_the_digest_as_it_is),
        cmocka_unit_test(each_hyperparameter_counts),
        cmocka_unit_test(the_use_of_pages_counts),
        cmocka_unit_test(the_null_model_has_an_identity),
        cmocka_unit_test(a_file_that_is_the_same_is_remembered),
        cmocka_unit_test(a_file_that_changed_just_now_is_not_remembered),
        cmocka_unit_test(a_line_with_any_byte_changed_is_a_miss),
        cmocka_unit_test(a_cache_that_is_not_ours_alone_is_a_miss),
        cmocka_unit_test(no_place_for_the_cache_is_no_error),
        cmocka_unit_test(the_cache_keeps_the_newest_of_few_hundred),
        cmocka_unit_test(a_model_believes_the_cache_unless_told_to_verify),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Packed weights in a folder: the same answers from them, and a miss, never a wrong byte, for whatever is done to them. */
#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/kv/page.h"
#include "stages/model/digest_cache.h"
#include "stages/model/model.h"
#include "stages/model/packed_cache.h"
#include "stages/model/packed_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 5 * PACKED_BLOCK + 777, ROWS = 40 };

static char folder[] = "/tmp/quire-packed-XXXXXX";
static uint8_t weights[BYTES];
static const uint8_t key[HASH_BYTES] = {1, 2, 3}, other_key[HASH_BYTES] = {1, 2, 4};

static const char *in_folder(const char *name)
{
    static char paths[4][300];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void path_of(const char *dir, const uint8_t k[HASH_BYTES], char out[400])
{
    char hex[HASH_HEX];
    hash_hex(k, hex);
    snprintf(out, 400, "%s/%s" PACKED_SUFFIX, dir, hex);
}

/* A folder of its own with nothing in it. */
static const char *fresh(void)
{
    static int n;
    char name[32];
    snprintf(name, sizeof(name), "f%d", n++);
    return in_folder(name);
}

static bool write_now(const char *dir, uint64_t limit, const uint8_t k[HASH_BYTES],
                      uint64_t bytes)
{
    const char *why;
    return packed_write_end(packed_write(dir, limit, k, weights, bytes, &why));
}

/* Is there a file that is taken, with the right bytes in it, when all of them are checked? */
static bool hit(const char *dir, const uint8_t k[HASH_BYTES], uint64_t bytes, bool all)
{
    const char *why;
    struct packed_map *p = packed_open(dir, k, bytes, all, &why);
    if (!p)
        return false;
    assert_null(why);
    assert_int_equal((uintptr_t)packed_data(p) % PACKED_ALIGN, 0);
    if (all)
        assert_memory_equal(packed_data(p), weights, bytes);
    packed_close(p);
    return true;
}

static void flip(const char *path, uint64_t at)
{
    uint8_t b;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &b, 1, (off_t)at), 1);
    b ^= 0x10;
    assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
    close(fd);
}

static int files_in(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d)) != NULL;)
        n += x->d_name[0] != '.';
    closedir(d);
    return n;
}

static void what_was_written_is_mapped(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {64, PACKED_BLOCK, PACKED_BLOCK + 1, BYTES};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const char *dir = fresh();
        assert_false(hit(dir, key, sizes[i], false));
        assert_true(write_now(dir, 0, key, sizes[i]));
        assert_true(hit(dir, key, sizes[i], false));
        assert_true(hit(dir, key, sizes[i], true));
        assert_false(hit(dir, other_key, sizes[i], true));
        assert_int_equal(files_in(dir), 1);
    }
}

static void another_model_or_layout_is_a_miss(void **state)
{
    (void)state;
    const char *dir = fresh();
    char a[400], b[400];
    assert_true(write_now(dir, 0, key, BYTES));
    path_of(dir, key, a);
    path_of(dir, other_key, b);
    assert_int_equal(rename(a, b), 0); /* by its name it is the one; by its head it is not */
    assert_false(hit(dir, other_key, BYTES, true));
    assert_int_equal(access(b, F_OK), -1);
    assert_true(write_now(dir, 0, key, BYTES));
    assert_false(hit(dir, key, BYTES - 1, true));
    assert_false(hit(dir, key, BYTES + PACKED_BLOCK, true));
    assert_true(hit(dir, key, BYTES, true)); /* a question for another size harms nothing */
}

/* Every byte before the weights, and some of each block of them. */
static void a_flipped_bit_is_found(void **state)
{
    (void)state;
    const char *dir = fresh();
    char path[400];
    path_of(dir, key, path);
    uint64_t head = PACKED_HEAD + 8 * packed_blocks(BYTES), data = packed_data_at(BYTES);
    for (uint64_t at = 0; at < head; at++) {
        if (access(path, F_OK) != 0)
            assert_true(write_now(dir, 0, key, BYTES));
        flip(path, at);
        assert_false(hit(dir, key, BYTES, false));
        assert_int_equal(access(path, F_OK), -1);
        at += at > 70 ? 6 : 3; /* they are slow to write */
    }
    for (uint64_t at = data; at < data + BYTES; at += PACKED_BLOCK / 2 + 11) {
        assert_true(write_now(dir, 0, key, BYTES));
        flip(path, at);
        assert_false(hit(dir, key, BYTES, true));
        assert_int_equal(access(path, F_OK), -1);
    }
}

static void what_a_sample_does_not_see_the_reader_does(void **state)
{
    (void)state;
    const char *dir = fresh(), *why;
    char path[400];
    path_of(dir, key, path);
    assert_true(write_now(dir, 0, key, BYTES));
    struct packed_map *p = packed_open(dir, key, BYTES, false, &why);
    assert_non_null(p);
    flip(path, packed_data_at(BYTES) + 2 * PACKED_BLOCK); /* after the sample */
    packed_read_ahead(p);
    for (int i = 0; i < 20000 && !packed_damaged(p); i++)
        usleep(5000);
    assert_true(packed_damaged(p));
    packed_close(p);
    assert_int_equal(access(path, F_OK), -1);
}

static void the_reader_stops_when_it_is_told_to(void **state)
{
    (void)state;
    const char *dir = fresh(), *why;
    assert_true(write_now(dir, 0, key, BYTES));
    for (int i = 0; i < 20; i++) {
        struct packed_map *p = packed_open(dir, key, BYTES, false, &why);
        assert_non_null(p);
        packed_read_ahead(p);
        assert_false(packed_damaged(p));
        packed_close(p);
    }
    assert_true(hit(dir, key, BYTES, true));
}

static void a_file_that_is_cut_or_longer_is_a_miss(void **state)
{
    (void)state;
    const char *dir = fresh();
    char path[400];
    path_of(dir, key, path);
    const uint64_t whole = packed_file_bytes(BYTES),
                   sizes[] = {0, 1, 63, 64, 4095, 4096, whole / 2, whole - 1, whole + 1};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        assert_true(write_now(dir, 0, key, BYTES)); /* replaces what is no good */
        assert_true(hit(dir, key, BYTES, true));
        assert_int_equal(truncate(path, (off_t)sizes[i]), 0);
        assert_false(hit(dir, key, BYTES, false));
    }
}

static void a_file_that_is_not_ours_alone_is_a_miss(void **state)
{
    (void)state;
    const char *dir = fresh();
    char path[400], away[400];
    path_of(dir, key, path);
    path_of(dir, other_key, away);
    assert_true(write_now(dir, 0, key, BYTES));
    assert_int_equal(chmod(path, 0664), 0);
    assert_false(hit(dir, key, BYTES, false));
    assert_int_equal(chmod(path, 0644), 0);
    assert_true(hit(dir, key, BYTES, false));
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(symlink(away, path), 0);
    assert_false(hit(dir, key, BYTES, false));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(hit(dir, key, BYTES, false)); /* and does not wait */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(hit(dir, key, BYTES, false));
}

static void what_was_used_longest_ago_makes_room(void **state)
{
    (void)state;
    const char *dir = fresh();
    uint8_t k[4][HASH_BYTES] = {{1}, {2}, {3}, {4}};
    uint64_t one = packed_file_bytes(BYTES), limit = 3 * one + 100;
    char path[400];
    for (int i = 0; i < 3; i++) {
        assert_true(write_now(dir, limit, k[i], BYTES));
        path_of(dir, k[i], path);
        struct timespec t[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    }
    assert_true(hit(dir, k[0], BYTES, false)); /* a use */
    FILE *f = fopen(in_folder("f-other"), "w");
    assert_non_null(f);
    fclose(f);
    assert_true(write_now(dir, limit, k[3], BYTES));
    assert_true(hit(dir, k[0], BYTES, false));
    assert_false(hit(dir, k[1], BYTES, false));
    assert_true(hit(dir, k[2], BYTES, false));
    assert_true(hit(dir, k[3], BYTES, false));
    assert_false(write_now(dir, one - 1, k[1], BYTES)); /* it alone would be too much */
    assert_int_equal(files_in(dir), 3);
}

static void a_mapped_file_may_be_pruned(void **state)
{
    (void)state;
    const char *dir = fresh(), *why;
    uint64_t one = packed_file_bytes(BYTES);
    assert_true(write_now(dir, 0, key, BYTES));
    struct packed_map *p = packed_open(dir, key, BYTES, false, &why);
    assert_non_null(p);
    assert_true(write_now(dir, one, other_key, BYTES));
    assert_false(hit(dir, key, BYTES, false));
    assert_memory_equal(packed_data(p), weights, BYTES);
    packed_close(p);
}

static void left_overs_and_files_of_others_are_told_apart(void **state)
{
    (void)state;
    const char *dir = fresh();
    char path[400], old[440], young[440], mine[440];
    assert_true(write_now(dir, 0, key, BYTES));
    path_of(dir, other_key, path);
    snprintf(old, sizeof(old), "%s.tmp.123", path);
    snprintf(young, sizeof(young), "%s.tmp.124", path);
    snprintf(mine, sizeof(mine), "%s/notes.tmp.125", dir);
    const char *const names[] = {old, young, mine};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct timespec t[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
        FILE *f = fopen(names[i], "w");
        assert_non_null(f);
        fclose(f);
        if (names[i] != young)
            assert_int_equal(utimensat(AT_FDCWD, names[i], t, 0), 0);
    }
    assert_true(write_now(dir, 0, key, BYTES));
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(young, F_OK), 0);
    assert_int_equal(access(mine, F_OK), 0);
}

static void no_place_is_no_error(void **state)
{
    (void)state;
    const char *why;
    static const char *const places[] = {"/proc/self/none", "/dev/null/x"};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        assert_null(packed_write(places[i], 0, key, weights, BYTES, &why));
        assert_non_null(why);
        assert_null(packed_open(places[i], key, BYTES, false, &why));
        assert_null(why);
    }
    assert_false(packed_write_end(NULL));
    packed_close(NULL);
}

/* ---- with a model ---- */

static struct model *loaded(const char *file, const char *dir, bool verify,
                            struct model_sizes *sizes)
{
    struct err e = {0};
    struct model *m;
    struct kernels k;
    char name[300];
    snprintf(name, sizeof(name), "%s", file);
    struct model_config c = {.kind = MODEL_GGUF, .file = name, .verify = verify};
    kernels_init(&k, kern_cpu_flags());
    if (model_open(&m, &c, &e))
        fail_msg("%s", e.msg);
    if (dir)
        model_use_packed(m, dir, 0);
    model_plan(m, ROWS, 1, sizes);
    if (model_load(m, &k, ROWS, 1, &e))
        fail_msg("%s", e.msg);
    return m;
}

static int logits_of(struct model *m, const struct model_sizes *s, float *logits, struct err *e)
{
    int32_t tokens[ROWS];
    struct page_pool *pool;
    for (int i = 0; i < ROWS; i++)
        tokens[i] = (7 * i + 3) % model_hparams(m)->n_vocab;
    assert_int_equal(page_pool_new(&pool, 2, s->n_layer, s->slice_bytes, e), 0);
    struct block_table *t = block_table_new(pool);
    assert_int_equal(block_table_reserve(t, ROWS, e), 0);
    struct forward_rows rows = {
        .tokens = tokens, .n = ROWS, .table = t, .want_logits = true, .logits = logits};
    int rc = model_forward(m, &rows, 1, e);
    block_table_free(t);
    page_pool_free(pool);
    return rc;
}

/* The digests of the file are remembered, though it is young. */
static void remember(const char *file, struct model *m)
{
    struct file_id id;
    struct err e = {0};
    struct model_digests d;
    char hex[HASH_HEX];
    assert_int_equal(model_digest(m, hex, &e), 0);
    assert_int_equal(file_id_of(file, &id, &e), 0);
    if (!digest_cache_find(file, &id, &d))
        fail_msg("the digest of %s is not remembered", file);
}

static void a_model_computes_the_same_from_the_folder(void **state)
{
    (void)state;
    static const char *const files[] = {
        "tests/vectors/tiny/llama.gguf", "tests/vectors/tiny/qwen2.gguf",
        "tests/vectors/tiny/qwen3.gguf", "tests/vectors/tiny/gemma3.gguf"};
    const char *dir = fresh();
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct model_sizes s;
        struct err e = {0};
        struct model *m = loaded(files[i], dir, false, &s);
        size_t n = (size_t)model_hparams(m)->n_vocab;
        float *first = mem_need(n * sizeof(float)), *second = mem_need(n * sizeof(float));
        assert_false(s.shared);
        assert_int_equal(logits_of(m, &s, first, &e), 0);
        remember(files[i], m);
        model_free(m); /* what it writes is there now */
        for (int verify = 0; verify < 2; verify++) {
            m = loaded(files[i], dir, verify, &s);
            assert_int_equal(s.shared, !verify); /* not known before the digest is computed */
            memset(second, 0, n * sizeof(float));
            assert_int_equal(logits_of(m, &s, second, &e), 0);
            assert_memory_equal(first, second, n * sizeof(float));
            model_free(m);
        }
        assert_int_equal(files_in(dir), (int)i + 1);
        free(first);
        free(second);
    }
}

static void damage_under_way_stops_the_run(void **state)
{
    (void)state;
    const char *file = "tests/vectors/tiny/llama.gguf", *dir = fresh();
    struct model_sizes s;
    struct err e = {0};
    char path[400] = "";
    model_free(loaded(file, dir, false, &s));
    DIR *d = opendir(dir);
    for (struct dirent *x; (x = readdir(d)) != NULL;)
        if (x->d_name[0] != '.')
            snprintf(path, sizeof(path), "%s/%s", dir, x->d_name);
    closedir(d);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);

    char name[300];
    snprintf(name, sizeof(name), "%s", file);
    struct model_config c = {.kind = MODEL_GGUF, .file = name};
    struct model *m;
    struct kernels k;
    kernels_init(&k, kern_cpu_flags());
    assert_int_equal(model_open(&m, &c, &e), 0);
    model_use_packed(m, dir, 0);
    model_plan(m, ROWS, 1, &s);
    assert_true(s.shared);
    flip(path, (uint64_t)st.st_size / 2 | 1); /* it was sound when it was opened */
    assert_int_equal(model_load(m, &k, ROWS, 1, &e), 0);
    float *logits = mem_need((size_t)model_hparams(m)->n_vocab * sizeof(float));
    int rc = 0;
    for (int i = 0; i < 20000 && rc == 0; i++) {
        rc = logits_of(m, &s, logits, &e);
        usleep(5000);
    }
    assert_int_equal(rc, -ERR_CORRUPT);
    assert_int_equal(e.reach, REACH_JOB);
    model_free(m);
    free(logits);
    model_free(loaded(file, dir, false, &s)); /* packs anew */
    assert_false(s.shared);
}

static int set_up(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    uint32_t x = 5;
    for (size_t i = 0; i < BYTES; i++) {
        x = x * 1664525 + 1013904223;
        weights[i] = (uint8_t)(x >> 24);
    }
    return mkdtemp(folder) && setenv("XDG_CACHE_HOME", folder, 1) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[400];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_mapped),
        cmocka_unit_test(another_model_or_layout_is_a_miss),
        cmocka_unit_test(a_flipped_bit_is_found),
        cmocka_unit_test(what_a_sample_does_not_see_the_reader_does),
        cmocka_unit_test(the_reader_stops_when_it_is_told_to),
        cmocka_unit_test(a_file_that_is_cut_or_longer_is_a_miss),
        cmocka_unit_test(a_file_that_is_not_ours_alone_is_a_miss),
        cmocka_unit_test(what_was_used_longest_ago_makes_room),
        cmocka_unit_test(a_mapped_file_may_be_pruned),
        cmocka_unit_test(left_overs_and_files_of_others_are_told_apart),
        cmocka_unit_test(no_place_is_no_error),
        cmocka_unit_test(a_model_computes_the_same_from_the_folder),
        cmocka_unit_test(damage_under_way_stops_the_run),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

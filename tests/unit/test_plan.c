/* The plan of a job: which limit applies, how many pages, what would fit; and what the machine says. */
#include "pipeline/plan.h"
#include "stages/ingest/keeper.h"

#include "stages/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB (1ull << 30)

struct fixture {
    struct job job;
    struct model *model;
    struct machine machine;
};

/* A job over the null model, whose pages are a few hundred bytes. */
static struct fixture open_null(const char *extra)
{
    struct fixture f = {.machine = {.available = 8 * GIB, .group = UINT64_MAX, .cpus = 3}};
    struct err e = {0};
    char text[1024];
    snprintf(text, sizeof(text), "model: {kind: null}\ningest: {from: .}\nwrite: {to: out}\n%s",
             extra);
    assert_int_equal(job_parse(&f.job, text, strlen(text), "/w/a.yaml", &e), 0);
    assert_int_equal(model_open(&f.model, &f.job.model, &e), 0);
    return f;
}

static void close_fixture(struct fixture *f)
{
    model_free(f->model);
    job_release(&f->job);
}

static void default_pool_holds_the_batch_at_full_context(void **state)
{
    (void)state;
    struct fixture f = open_null("decode: {batch: 5}\nprefill: {batch: 100}\n");
    struct plan p;
    struct err e = {0};
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(p.context, 8192);
    assert_int_equal(p.pages_per_sequence, 128);
    assert_int_equal(p.n_pages, 5 * 128);
    assert_int_equal(p.rows, 128); /* 100, in whole pages */
    assert_int_equal(p.threads, 3);
    assert_int_equal(plan_fits(&p, &e), 0);
    close_fixture(&f);
}

static void lines_add_up_to_the_total(void **state)
{
    (void)state;
    struct fixture f = open_null("");
    struct plan p;
    struct err e = {0};
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    uint64_t lines = 0, groups = 0;
    for (int i = 0; i < p.n_lines; i++)
        lines += p.lines[i].bytes;
    for (int g = 0; g < PLAN_GROUPS; g++)
        groups += p.groups[g];
    assert_true(lines == p.total && groups == p.total);
    assert_true(p.groups[PLAN_KV] == (uint64_t)p.n_pages * p.sizes.page_bytes);
    close_fixture(&f);
}

/* The tiny model, with this of the job's kv and decode. */
static struct fixture open_tiny(const char *extra)
{
    struct fixture f = {.machine = {.available = 8 * GIB, .group = UINT64_MAX, .cpus = 3}};
    struct err e = {0};
    char text[1024], here[512];
    assert_non_null(getcwd(here, sizeof(here)));
    snprintf(text, sizeof(text),
             "model: {file: %s/tests/vectors/tiny/llama.gguf, context: 512}\n"
             "ingest: {from: .}\nwrite: {to: out}\n%s",
             here, extra);
    if (job_parse(&f.job, text, strlen(text), "/w/a.yaml", &e) != 0 ||
        model_open(&f.model, &f.job.model, &e) != 0)
        fail_msg("%s", e.msg);
    return f;
}

static void pages_of_8_bits_are_what_the_pool_counts_in(void **state)
{
    (void)state;
    struct fixture f = open_tiny("kv: {codec: q8}\ndecode: {batch: 5, max_tokens: 100}\n");
    struct plan p;
    struct err e = {0};
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    const struct hparams *h = model_hparams(f.model);
    size_t small = kern_q8_slice_bytes(h->n_kv_head, h->head_dim);
    assert_int_equal(p.small_slice, small);
    assert_int_equal(p.page_bytes, (small * (size_t)h->n_layer + 4095) / 4096 * 4096);
    /* 8 pages, of which 3 may hold some of 100 tokens of answer, and those take two. */
    assert_int_equal(p.pages_per_sequence, 8 + 3);
    assert_int_equal(p.n_pages, 5 * 11);
    assert_true(p.groups[PLAN_KV] == (uint64_t)p.n_pages * p.page_bytes);
    close_fixture(&f);
    f = open_tiny("kv: {codec: q8}\ndecode: {max_tokens: 511}\n");
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(p.pages_per_sequence, 8 + 8); /* all of it may be answer */
    close_fixture(&f);
    f = open_tiny("kv: {codec: k8v4}\ndecode: {batch: 5, max_tokens: 100}\n");
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(p.small_slice, 0);
    assert_int_equal(p.pages_per_sequence, 8);
    assert_true(p.groups[PLAN_KV] == (uint64_t)p.n_pages * p.sizes.page_bytes);
    close_fixture(&f);
}

static void the_smallest_limit_applies_and_is_named(void **state)
{
    (void)state;
    struct plan p;
    struct err e = {0};
    struct fixture f = open_null("");
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_string_equal(p.limit_name, "free memory (MemAvailable)");
    f.machine.group = 4 * GIB;
    f.machine.group_name = "cgroup memory.high";
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_string_equal(p.limit_name, "cgroup memory.high");
    assert_true(p.limit == 4 * GIB);
    f.job.limits.memory = GIB;
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_string_equal(p.limit_name, "limits.memory");
    close_fixture(&f);
}

static void kv_memory_sets_the_pool_and_must_hold_one_sequence(void **state)
{
    (void)state;
    struct plan p;
    struct err e = {0};
    struct fixture f = open_null("");
    model_plan(f.model, 64, 1, &p.sizes);
    uint64_t page = p.sizes.page_bytes;
    f.job.kv.memory = 128 * page + page / 2;
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(p.n_pages, 128);
    f.job.kv.memory = 128 * page - 1;
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), -ERR_CONFIG);
    assert_non_null(strstr(e.msg, "kv.memory is too small"));
    close_fixture(&f);
}

static void a_default_pool_takes_at_most_half_of_the_limit(void **state)
{
    (void)state;
    struct plan p;
    struct err e = {0};
    struct fixture f = open_null("decode: {batch: 256}\n");
    model_plan(f.model, 64, 1, &p.sizes);
    f.machine.available = 600 * p.sizes.page_bytes;
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(p.n_pages, 300);
    assert_int_equal(plan_fits(&p, &e), -ERR_CONFIG);
    err_clear(&e);
    f.machine.available = 200 * p.sizes.page_bytes;
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), -ERR_CONFIG);
    assert_non_null(strstr(e.msg, "set kv.memory to at least"));
    close_fixture(&f);
}

static void what_it_says_would_fit_does_fit(void **state)
{
    (void)state;
    struct plan p, again;
    struct err e = {0};
    struct fixture f =
        open_null("decode: {batch: 4}\nkv: {memory: 64MiB}\nlimits: {memory: 160MiB}\n");
    f.job.ingest.isolation = ISOLATION_NO;
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(plan_fits(&p, &e), -ERR_CONFIG);
    assert_true(p.most_context > 0 && p.most_batch > 0);
    err_clear(&e);
    f.job.kv.memory = 0;
    f.job.model.context = p.most_context;
    assert_int_equal(plan_make(&again, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(plan_fits(&again, &e), 0);
    f.job.model.context = 0;
    f.job.decode.batch = p.most_batch;
    assert_int_equal(plan_make(&again, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(plan_fits(&again, &e), 0);
    close_fixture(&f);
}

static void what_reading_may_take_is_planned(void **state)
{
    (void)state;
    struct plan p, apart;
    struct err e = {0};
    struct fixture f = open_null("");
    assert_int_equal(plan_make(&apart, &f.job, f.model, &f.machine, &e), 0);
    f.job.ingest.memory = 64 << 20;
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), 0);
    assert_int_equal(apart.total - p.total, keeper_memory(&(struct ingest_config){
                                                .max_document = f.job.ingest.max_document}) -
                                                (64 << 20));
    close_fixture(&f);
}

static void refuses_a_context_over_training(void **state)
{
    (void)state;
    struct plan p;
    struct err e = {0};
    struct fixture f = open_null("");
    f.job.model.context = model_hparams(f.model)->context_train + 1;
    assert_int_equal(plan_make(&p, &f.job, f.model, &f.machine, &e), -ERR_CONFIG);
    assert_non_null(strstr(e.msg, "was trained for"));
    close_fixture(&f);
}

/* ---- the machine ---- */

static char root[] = "/tmp/quire-test-machine-XXXXXX";

static void put(const char *name, const char *text)
{
    struct err e = {0};
    char *path = file_join(root, name), *folder = file_parent(path);
    assert_int_equal(file_make_dirs(folder, &e), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(path);
    free(folder);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command);
}

static void reads_the_limits_of_all_groups_above_it(void **state)
{
    (void)state;
    struct machine m;
    put("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   2048 kB\n");
    put("proc/self/cgroup", "4:memory:/old\n0::/user/job\n");
    put("sys/fs/cgroup/user/job/memory.max", "max\n");
    put("sys/fs/cgroup/user/job/memory.high", "900000\n");
    put("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/user/memory.max", "800000\n");
    put("sys/fs/cgroup/user/cpu.max", "50000 100000\n");
    machine_read(&m, root);
    assert_int_equal(m.available, 2048 * 1024);
    assert_int_equal(m.group, 800000);
    assert_string_equal(m.group_name, "cgroup memory.max");
    assert_int_equal(m.cpus, 1); /* half a CPU is one thread */
    assert_true(m.quota == 0.5);
    assert_true(m.cpu_set >= 1 && m.online >= m.cpu_set);
}

static void what_cannot_be_read_does_not_limit(void **state)
{
    (void)state;
    struct machine m;
    put("proc/self/cgroup", "0::/gone\n");
    machine_read(&m, root);
    assert_true(m.available == UINT64_MAX && m.group == UINT64_MAX && m.cpus >= 1);
    assert_null(m.group_name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_pool_holds_the_batch_at_full_context),
        cmocka_unit_test(lines_add_up_to_the_total),
        cmocka_unit_test(pages_of_8_bits_are_what_the_pool_counts_in),
        cmocka_unit_test(the_smallest_limit_applies_and_is_named),
        cmocka_unit_test(kv_memory_sets_the_pool_and_must_hold_one_sequence),
        cmocka_unit_test(a_default_pool_takes_at_most_half_of_the_limit),
        cmocka_unit_test(what_it_says_would_fit_does_fit),
        cmocka_unit_test(what_reading_may_take_is_planned),
        cmocka_unit_test(refuses_a_context_over_training),
        cmocka_unit_test_setup_teardown(reads_the_limits_of_all_groups_above_it, make_root,
                                        drop_root),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_does_not_limit, make_root,
                                        drop_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

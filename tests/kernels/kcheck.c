/* kcheck [--table NAME] [--seed N] [--rounds N] [--long] [--bench]: every table that this CPU runs, or one,
 * against the reference, and timed. */
#include "tests/kernels/kcheck.h"

#include <string.h>

/* Slow builds do fewer rounds of the same checks. */
#ifdef NDEBUG
enum { DEFAULT_ROUNDS = 100 };
#else
enum { DEFAULT_ROUNDS = 16 };
#endif

struct kcheck kcheck;

int kcheck_add(struct kcheck_test *list, int n, void (*run)(void **), int arg,
               const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(list[n].name, sizeof list[n].name, format, args);
    va_end(args);
    list[n].run = run;
    list[n].arg = arg;
    return n + 1;
}

/* Random numbers of a test depend on the seed and its number, not on the tests before it. */
static int start_test(void **state)
{
    const struct kcheck_test *t = *state;
    uint64_t mark = 14695981039346656037u;
    for (const char *c = t->name; *c; c++)
        mark = (mark ^ (uint8_t)*c) * 1099511628211u;
    kcheck.state = (kcheck.seed * 0x9e3779b97f4a7c15u ^ mark) | 1;
    set_threads(2);
    return 0;
}

static const struct {
    const char *name;
    unsigned flags;
} all_tables[] = {
#if defined(__aarch64__)
    {"neon", KERN_CPU_NEON},
    {"dotprod", KERN_CPU_NEON | KERN_CPU_DOTPROD},
#else
    {"avx2", KERN_CPU_AVX2},
    {"avx512", KERN_CPU_AVX2 | KERN_CPU_AVX512},
#endif
};
enum { TABLES = sizeof all_tables / sizeof *all_tables };

/* The flags of those under test. */
static unsigned chosen[TABLES];

/* Those that this CPU has, or one; where it has none, the reference alone. */
static void choose_tables(const char *only)
{
    unsigned flags = kern_cpu_flags();
    for (int i = 0; i < TABLES; i++) {
        if (only && strcmp(only, all_tables[i].name) != 0)
            continue;
        if ((all_tables[i].flags & flags) == all_tables[i].flags)
            chosen[kcheck.n_tables++] = all_tables[i].flags;
        else
            printf("SKIP: this CPU has no %s\n", all_tables[i].name);
    }
    if (kcheck.n_tables == 0)
        kcheck.n_tables = 1;
}

void kcheck_take_table(int i)
{
    kernels_init(&kcheck.fast, chosen[i]);
    kernels_init_float_inputs(&kcheck.fast_float, chosen[i]);
}

static int run_table(void)
{
    enum { MOST = 128 };
    static struct kcheck_test list[MOST];
    static struct CMUnitTest tests[MOST];
    int n = kcheck_scalar_tests(list, 0);
    n = kcheck_rows_tests(list, n);
    n = kcheck_matmul_tests(list, n);
    n = kcheck_attn_tests(list, n);
    n = kcheck_attn_batch_tests(list, n);
    n = kcheck_pinned_tests(list, n);
    for (int i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){list[i].name, list[i].run, start_test, NULL, &list[i]};
    printf("kcheck: %s against ref, --table %s --seed %llu --rounds %d\n", kcheck.fast.name,
           kcheck.fast.name, (unsigned long long)kcheck.seed, kcheck.rounds);
    return _cmocka_run_group_tests(kcheck.fast.name, tests, (size_t)n, NULL, NULL);
}

/* What does not meet a table is checked with each of them again: it costs little. */
static int run_all(void)
{
    int failed = 0;
    for (int i = 0; i < kcheck.n_tables; i++) {
        kcheck_take_table(i);
        failed += run_table();
    }
    return failed;
}

static bool is_table(const char *name)
{
    for (int i = 0; i < TABLES; i++)
        if (!strcmp(name, all_tables[i].name))
            return true;
    return false;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: kcheck [--table NAME] [--seed N] [--rounds N] [--long] [--bench]\n");
    return 2;
}

int main(int argc, char **argv)
{
    bool bench = false;
    const char *table = NULL;
    kcheck.seed = 1;
    kcheck.rounds = DEFAULT_ROUNDS;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bench"))
            bench = true;
        else if (!strcmp(argv[i], "--long"))
            kcheck.all = true;
        else if (!strcmp(argv[i], "--table") && i + 1 < argc && is_table(argv[i + 1]))
            table = argv[++i];
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            kcheck.seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
            kcheck.rounds = atoi(argv[++i]);
        else
            return usage();
    }
    kernels_init(&kcheck.ref, 0);
    kernels_init_float_inputs(&kcheck.ref_float, 0);
    choose_tables(table);
    if (bench) {
        kcheck.state = kcheck.seed | 1;
        kcheck_bench();
        return 0;
    }
    return run_all();
}

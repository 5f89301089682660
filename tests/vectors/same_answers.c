/* A real model gives the same answers, byte for byte, however the work is arranged: batch of decode, rows of
 * prefill, queue depth, threads, reuse of prefixes, table of kernels; the reference over the first document only
 * because it is slow. --quick: two arrangements, and of the shorter documents only in sanitizer builds. */
#include "kernels/team.h"
#include "tests/unit/task_rig.h"

#include <omp.h>
#include <unistd.h>

static const char *const file = "samples/models/smollm2-135m-instruct-q4_1.gguf";
static bool quick;

enum { AVX2 = KERN_CPU_AVX2, AVX512 = KERN_CPU_AVX2 | KERN_CPU_AVX512 };

struct arrangement {
    int batch, rows, depth, threads;
    bool no_reuse;
    unsigned flags; /* of the table of kernels */
    int docs;
};

static const struct arrangement arrangements[] = {
    {.batch = 8, .rows = 512, .depth = 64, .threads = 2, .flags = AVX512, .docs = 3},
    {.batch = 1,
     .rows = 64,
     .depth = 1,
     .threads = 1,
     .flags = AVX2,
     .no_reuse = true,
     .docs = 3},
    {.batch = 5, .rows = 192, .depth = 64, .threads = 1, .flags = AVX512, .docs = 3},
    /* the last: it shortens what is compared */
    {.batch = 3, .rows = 128, .depth = 1, .threads = 2, .docs = 1},
};

static const char *const subjects[] = {
    "The council voted 5 to 4 for the new bridge over the river.",
    "Ann sold her bicycle to Tom for forty euros and a basket of pears.",
    "Rain fell for three days, and the water rose by two metres."};

static char *answers(const struct arrangement *a, double temperature, int most)
{
    int n_docs = a->docs < most ? a->docs : most;
    struct rig g;
    rig_init(&g);
    g.file = file;
    g.context = 600;
    g.chunk.tokens = 150;
    g.n_pages = 80;
    g.depth = a->depth;
    g.cpu_flags &= a->flags;
    g.prefill.batch = a->rows;
    g.decode.batch = a->batch;
    g.decode.max_tokens = 24;
    g.decode.temperature = temperature;
    g.decode.top_p = 0.9;
    g.kv.reuse = !a->no_reuse;
    omp_set_num_threads(a->threads); /* of the load, and of the scratch */
    struct team *team = team_new(a->threads);
    team_use(team);
    rig_open(&g);
    struct doc *docs[3];
    for (int i = 0; i < n_docs; i++) {
        char *text = calloc(1, 8000), *p = text;
        for (int k = 0; k < 2 + 16 * i; k++) /* the last needs two chunks and a reduce */
            p += sprintf(p, "%s That was on day %d.%s", subjects[i], k,
                         k % 3 == 2 ? "\n\n" : " ");
        docs[i] = rig_doc(text);
        free(text);
    }
    rig_run(&g, docs, n_docs);
    assert_int_equal(g.in[4].n, n_docs);
    char *out = calloc(1, 8192), *p = out;
    for (int d = 0; d < n_docs; d++)
        for (int i = 0; i < n_docs; i++) {
            const struct rec *r = g.in[4].at[i];
            assert_int_equal(r->fail.code, 0);
            if (r->doc->ordinal == d)
                p += sprintf(p, "%d (%d chunks, %d tokens, %s): %s\n", d, r->info->n_chunks,
                             r->answer.n_tokens, stopped_by_name(r->answer.stopped_by),
                             r->answer.text);
        }
    rig_close(&g);
    team_free(team);
    return out;
}

static void answers_are_the_same_in_every_arrangement(void **state)
{
    (void)state;
    if (access(file, R_OK) != 0) {
        printf("SKIP: %s is not there\n", file);
        skip();
    }
#ifdef SANITIZED
    const int most = quick ? 1 : 3;
#else
    const int most = 3;
#endif
    for (int t = 0; t < (quick ? 1 : 2); t++) {
        char *first = answers(&arrangements[0], t, most);
        printf("%s", first);
        for (size_t i = 1; i < (quick ? 2 : ARRAY_LEN(arrangements)); i++) {
            if (arrangements[i].flags & ~kern_cpu_flags()) {
                printf("SKIP arrangement %zu: this CPU has not got its table of kernels\n", i);
                continue;
            }
            char *other = answers(&arrangements[i], t, most);
            first[strlen(first) > strlen(other) ? strlen(other) : strlen(first)] =
                '\0'; /* fewer documents */
            assert_string_equal(other, first);
            free(other);
        }
        free(first);
    }
}

int main(int argc, char **argv)
{
    quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_same_in_every_arrangement)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

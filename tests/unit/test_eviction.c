/* What the eviction policies are worth: recorded traces of page look-ups are replayed with each policy, and with the
 * optimum, which knows the whole future.
 *
 * A request looks its pages up, first to last; it needs all of them at once, so none of them is evicted for
 * another. A page counts as found when all pages before it were found, too: a prefix that has lost its beginning
 * is of no use. */
#include "stages/kv/lru_k.h"
#include "stages/kv/next_use.h"

#include "stages/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_SECONDS = 5, START = 1790000000, MAX_REQUESTS = 4000, MAX_USES = 60000 };

struct trace {
    int n_requests, n_uses, n_pages, n_runs;
    int first[MAX_REQUESTS + 1]; /* request r looks up pages[first[r] .. first[r+1]) */
    int run_of[MAX_REQUESTS];
    uint32_t time_of[MAX_REQUESTS];
    int pages[MAX_USES];
    uint32_t next
        [MAX_USES]; /* number of the next request that looks this page up, or NEXT_USE_NEVER */
};

/* ---- traces ---- */

static void find_next_uses(struct trace *t)
{
    uint32_t *seen = mem_need((size_t)t->n_pages * sizeof(*seen));
    for (int i = 0; i < t->n_pages; i++)
        seen[i] = NEXT_USE_NEVER;
    for (int r = t->n_requests - 1; r >= 0; r--)
        for (int i = t->first[r]; i < t->first[r + 1]; i++) {
            t->next[i] = seen[t->pages[i]];
            seen[t->pages[i]] = (uint32_t)r;
        }
    free(seen);
}

static void add_use(struct trace *t, int page)
{
    assert_in_range(t->n_uses, 0, MAX_USES - 1);
    t->pages[t->n_uses++] = page;
    if (page >= t->n_pages)
        t->n_pages = page + 1;
}

static void end_request(struct trace *t, uint32_t time)
{
    assert_in_range(t->n_requests, 0, MAX_REQUESTS - 1);
    t->run_of[t->n_requests] = t->n_runs;
    t->time_of[t->n_requests] = START + time;
    t->first[++t->n_requests] = t->n_uses;
}

static struct trace *read_trace(const char *name)
{
    char path[128], line[4096];
    struct trace *t = mem_need(sizeof(*t));
    uint32_t time = 0;
    snprintf(path, sizeof(path), "tests/unit/data/traces/%s.txt", name);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot open %s", path);
    while (fgets(line, sizeof(line), f)) {
        unsigned start;
        if (sscanf(line, "run %u", &start) == 1) {
            time = start;
            t->n_runs++;
        } else if (line[0] >= '0' && line[0] <= '9') {
            for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
                int a, b;
                int n = sscanf(word, "%d-%d", &a, &b);
                for (int page = a; n > 0 && page <= (n == 2 ? b : a); page++)
                    add_use(t, page);
            }
            end_request(t, time);
            time += REQUEST_SECONDS;
        }
    }
    fclose(f);
    find_next_uses(t);
    return t;
}

/* ---- the cache and its policies ---- */

struct cache {
    const struct trace *trace;
    int request, capacity, n;
    bool *resident; /* [n_pages], as all below */
    int *asked_in;  /* the last request that looked the page up */
    uint32_t *next; /* what the future holds */
    int64_t *order; /* when it was used last */
    uint32_t (*times)[LRU_K];
    int *n_times;
    int64_t uses;
    struct next_use *heap;
    int64_t found, misses;
};

/* The page to give up, or -1: the new page is not kept. */
typedef int pick_fn(const struct cache *c);

static bool may_go(const struct cache *c, int page)
{
    return c->resident[page] && c->asked_in[page] != c->request;
}

static int pick_lru(const struct cache *c)
{
    int best = -1;
    for (int i = 0; i < c->trace->n_pages; i++)
        if (may_go(c, i) && (best < 0 || c->order[i] < c->order[best]))
            best = i;
    return best;
}

static int least_worth(const struct cache *c, bool keep_planned)
{
    const struct trace *t = c->trace;
    int best = -1;
    double least = 0;
    for (int i = 0; i < t->n_pages; i++) {
        if (!may_go(c, i))
            continue;
        if (keep_planned && c->next[i] != NEXT_USE_NEVER &&
            t->run_of[c->next[i]] == t->run_of[c->request])
            continue;
        double worth = lru_k_worth(c->times[i], c->n_times[i], t->time_of[c->request], 1);
        if (best < 0 || worth < least || (worth == least && c->order[i] < c->order[best])) {
            best = i;
            least = worth;
        }
    }
    return best;
}

static int pick_lru_k(const struct cache *c)
{
    return least_worth(c, false);
}

/* What this run will still ask for is pinned. */
static int pick_lru_k_planned(const struct cache *c)
{
    return least_worth(c, true);
}

static int pick_next_use(const struct cache *c)
{
    return next_use_pick(c->heap);
}

/* Belady: of all pages the one that is used last, found by looking at all. */
static int pick_optimum(const struct cache *c)
{
    int best = -1;
    for (int i = 0; i < c->trace->n_pages; i++)
        if (may_go(c, i) && (best < 0 || c->next[i] > c->next[best] ||
                             (c->next[i] == c->next[best] && c->order[i] < c->order[best])))
            best = i;
    return best;
}

static void keep(struct cache *c, int page, pick_fn *pick)
{
    if (c->n == c->capacity) {
        int victim = pick(c);
        if (victim < 0)
            return;
        assert_true(may_go(c, victim));
        c->resident[victim] = false;
        next_use_remove(c->heap, victim);
        c->n--;
    }
    c->resident[page] = true;
    c->n++;
}

static void serve(struct cache *c, int r, pick_fn *pick)
{
    const struct trace *t = c->trace;
    int found = 0;
    c->request = r;
    for (int i = t->first[r]; i < t->first[r + 1]; i++) {
        c->asked_in[t->pages[i]] = r;
        next_use_remove(c->heap, t->pages[i]);
    }
    while (t->first[r] + found < t->first[r + 1] && c->resident[t->pages[t->first[r] + found]])
        found++;
    c->found += found;
    for (int i = t->first[r]; i < t->first[r + 1]; i++)
        if (!c->resident[t->pages[i]]) {
            c->misses++;
            keep(c, t->pages[i], pick);
        }
    for (int i = t->first[r + 1] - 1; i >= t->first[r];
         i--) { /* the end first: it goes first */
        int page = t->pages[i];
        c->order[page] = c->uses++;
        c->next[page] = t->next[i];
        c->n_times[page] = lru_k_use(c->times[page], c->n_times[page], t->time_of[r]);
        if (c->resident[page])
            next_use_set(c->heap, page, t->next[i], true);
    }
}

/* Returns the share of the look-ups that were found; *misses counts pages that were not there. */
static double replay(const struct trace *t, int capacity, pick_fn *pick, int64_t *misses)
{
    size_t n = (size_t)t->n_pages;
    struct cache c = {
        .trace = t,
        .capacity = capacity,
        .resident = mem_need(n * sizeof(bool)),
        .asked_in = mem_need(n * sizeof(int)),
        .next = mem_need(n * sizeof(uint32_t)),
        .order = mem_need(n * sizeof(int64_t)),
        .times = mem_need(n * sizeof(*c.times)),
        .n_times = mem_need(n * sizeof(int)),
        .heap = next_use_new(t->n_pages),
    };
    for (int r = 0; r < t->n_requests; r++)
        serve(&c, r, pick);
    free(c.resident);
    free(c.asked_in);
    free(c.next);
    free(c.order);
    free(c.times);
    free(c.n_times);
    next_use_free(c.heap);
    *misses = c.misses;
    return (double)c.found / t->n_uses;
}

/* ---- the traces ---- */

struct ratios {
    double lru, lru_k, planned, next_use, optimum;
};

static struct ratios ratios_of(const char *name, int capacity)
{
    struct trace *t = read_trace(name);
    int64_t misses;
    struct ratios r = {
        .lru = replay(t, capacity, pick_lru, &misses),
        .lru_k = replay(t, capacity, pick_lru_k, &misses),
        .planned = replay(t, capacity, pick_lru_k_planned, &misses),
        .optimum = replay(t, capacity, pick_optimum, &misses),
        .next_use = replay(t, capacity, pick_next_use, &misses),
    };
    assert_true(r.next_use == r.optimum); /* it is told the future, of later runs too */
    /* No prefix lost its beginning: what was there was found. */
    assert_true(r.next_use == (double)(t->n_uses - misses) / t->n_uses);
    print_message("%-20s %5d of %5d pages  lru %5.1f %%  lru-k %5.1f %%  lru-k, plan pinned "
                  "%5.1f %%  next use "
                  "%5.1f %%  optimum %5.1f %%\n",
                  name, capacity, t->n_pages, 100 * r.lru, 100 * r.lru_k, 100 * r.planned,
                  100 * r.next_use, 100 * r.optimum);
    assert_true(r.optimum >= r.lru && r.optimum >= r.lru_k && r.optimum >= r.planned);
    free(t);
    return r;
}

static void test_within_a_run_next_use_is_the_optimum(void **state)
{
    (void)state;
    static const char *const names[] = {"questions-in-turn", "questions-shuffled",
                                        "map-reduce"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (int capacity = 40; capacity <= 640; capacity *= 2) {
            struct ratios r = ratios_of(names[i], capacity);
            assert_true(r.next_use == r.optimum);
        }
}

static void test_with_questions_in_no_order_next_use_finds_much_more_than_lru(void **state)
{
    (void)state;
    struct ratios r = ratios_of("questions-shuffled", 320);
    assert_true(r.next_use >= 1.3 * r.lru);
}

static void test_over_nights_lru_k_is_never_worse_than_lru(void **state)
{
    (void)state;
    static const char *const names[] = {"nightly-changing", "nightly-one-off", "nightly-large",
                                        "nightly-mixed"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (int capacity = 100; capacity <= 800; capacity *= 2) {
            struct ratios r = ratios_of(names[i], capacity);
            assert_true(r.lru_k >= r.lru);
            assert_true(r.planned >= r.lru);
        }
}

static void test_one_off_text_does_not_push_out_what_every_night_needs(void **state)
{
    (void)state;
    struct ratios r = ratios_of("nightly-one-off", 400);
    assert_true(r.lru_k >= r.lru + 0.1);
}

static void
test_pinning_what_a_run_will_still_ask_saves_an_archive_that_does_not_fit(void **state)
{
    (void)state;
    struct ratios r = ratios_of("nightly-large", 500);
    assert_true(r.planned >= r.lru_k + 0.2);
}

/* ---- the optimum is one ---- */

enum { TINY_PAGES = 7, TINY_REQUESTS = 9, TINY_CAPACITY = 4 };

/* best[r][held]: fewest misses of the requests from r on with the pages `held` in memory. Every set that could be
 * kept is tried. */
static int fewest_misses(const unsigned want[TINY_REQUESTS],
                         int best[TINY_REQUESTS + 1][1 << TINY_PAGES])
{
    for (int r = TINY_REQUESTS; r >= 0; r--)
        for (unsigned held = 0; held < 1u << TINY_PAGES; held++) {
            best[r][held] = r == TINY_REQUESTS ? 0 : 1 << 20;
            for (unsigned kept = 0; r < TINY_REQUESTS && kept < 1u << TINY_PAGES; kept++) {
                unsigned at_hand = held | want[r];
                if ((kept & at_hand) != kept || (kept & want[r]) != want[r] ||
                    __builtin_popcount(kept) > TINY_CAPACITY)
                    continue;
                int misses = __builtin_popcount(want[r] & ~held) + best[r + 1][kept];
                if (misses < best[r][held])
                    best[r][held] = misses;
            }
        }
    return best[0][0];
}

static void test_no_choice_of_victims_misses_less_than_next_use(void **state)
{
    (void)state;
    static int best[TINY_REQUESTS + 1][1 << TINY_PAGES];
    uint32_t seed = 2026;
    struct trace *t = mem_need(sizeof(*t));
    for (int round = 0; round < 300; round++) {
        unsigned want[TINY_REQUESTS];
        memset(t, 0, sizeof(*t));
        t->n_pages = TINY_PAGES;
        for (int r = 0; r < TINY_REQUESTS; r++) {
            want[r] = 0;
            for (int i = 0; i < 3; i++) {
                seed = seed * 1664525 + 1013904223;
                want[r] |= 1u << (seed >> 20) % TINY_PAGES;
            }
            for (int page = 0; page < TINY_PAGES; page++)
                if (want[r] >> page & 1)
                    add_use(t, page);
            end_request(t, (uint32_t)r);
        }
        find_next_uses(t);
        int64_t by_next_use, by_optimum;
        replay(t, TINY_CAPACITY, pick_next_use, &by_next_use);
        replay(t, TINY_CAPACITY, pick_optimum, &by_optimum);
        assert_int_equal(by_next_use, fewest_misses(want, best));
        assert_int_equal(by_optimum, by_next_use);
    }
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_within_a_run_next_use_is_the_optimum),
        cmocka_unit_test(test_with_questions_in_no_order_next_use_finds_much_more_than_lru),
        cmocka_unit_test(test_over_nights_lru_k_is_never_worse_than_lru),
        cmocka_unit_test(test_one_off_text_does_not_push_out_what_every_night_needs),
        cmocka_unit_test(
            test_pinning_what_a_run_will_still_ask_saves_an_archive_that_does_not_fit),
        cmocka_unit_test(test_no_choice_of_victims_misses_less_than_next_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

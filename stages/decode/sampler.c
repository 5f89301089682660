#include "stages/decode/sampler.h"

#include "kernels/kernels.h"
#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { LANES = 16, RADIX_BITS = 11, RADIX = 1 << RADIX_BITS, PASSES = 3 };

int sampler_init(struct sampler *s, const struct decode_config *c, int n_vocab, struct err *e)
{
    *s = (struct sampler){.n_vocab = n_vocab,
                          .top_k = c->top_k,
                          .temperature = (float)c->temperature,
                          .penalty = (float)c->repetition_penalty,
                          .top_p = c->top_p,
                          .min_p = c->min_p};
    size_t n = (size_t)n_vocab;
    bool draws = s->temperature > 0;
    if (s->penalty != 1)
        s->seen = mem_alloc(n);
    if (draws) {
        s->list = mem_alloc(n * sizeof(*s->list));
        s->other = mem_alloc(n * sizeof(*s->other));
    }
    if ((s->penalty == 1 || s->seen) && (!draws || (s->list && s->other)))
        return 0;
    sampler_release(s);
    return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for sampling from %d tokens", n_vocab);
}

void sampler_release(struct sampler *s)
{
    free(s->seen);
    free(s->list);
    free(s->other);
    *s = (struct sampler){0};
}

double sampler_uniform(uint64_t seed, uint64_t position)
{
    uint64_t x = seed + (position + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

static void mark_seen(struct sampler *s, const int32_t *answer, int n, uint8_t mark)
{
    for (int i = 0; i < n; i++)
        s->seen[answer[i]] = mark;
}

static float penalised(const struct sampler *s, float logit)
{
    return logit > 0 ? logit / s->penalty : logit * s->penalty;
}

/* A token that the answer has several times is penalised once. */
static void penalise(struct sampler *s, float *logits, const int32_t *answer, int n)
{
    for (int i = 0; i < n; i++)
        if (!s->seen[answer[i]]) {
            s->seen[answer[i]] = 1;
            logits[answer[i]] = penalised(s, logits[answer[i]]);
        }
    mark_seen(s, answer, n, 0);
}

static void penalise_some(struct sampler *s, struct logit *top, int n_top,
                          const int32_t *answer, int n)
{
    mark_seen(s, answer, n, 1);
    for (int i = 0; i < n_top; i++)
        if (s->seen[top[i].id])
            top[i].value = penalised(s, top[i].value);
    mark_seen(s, answer, n, 0);
    leading_order(top, n_top);
}

/* Rises where the logit falls, so that a stable sort by it leaves equal logits in the order of ids. */
static uint32_t sort_key(float logit)
{
    float zero = logit + 0.0f; /* -0 and +0 are equal logits */
    uint32_t bits;
    memcpy(&bits, &zero, sizeof(bits));
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

/* Least significant digit first: stable, linear, and no comparison to get wrong. */
static void sort(struct sampler *s, int n)
{
    for (int pass = 0; pass < PASSES; pass++) {
        int shift = pass * RADIX_BITS, at[RADIX] = {0};
        for (int i = 0; i < n; i++)
            at[sort_key(s->list[i].logit) >> shift & (RADIX - 1)]++;
        for (int i = 0, sum = 0; i < RADIX; i++) {
            int count = at[i];
            at[i] = sum;
            sum += count;
        }
        for (int i = 0; i < n; i++)
            s->other[at[sort_key(s->list[i].logit) >> shift & (RADIX - 1)]++] = s->list[i];
        struct candidate *sorted = s->other;
        s->other = s->list;
        s->list = sorted;
    }
}

/* With top_k, only those at or above the k-th largest need sorting: the first digit of the key finds a
 * border with at least k before it. */
static int collect(struct sampler *s, const float *logits)
{
    int count[RADIX] = {0}, shift = 2 * RADIX_BITS, last = RADIX - 1;
    if (s->top_k > 0) {
        for (int i = 0; i < s->n_vocab; i++)
            if (logits[i] == logits[i])
                count[sort_key(logits[i]) >> shift]++;
        last = 0;
        for (int sum = count[0]; sum < s->top_k && last < RADIX - 1;)
            sum += count[++last];
    }
    int n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (logits[i] == logits[i] && (int)(sort_key(logits[i]) >> shift) <= last)
            s->list[n++] = (struct candidate){.logit = logits[i], .id = i};
    return n;
}

static void weigh(struct sampler *s, int n)
{
    float lane[LANES] = {0}, top = s->list[0].logit;
    for (int i = 0; i < n; i++) {
        s->list[i].p = kern_exp((s->list[i].logit - top) / s->temperature);
        lane[i % LANES] += s->list[i].p;
    }
    for (int h = LANES / 2; h > 0; h /= 2)
        for (int l = 0; l < h; l++)
            lane[l] += lane[l + h];
    float r = 1 / lane[0];
    for (int i = 0; i < n; i++)
        s->list[i].p *= r;
}

static int cut_top_p(const struct sampler *s, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += s->list[i].p;
        if (sum >= s->top_p)
            return i + 1;
    }
    return n;
}

static int cut_min_p(const struct sampler *s, int n)
{
    double least = s->min_p * s->list[0].p;
    while (n > 1 && s->list[n - 1].p < least)
        n--;
    return n;
}

static int32_t draw(const struct sampler *s, int n, double u)
{
    double sum = 0, total = 0;
    for (int i = 0; i < n; i++)
        total += s->list[i].p;
    for (int i = 0; i < n; i++) {
        sum += s->list[i].p;
        if (sum > u * total)
            return s->list[i].id;
    }
    return s->list[0].id;
}

/* What is drawn from the first `left` of the list, which is in order. */
static int32_t pick(struct sampler *s, int left, uint64_t seed, int position)
{
    if (s->top_k > 0 && left > s->top_k)
        left = s->top_k;
    weigh(s, left);
    if (s->top_p < 1)
        left = cut_top_p(s, left);
    if (s->min_p > 0)
        left = cut_min_p(s, left);
    return draw(s, left, sampler_uniform(seed, (uint64_t)position));
}

int32_t sampler_next(struct sampler *s, float *logits, const int32_t *answer, int n,
                     uint64_t seed)
{
    if (s->penalty != 1)
        penalise(s, logits, answer, n);
    if (!(s->temperature > 0))
        return leading_first(logits, s->n_vocab);
    int left = collect(s, logits);
    if (left == 0)
        return 0;
    sort(s, left);
    return pick(s, left, seed, n);
}

/* A penalty makes logits less, and a token that it leaves alone keeps its place before those that it does not. So each token
 * of the answer can bring one more among the first k, no more. One that makes logits greater can bring any. */
int sampler_leading(const struct sampler *s, int n)
{
    int k = s->temperature > 0 ? s->top_k : 1;
    if (k == 0 || s->penalty < 1)
        return 0;
    int64_t all = (int64_t)k + (s->penalty > 1 ? n : 0);
    return all <= LEADING_MOST && all <= s->n_vocab ? (int)all : 0;
}

int32_t sampler_next_of(struct sampler *s, struct logit *top, const int32_t *answer, int n,
                        uint64_t seed)
{
    int n_top = sampler_leading(s, n);
    if (s->penalty != 1)
        penalise_some(s, top, n_top, answer, n);
    if (!(s->temperature > 0))
        return top[0].id;
    for (int i = 0; i < n_top; i++)
        s->list[i] = (struct candidate){.logit = top[i].value, .id = top[i].id};
    return pick(s, n_top, seed, n);
}

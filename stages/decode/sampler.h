/* stages/decode/sampler.h - from the logits of one position to the next token.
 *
 * What:   repetition penalty -> temperature -> top_k -> top_p -> min_p -> draw, always in this order.
 *         Temperature 0: penalty, then the largest logit; the lowest id wins ties.
 * Rules:  1. The result depends on the arguments only: not on the batch, the order of calls or threads.
 *         2. Candidates are ordered by logit falling, then id rising; all cuts keep a front part.
 *         3. Weights are e_i = kern_exp((l_i - l_max) / temperature); their sum over what top_k left is
 *            taken in the 16 virtual lanes of docs/kernels.md; p_i = e_i * (1 / sum). Running sums over
 *            the order of candidates are in double.
 *         4. Logits that are NaN are no candidates.
 *         5. The greatest logits, as many as sampler_leading() says, give the token that all of them give.
 * Thread: one sampler belongs to one thread.
 * Read:   docs/tasks.md, Sampling.
 * Source: top-p is Holtzman et al. 2020, min-p Nguyen et al. 2024, the penalty Keskar et al. 2019. The
 *         random numbers are SplitMix64 (Steele, Lea, Flood 2014) used as a counter-based generator.
 */
#ifndef QUIRE_DECODE_SAMPLER_H
#define QUIRE_DECODE_SAMPLER_H

#include "stages/base/err.h"
#include "stages/decode/decode_opts.h"
#include "stages/model/leading.h"

#include <stdbool.h>
#include <stdint.h>

struct candidate {
    float logit, p;
    int32_t id;
};

struct sampler {
    int n_vocab, top_k;
    float temperature, penalty;
    double top_p, min_p;
    uint8_t *seen;           /* [n_vocab], all zero between calls */
    struct candidate *list;  /* [n_vocab] */
    struct candidate *other; /* [n_vocab], for sorting */
};

/* Takes the numbers of c. Memory for sorting is taken only where a draw needs it. -ERR_NOMEM, reach JOB. */
int sampler_init(struct sampler *s, const struct decode_config *c, int n_vocab,
                 struct err *e) MUST_CHECK;
void sampler_release(struct sampler *s);

/* The token after `answer` (n tokens so far). logits [n_vocab] are changed by the penalty. seed is the
 * request's; n is the position that the random number belongs to. */
int32_t sampler_next(struct sampler *s, float *logits, const int32_t *answer, int n,
                     uint64_t seed);

/* How many of the greatest logits decide the next token of an answer of n so far; at most LEADING_MOST and n_vocab. 0: all. */
int sampler_leading(const struct sampler *s, int n);
/* As sampler_next(), of these: top [sampler_leading()] in the order of leading.h; the penalty changes them. */
int32_t sampler_next_of(struct sampler *s, struct logit *top, const int32_t *answer, int n,
                        uint64_t seed);

/* The random number of (seed, position): uniform on [0, 1), a multiple of 2^-53. */
double sampler_uniform(uint64_t seed, uint64_t position);

#endif

/* pipeline/estimate.h - how long a document will take, from how fast this run has been so far.
 *
 * What:   pure: no clock, no state. Used only to leave out what cannot be done before limits.deadline.
 * Rules:  1. Rather too long: every answer is taken to have all of its tokens, and what runs beside it to go on.
 *         2. What has not been measured yet counts nothing: the first document is always begun.
 */
#ifndef QUIRE_PIPELINE_ESTIMATE_H
#define QUIRE_PIPELINE_ESTIMATE_H

#include <stdint.h>

/* What was measured. */
struct estimate_speed {
    int64_t computed, reused; /* tokens of prompts: computed, found in the cache */
    int64_t prefill_us;       /* for those computed */
    int64_t steps, decode_us; /* passes that give each sequence of the batch a token */
    int chunk;                /* tokens of prompts between two passes at most */
};

/* A document, as its first request shows it. */
struct estimate_shape {
    int chunks, questions;
    int prompt;         /* tokens of that request */
    int final_tokens;   /* of an answer at most */
    int partial_tokens; /* of a partial one */
    int batch;          /* answers side by side */
    int context;        /* tokens that one prompt of partial answers may have */
};

/* Prompt tokens in all, and passes one after the other. */
struct estimate_work {
    int64_t prompt, steps;
};

/* All are at least 1. */
struct estimate_work estimate_work(const struct estimate_shape *s);

/* Microseconds; 0 when nothing was measured. */
int64_t estimate_us(const struct estimate_speed *v, const struct estimate_work *w);

#endif

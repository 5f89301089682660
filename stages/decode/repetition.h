/* stages/decode/repetition.h - has an answer begun to repeat itself without end?
 *
 * What:   a loop is a tail of the answer that has a period of 1 to REPETITION_PERIODS tokens and is long
 *         enough to be no accident: 64 tokens for periods below 4, else 3 periods, and at least the period
 *         and 24 more tokens. So a sentence of 12 tokens or more is stopped when its third copy ends,
 *         while "very, very", a row of dashes, or three equal short table cells are left alone.
 * Not:    loops that change a little each time (a counter in each line) have no period and are not found.
 * Cost:   REPETITION_PERIODS comparisons per token; nothing is allocated.
 */
#ifndef QUIRE_DECODE_REPETITION_H
#define QUIRE_DECODE_REPETITION_H

#include <stdint.h>

enum { REPETITION_PERIODS = 512 };

/* run[p]: how many tokens at the end of the answer equal the one p places before. Starts zeroed. */
struct repetition {
    int32_t run[REPETITION_PERIODS + 1];
};

/* Tokens a tail of this period must have to be called a loop. */
int repetition_needed(int period);

/* To be called once after each token: tokens[0, n) is the answer so far. Returns the period of a loop at its
 * end, else 0. *begin is then where the loop begins: tokens [begin, begin + period) is the
 * first instance of what is repeated. */
int repetition_push(struct repetition *r, const int32_t *tokens, int n, int *begin);

#endif

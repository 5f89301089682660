#include "stages/decode/repetition.h"

/* Chosen with the cases of tests/unit/test_repetition.c: markdown table rules and dot leaders reach 40
 * tokens with periods of 1 to 3; equal table rows below 12 tokens come in threes, rarely in fours. */
enum { SHORT_PERIOD = 4, SHORT_TAIL = 64, COPIES = 3, EXTRA = 24 };

int repetition_needed(int period)
{
    if (period < SHORT_PERIOD)
        return SHORT_TAIL;
    int copies = COPIES * period, least = period + EXTRA;
    return copies > least ? copies : least;
}

int repetition_push(struct repetition *r, const int32_t *tokens, int n, int *begin)
{
    int found = 0, periods = n - 1 < REPETITION_PERIODS ? n - 1 : REPETITION_PERIODS;
    int32_t last = tokens[n - 1];
    for (int p = 1; p <= periods; p++)
        r->run[p] = tokens[n - 1 - p] == last ? r->run[p] + 1 : 0;
    for (int p = 1, covered = 0; p <= periods && !found; p++) {
        int tail = r->run[p] + p, needed = repetition_needed(p);
        /* A tail of equal tokens has every period; only its shortest one counts. */
        if (tail >= needed && covered < needed)
            found = p;
        if (r->run[p] > 0 && tail > covered)
            covered = tail;
    }
    if (found)
        *begin = n - r->run[found] - found;
    return found;
}

/* The gap to the next use is expected to be a mean of three: the age (the gap that is still growing) and the
 * two gaps before it, each older one counting half as much.
 *
 *     uses:      t2 ------ t1 --------- t0 ----- now
 *     gap:          gap2       gap1        age
 *     weight:        1/4        1/2         1
 *
 * A gap that was never seen counts as a month. So a page used once is worth, at first, what a page is worth
 * that comes back every month; everything wanted more often stays before it.
 */
#include "stages/kv/lru_k.h"

#include <assert.h>

enum {
    TOGETHER = 3600,            /* s; uses with smaller gaps are one */
    UNSEEN_GAP = 30 * 24 * 3600 /* s */
};

static const double DECAY = 0.5;

static uint32_t gap(uint32_t newer, uint32_t older)
{
    return newer > older ? newer - older : 0;
}

int lru_k_use(uint32_t times[LRU_K], int n, uint32_t now)
{
    assert(n >= 0 && n <= LRU_K);
    if (n == 0 || gap(now, times[0]) >= TOGETHER) {
        n = n < LRU_K ? n + 1 : LRU_K;
        for (int i = n - 1; i > 0; i--)
            times[i] = times[i - 1];
    }
    times[0] = now;
    /* What lies in the future was entered by a clock that has been set back since. */
    for (int i = 1; i < n; i++)
        if (times[i] > now)
            times[i] = now;
    return n;
}

double lru_k_worth(const uint32_t times[], int n, uint32_t now, uint32_t cost)
{
    assert(n >= 0 && n <= LRU_K);
    if (n == 0)
        return 0;
    double sum = gap(now, times[0]), weights = 1, weight = 1;
    for (int i = 1; i < LRU_K; i++) {
        weight *= DECAY;
        weights += weight;
        sum += weight * (i < n ? gap(times[i - 1], times[i]) : UNSEEN_GAP);
    }
    return cost / (sum / weights + 1);
}

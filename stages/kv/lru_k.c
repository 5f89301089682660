/* The gap to the next use is expected to be a mean of three: the age (the gap that is still growing) and the
 * two gaps before it, each older one counting half as much.
 *
 *     uses:      t2 ------ t1 --------- t0 ----- now
 *     gap:          gap2       gap1        age
 *     weight:        1/4        1/2         1
 *
 * A gap that was never seen counts as a week, and so does a longer one. So a page used once is worth, at first,
 * what a page is worth that comes back every week, and what came back night after night and then stopped is worth
 * less than new text after some five days. With a month instead of a week the first is kept for three weeks, which
 * in an archive that changes finds less than LRU does (tests/unit/test_eviction.c).
 *
 * The sum is now - t0/2 - t1/4 - t2/4, and a gap that is cut to a week moves the older uses with it: a newer use
 * never lowers the worth, and neither does one more. Rule 4 follows: of a page that is used whenever another one
 * is, the first, second and third last use are at least as new. For the same reason "together" is a matter of
 * the calendar and not of the distance to the use before.
 */
#include "stages/kv/lru_k.h"

#include <assert.h>

enum {
    TOGETHER = 6 * 3600,      /* s; uses in the same six hours are one */
    LONG_GAP = 7 * 24 * 3600, /* s */
};

static uint32_t gap(uint32_t newer, uint32_t older)
{
    return newer > older ? newer - older : 0;
}

int lru_k_use(uint32_t times[LRU_K], int n, uint32_t now)
{
    assert(n >= 0 && n <= LRU_K);
    if (n == 0 || (now > times[0] && now / TOGETHER != times[0] / TOGETHER)) {
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
    double expected = gap(now, times[0]), weights = 1, weight = 1;
    double at = times[0]; /* end of the gap; after a gap that was cut, later than that use */
    for (int i = 1; i < LRU_K; i++) {
        double seen = i < n ? at - times[i] : LONG_GAP;
        seen = seen < 0 ? 0 : seen > LONG_GAP ? LONG_GAP : seen;
        at -= seen;
        weight /= 2;
        weights += weight;
        expected += weight * seen;
    }
    return cost / (expected / weights + 1);
}

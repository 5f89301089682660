/* What plain C reaches: sums that do not wait for each other. Volatile ends keep the work between them. */
#include "kernels/cpu/cpu_peak.h"

#include <stdint.h>

enum { SUMS = 12, TURNS = 50000 };

double peak_floats_ref(void)
{
    volatile float seed = 0.5f, sink;
    float x = seed, s[SUMS], sum = 0;
    for (int k = 0; k < SUMS; k++)
        s[k] = x;
    for (int i = 0; i < TURNS; i++) {
        s[0] = s[0] * x + x, s[1] = s[1] * x + x, s[2] = s[2] * x + x, s[3] = s[3] * x + x;
        s[4] = s[4] * x + x, s[5] = s[5] * x + x, s[6] = s[6] * x + x, s[7] = s[7] * x + x;
        s[8] = s[8] * x + x, s[9] = s[9] * x + x, s[10] = s[10] * x + x, s[11] = s[11] * x + x;
    }
    for (int k = 0; k < SUMS; k++)
        sum += s[k];
    sink = sum;
    (void)sink;
    return 2.0 * SUMS * TURNS;
}

double peak_bytes_ref(void)
{
    volatile uint32_t seed = 3, sink;
    uint32_t x = seed, s[SUMS], sum = 0;
    for (int k = 0; k < SUMS; k++)
        s[k] = x;
    for (int i = 0; i < TURNS; i++) {
        s[0] = s[0] * x + x, s[1] = s[1] * x + x, s[2] = s[2] * x + x, s[3] = s[3] * x + x;
        s[4] = s[4] * x + x, s[5] = s[5] * x + x, s[6] = s[6] * x + x, s[7] = s[7] * x + x;
        s[8] = s[8] * x + x, s[9] = s[9] * x + x, s[10] = s[10] * x + x, s[11] = s[11] * x + x;
    }
    for (int k = 0; k < SUMS; k++)
        sum += s[k];
    sink = sum;
    (void)sink;
    return 2.0 * SUMS * TURNS;
}

void peak_read_ref(const void *p, size_t n)
{
    const uint64_t *x = p;
    volatile uint64_t sink;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i < n / 8; i += 4)
        a ^= x[i], b ^= x[i + 1], c ^= x[i + 2], d ^= x[i + 3];
    sink = a ^ b ^ c ^ d;
    (void)sink;
}

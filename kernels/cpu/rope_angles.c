/* Angles of rotary positions, in double and without libm's exp, log, sin and cos: their last bits differ
 * between versions, ours do not. Every step is one IEEE operation (fma included), so all machines agree;
 * the error, some 1e-15 of a frequency, vanishes when the sine is rounded to binary32. */
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#define LN2_HIGH 0x1.62e42fefa38p-1 /* 44 bits: times an exponent it is exact */
#define LN2_LOW 0x1.ef35793c7673p-45
#define HALF_PI_HIGH 0x1.921fb54442d18p+0
#define HALF_PI_LOW 0x1.1a62633145c07p-54

/* log of a normal x > 0: x = m * 2^e, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m-1)/(m+1)). */
static double log_exact(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | 0x3ff0000000000000;
    double m;
    memcpy(&m, &bits, 8);
    if (m > 0x1.6a09e667f3bcdp+0) { /* sqrt(2) */
        m = m * 0.5;
        e++;
    }
    double s = (m - 1.0) / (m + 1.0), square = s * s, p = 1.0 / 25.0;
    for (int i = 23; i >= 3; i -= 2)
        p = fma(p, square, 1.0 / i);
    p = fma(p * square, s, s);
    return fma((double)e, LN2_HIGH, fma((double)e, LN2_LOW, 2.0 * p));
}

/* exp for |x| < 700: x = k*ln(2) + r, a Taylor sum for r. */
static double exp_exact(double x)
{
    double k = rint(x * 0x1.71547652b82fep+0);
    double r = fma(-k, LN2_LOW, fma(-k, LN2_HIGH, x)), p = 1.0;
    for (int i = 14; i >= 1; i--)
        p = fma(p * r, 1.0 / i, 1.0);
    uint64_t bits = (uint64_t)((int64_t)k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, 8);
    return p * scale;
}

/* sin and cos of r, |r| <= pi/4, by Taylor sums. */
static double sin_small(double r)
{
    double square = r * r, p = 1.0;
    for (int i = 18; i >= 2; i -= 2)
        p = fma(p * square, -1.0 / (i * (i + 1)), 1.0);
    return p * r;
}

static double cos_small(double r)
{
    double square = r * r, p = 1.0;
    for (int i = 17; i >= 1; i -= 2)
        p = fma(p * square, -1.0 / (i * (i + 1)), 1.0);
    return p;
}

void kern_rope_freqs(double *freq, int rot, double base)
{
    double log_base = log_exact(base);
    for (int i = 0; i < rot / 2; i++)
        freq[i] = exp_exact(-(2.0 * i / rot) * log_base);
}

void kern_rope_angles(float *out, const double *freq, int rot, int64_t pos)
{
    int half = rot / 2;
    for (int i = 0; i < half; i++) {
        double angle = (double)pos * freq[i];
        double turns = rint(angle * 0x1.45f306dc9c883p-1); /* quarter turns: angle * 2/pi */
        double r = fma(-turns, HALF_PI_LOW, fma(-turns, HALF_PI_HIGH, angle));
        double s = sin_small(r), c = cos_small(r);
        int quarter = (int)((int64_t)turns & 3);
        double cosine = quarter % 2 ? s : c, sine = quarter % 2 ? c : s;
        out[i] = (float)(quarter == 1 || quarter == 2 ? -cosine : cosine);
        out[half + i] = (float)(quarter >= 2 ? -sine : sine);
    }
}

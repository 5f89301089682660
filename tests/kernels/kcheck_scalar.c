/* Conversions, exp, rotary angles: one value at a time. */
#include "tests/kernels/kcheck.h"

#include "kernels/cpu/fma.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/kv_slice.h"

#include <math.h>

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static double half_value(uint16_t h)
{
    int e = h >> 10 & 31, f = h & 1023;
    double v = e == 31 ? (f ? NAN : INFINITY) : e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
    return h & 0x8000 ? -v : v;
}

static void half_to_float_is_exact(void **state)
{
    (void)state;
    for (int h = 0; h < 65536; h++) {
        double want = half_value((uint16_t)h);
        float got = half_to_float((uint16_t)h);
        if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
            fail_msg("half %04x: want %a, got %a", (unsigned)h, want, (double)got);
        if (!isnan(want) && float_to_half(got) != h)
            fail_msg("half %04x comes back as %04x", (unsigned)h, (unsigned)float_to_half(got));
    }
}

static void halves_to_floats_are_the_same(void **state)
{
    (void)state;
    for (int h = 0; h < 65536; h += 16) {
        uint16_t in[16];
        float out[16], want[16];
        for (int i = 0; i < 16; i++) {
            in[i] = (uint16_t)(h + i);
            want[i] = half_to_float(in[i]);
        }
        halves_to_floats(out, in);
        check_same(want, out, sizeof(out), "halves from %04x", (unsigned)h);
    }
}

/* Bits of which many sums are near, or at, the middle of two floats, in the range of subnormals, or cancel. */
static void make_sum(float v[3], int kind)
{
    uint32_t r[3] = {(uint32_t)rnd(), (uint32_t)rnd(), (uint32_t)rnd()};
    static const uint32_t masks[][3] = {
        {0xffffffff, 0xffffffff, 0xffffffff}, /* anything */
        {0xfffff000, 0xfffff000, 0xffff0000}, /* few bits */
        {0x87ffffff, 0x87ffffff, 0x87ffffff}, /* all near 1 */
        {0x80000fff, 0x80000fff, 0x8f800001}, /* a long product, and one bit */
        {0x8fffffff, 0x87ffffff, 0x81ffffff}, /* products among subnormals */
    };
    static const uint32_t add[][3] = {
        {0, 0, 0},
        {0, 0, 0},
        {0x3c000000, 0x3c000000, 0x3c000000},
        {0x3f800000, 0x3f800000, 0x3f800000},
        {0x18000000, 0x18000000, 0},
    };
    for (int i = 0; i < 3; i++)
        v[i] = float_of((r[i] & masks[kind][i]) + add[kind][i]);
}

static void fma_is_fmaf(void **state)
{
    (void)state;
    for (int n = 0; n < (kcheck.all ? 400000000 : 4000000); n++) {
        float v[3];
        make_sum(v, n % 5);
        float want = fmaf(v[0], v[1], v[2]), lanes[16], x[16];
        float got[3] = {fma32(v[0], v[1], v[2]), fma_careful(v[0], v[1], v[2])};
        for (int i = 0; i < 16; i++) {
            x[i] = i == n % 16 ? v[0] : 1.0f;
            lanes[i] = i == n % 16 ? v[2] : 2.0f;
        }
        fma_lanes(lanes, x, v[1]);
        got[2] = lanes[n % 16];
        for (int i = 0; i < 3; i++)
            if (isnan(want) ? !isnan(got[i]) : memcmp(&want, &got[i], sizeof(want)) != 0)
                fail_msg("%a * %a + %a: want %a, way %d has %a", (double)v[0], (double)v[1],
                         (double)v[2], (double)want, i, (double)got[i]);
    }
}

/* Among the halves the nearest, the even one of two. Half way between two neighbours is a float. */
static void float_to_half_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (int h = 0; h < 0x7c00; h++) {
        float low = half_to_float((uint16_t)h),
              high = h < 0x7bff ? half_to_float((uint16_t)(h + 1)) : 65536.0f;
        float middle = low + (high - low) / 2;
        uint16_t even = (uint16_t)(h % 2 ? h + 1 : h);
        assert_int_equal(float_to_half(middle), even);
        assert_int_equal(float_to_half(nextafterf(middle, 0)), h);
        assert_int_equal(float_to_half(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(float_to_half(-middle), even | 0x8000);
    }
}

/* kv_store is where the fast table turns floats into halves: V comes back in order. */
static void float_to_half_fast_equals_ref(void **state)
{
    (void)state;
    need_fast();
    enum { D = 1024, ROWS = 64 };
    static float x[ROWS][D];
    static uint16_t page[2][2 * ROWS * D];
    uint8_t bad[ROWS];
    uint64_t step = kcheck.all ? 1 : 4099;
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += ROWS * D * step) {
        for (int i = 0; i < ROWS * D; i++)
            x[i / D][i % D] = float_of((uint32_t)(u + (uint64_t)i * step));
        for (int i = 0; i < 2; i++) {
            void *slices[1] = {page[i]};
            (i ? &kcheck.fast : &kcheck.ref)
                ->kv_store(slices, 0, x[0], x[0], D, ROWS, 1, D, bad);
        }
        check_same(page[0], page[1], sizeof page[0], "floats from %08llx in steps of %llu",
                   (unsigned long long)u, (unsigned long long)step);
    }
}

/* silu_mul with u = 1 shows exp: x / (1 + exp(-x)). */
static void exp_fast_equals_ref(void **state)
{
    (void)state;
    need_fast();
    enum { N = 1 << 16 };
    static float x[N], one[N], out[2][N];
    uint64_t step = kcheck.all ? 1 : 1021;
    for (int i = 0; i < N; i++)
        one[i] = 1.0f;
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += N * step) {
        for (uint64_t i = 0; i < N; i++)
            x[i] = float_of((uint32_t)(u + i * step));
        for (int i = 0; i < 2; i++)
            (i ? &kcheck.fast : &kcheck.ref)->silu_mul(out[i], x, one, N, 1, N);
        for (int i = 0; i < N;
             i++) /* NaN has many patterns, and which one comes out is not the contract's */
            if (isnan(x[i]))
                out[0][i] = out[1][i] = 0;
        check_same(out[0], out[1], sizeof out[0], "floats from %08llx in steps of %llu",
                   (unsigned long long)u, (unsigned long long)step);
    }
}

static void exp_is_right(void **state)
{
    (void)state;
    struct share s = {0};
    assert_true(kern_exp(0.0f) == 1.0f && kern_exp(-0.0f) == 1.0f);
    assert_true(kern_exp(-INFINITY) == 0.0f && kern_exp(nextafterf(-69.0f, -70.0f)) == 0.0f);
    assert_true(kern_exp(-69.0f) >= 0x1p-100f);
    for (int i = 0; i < (kcheck.all ? 20000000 : 200000); i++) {
        float x = (float)(-69.0 + 157.0 * (double)(rnd() >> 11) * 0x1p-53);
        double want = exp(x), ulp = ldexp(1, ilogb(want) - 23);
        share_add(&s, fabs(kern_exp(x) - want), 1.02 * ulp);
    }
    share_report(&s, "exp, of 1.02 ulp");
}

static void rope_freqs_are_right(void **state)
{
    (void)state;
    struct share s = {0};
    static const double bases[] = {10000, 100000, 500000, 1000000, 1.5, 5e8};
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
        double freq[128];
        kern_rope_freqs(freq, 256, bases[b]);
        for (int i = 0; i < 128; i++) {
            long double want = powl((long double)bases[b], -2.0L * i / 256);
            share_add(&s, (double)fabsl(freq[i] / want - 1), 4e-15);
        }
    }
    share_report(&s, "frequencies");
}

/* Rounded once: within half an ulp and the little that double leaves. */
static void rope_angles_are_right(void **state)
{
    (void)state;
    struct share s = {0};
    double freq[32];
    float out[64];
    kern_rope_freqs(freq, 64, 10000);
    for (int i = 0; i < 20 * kcheck.rounds + 500; i++) {
        int64_t pos = i < 300 ? i : upto(1 << 20);
        kern_rope_angles(out, freq, 64, pos);
        for (int j = 0; j < 32; j++) {
            long double angle = (long double)((double)pos * freq[j]);
            long double want[2] = {cosl(angle), sinl(angle)};
            for (int k = 0; k < 2; k++) {
                double ulp = want[k] == 0 ? 0x1p-149 : ldexp(1, ilogb((double)want[k]) - 23);
                share_add(&s, (double)fabsl(out[32 * k + j] - want[k]), 0.5 * ulp + 1e-15);
            }
        }
    }
    share_report(&s, "angles");
}

static void float_environment_is_as_needed(void **state)
{
    (void)state;
    assert_true(kern_float_environment_ok());
}

static void types_know_their_numbers(void **state)
{
    (void)state;
    for (int t = 0; t < KERN_TYPE_COUNT; t++)
        assert_int_equal(kern_type_of_gguf((unsigned)kern_types[t].gguf_id), t);
    assert_int_equal(kern_type_of_gguf(4), -1);
    assert_int_equal(kern_type_of_gguf(4000000000u), -1);
    assert_int_equal(kern_row_bytes(KERN_Q6_K, 512), 420);
}

int kcheck_scalar_tests(struct kcheck_test *list, int n)
{
    n = kcheck_add(list, n, float_environment_is_as_needed, 0,
                   "the float environment is as needed");
    n = kcheck_add(list, n, types_know_their_numbers, 0, "types know their numbers");
    n = kcheck_add(list, n, half_to_float_is_exact, 0, "half to float: exact, all 65536");
    n = kcheck_add(list, n, halves_to_floats_are_the_same, 0, "halves to floats: the same");
    n = kcheck_add(list, n, fma_is_fmaf, 0, "fma32 and its lanes: fmaf");
    n = kcheck_add(list, n, float_to_half_rounds_to_nearest_even, 0,
                   "float to half: nearest even");
    n = kcheck_add(list, n, float_to_half_fast_equals_ref, 0, "float to half: fast equals ref");
    n = kcheck_add(list, n, exp_is_right, 0, "exp: right");
    n = kcheck_add(list, n, exp_fast_equals_ref, 0, "exp: fast equals ref");
    n = kcheck_add(list, n, rope_freqs_are_right, 0, "rope frequencies: right");
    n = kcheck_add(list, n, rope_angles_are_right, 0, "rope angles: right");
    return n;
}

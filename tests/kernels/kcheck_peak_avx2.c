/* What this machine can do at most, to set timings against: they swing by a third on shared machines,
 * shares of a peak that was measured in the same moments do not. */
#include "tests/kernels/kcheck.h"

#include <immintrin.h>
#include <time.h>

#define AVX2 __attribute__((target("avx2,fma")))

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { CHAINS = 12, TURNS = 40000 };

/* One maddubs and one paddw: 32 products and 32 sums. */
AVX2 double peak_byte_products(void)
{
    __m256i s[CHAINS], x = _mm256_set1_epi8(1);
    for (int i = 0; i < CHAINS; i++)
        s[i] = _mm256_setzero_si256();
    double t = cpu_seconds();
    for (int k = 0; k < TURNS; k++) {
#ifdef __clang__
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
        for (int i = 0; i < CHAINS; i++) {
            __m256i p;
            __asm__ volatile("vpmaddubsw %2,%2,%1\n\tvpaddw %1,%0,%0"
                             : "+x"(s[i]), "=&x"(p)
                             : "x"(x));
        }
    }
    return 64.0 * CHAINS * TURNS / (cpu_seconds() - t) / 1e9;
}

AVX2 double peak_float_products(void)
{
    __m256 s[CHAINS], x = _mm256_set1_ps(1.0f);
    for (int i = 0; i < CHAINS; i++)
        s[i] = _mm256_setzero_ps();
    double t = cpu_seconds();
    for (int k = 0; k < TURNS; k++) {
#ifdef __clang__
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vfmadd231ps %1,%1,%0" : "+x"(s[i]) : "x"(x));
    }
    return 16.0 * CHAINS * TURNS / (cpu_seconds() - t) / 1e9;
}

AVX2 double peak_memory_read(const void *p, size_t n)
{
    __m256i s = _mm256_setzero_si256();
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (size_t i = 0; i < n / 32; i += 4)
        for (size_t j = 0; j < 4; j++)
            s = _mm256_xor_si256(s, _mm256_loadu_si256((const __m256i *)p + i + j));
    __asm__ volatile("" : : "x"(s));
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)n /
           ((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec)) / 1e9;
}

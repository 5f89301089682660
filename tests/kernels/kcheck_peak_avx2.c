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

/* Twelve sums in registers: ymm0 .. ymm11. Whole loops in assembly, since compilers spill arrays of sums. */
#define TWELVE(X)                                                                              \
    X("%%ymm0")                                                                                \
    X("%%ymm1")                                                                                \
    X("%%ymm2")                                                                                \
    X("%%ymm3")                                                                                \
    X("%%ymm4")                                                                                \
    X("%%ymm5")                                                                                \
    X("%%ymm6") X("%%ymm7") X("%%ymm8") X("%%ymm9") X("%%ymm10") X("%%ymm11")
#define CLEAR(r) "vpxor " r "," r "," r "\n\t"
#define BYTES(r) "vpmaddubsw %%ymm12,%%ymm12,%%ymm13\n\tvpaddw %%ymm13," r "," r "\n\t"
#define FLOATS(r) "vfmadd231ps %%ymm12,%%ymm12," r "\n\t"
#define CLOBBERS                                                                               \
    "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9",      \
        "ymm10", "ymm11", "ymm12", "ymm13"

/* One maddubs and one paddw: 32 products and 32 sums. */
AVX2 double peak_byte_products(void)
{
    long n = TURNS;
    double t = cpu_seconds();
    __asm__ volatile(TWELVE(CLEAR) CLEAR("%%ymm12") "1:\n\t" TWELVE(BYTES) "dec %0\n\tjnz 1b"
                     : "+r"(n)
                     :
                     : CLOBBERS);
    return 64.0 * CHAINS * TURNS / (cpu_seconds() - t) / 1e9;
}

AVX2 double peak_float_products(void)
{
    long n = TURNS;
    double t = cpu_seconds();
    __asm__ volatile(TWELVE(CLEAR) CLEAR("%%ymm12") "1:\n\t" TWELVE(FLOATS) "dec %0\n\tjnz 1b"
                     : "+r"(n)
                     :
                     : CLOBBERS);
    return 16.0 * CHAINS * TURNS / (cpu_seconds() - t) / 1e9;
}

AVX2 double peak_memory_read(const void *p, size_t n)
{
    __m256i s = _mm256_setzero_si256();
    double t = cpu_seconds();
    for (size_t i = 0; i < n / 32; i += 4)
        for (size_t j = 0; j < 4; j++)
            s = _mm256_xor_si256(s, _mm256_loadu_si256((const __m256i *)p + i + j));
    __asm__ volatile("" : : "x"(s));
    return (double)n / (cpu_seconds() - t) / 1e9;
}

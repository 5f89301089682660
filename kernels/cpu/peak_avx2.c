/* Twelve sums in registers, in whole loops of assembly, since compilers spill arrays of sums. */
#include "kernels/cpu/cpu_peak.h"

#include <immintrin.h>

enum { SUMS = 12, TURNS = 150000 };

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
double peak_bytes_avx2(void)
{
    long n = TURNS;
    __asm__ volatile(TWELVE(CLEAR) CLEAR("%%ymm12") "1:\n\t" TWELVE(BYTES) "dec %0\n\tjnz 1b"
                     : "+r"(n)
                     :
                     : CLOBBERS);
    return 64.0 * SUMS * TURNS;
}

double peak_floats_avx2(void)
{
    long n = TURNS;
    __asm__ volatile(TWELVE(CLEAR) CLEAR("%%ymm12") "1:\n\t" TWELVE(FLOATS) "dec %0\n\tjnz 1b"
                     : "+r"(n)
                     :
                     : CLOBBERS);
    return 16.0 * SUMS * TURNS;
}

/* Eight streams, which keep more lines under way than one that the hardware follows. */
void peak_read_avx2(const void *p, size_t n)
{
    enum { STREAMS = 8 };
    size_t part = n / STREAMS / 64 * 64;
    __m256i s = _mm256_setzero_si256();
    for (size_t i = 0; i < part; i += 64)
        for (size_t k = 0; k < STREAMS; k++) {
            const char *at = (const char *)p + k * part + i;
            s = _mm256_xor_si256(s, _mm256_load_si256((const __m256i *)at));
            s = _mm256_xor_si256(s, _mm256_load_si256((const __m256i *)(at + 32)));
        }
    __asm__ volatile("" : : "x"(s));
}

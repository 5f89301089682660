/* As peak_avx2.c, with registers twice as wide and the dot product of bytes that sums in int32. */
#include "kernels/cpu/cpu_peak.h"

#define AVX512 __attribute__((target("avx512f,avx512vnni")))

enum { SUMS = 12, TURNS = 150000 };

#define TWELVE(X)                                                                              \
    X("%%zmm0")                                                                                \
    X("%%zmm1")                                                                                \
    X("%%zmm2")                                                                                \
    X("%%zmm3")                                                                                \
    X("%%zmm4")                                                                                \
    X("%%zmm5")                                                                                \
    X("%%zmm6") X("%%zmm7") X("%%zmm8") X("%%zmm9") X("%%zmm10") X("%%zmm11")
#define CLEAR(r) "vpxorq " r "," r "," r "\n\t"
#define BYTES(r) "vpdpbusd %%zmm12,%%zmm12," r "\n\t"
#define FLOATS(r) "vfmadd231ps %%zmm12,%%zmm12," r "\n\t"
#define CLOBBERS                                                                               \
    "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9",      \
        "zmm10", "zmm11", "zmm12"

AVX512 double peak_bytes_avx512(void)
{
    long n = TURNS;
    __asm__ volatile(TWELVE(CLEAR) CLEAR("%%zmm12") "1:\n\t" TWELVE(BYTES) "dec %0\n\tjnz 1b"
                     : "+r"(n)
                     :
                     : CLOBBERS);
    return 128.0 * SUMS * TURNS;
}

AVX512 double peak_floats_avx512(void)
{
    long n = TURNS;
    __asm__ volatile(TWELVE(CLEAR) CLEAR("%%zmm12") "1:\n\t" TWELVE(FLOATS) "dec %0\n\tjnz 1b"
                     : "+r"(n)
                     :
                     : CLOBBERS);
    return 32.0 * SUMS * TURNS;
}

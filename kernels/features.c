#include "kernels/features.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* The names must be literals; f16c is not known to every compiler. */
size_t kern_features(struct kern_feature *out, size_t cap)
{
    unsigned a, b, c = 0, d;
    __builtin_cpu_init(); /* these include that the system keeps the wide registers */
    bool avx = __builtin_cpu_supports("avx");
    bool f16c = avx && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
    const struct kern_feature all[] = {
        {"avx2", "avx2", __builtin_cpu_supports("avx2")},
        {"fma", "avx2", __builtin_cpu_supports("fma")},
        {"f16c", "avx2", f16c},
        {"avx512f", "avx512", __builtin_cpu_supports("avx512f")},
        {"avx512bw", "avx512", __builtin_cpu_supports("avx512bw")},
        {"avx512dq", "avx512", __builtin_cpu_supports("avx512dq")},
        {"avx512vl", "avx512", __builtin_cpu_supports("avx512vl")},
        {"avx512vnni", "avx512", __builtin_cpu_supports("avx512vnni")},
    };
    size_t n = 0;
    for (; n < cap && n < sizeof(all) / sizeof(all[0]); n++)
        out[n] = all[n];
    return n;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

size_t kern_features(struct kern_feature *out, size_t cap)
{
    enum { ASIMD = 1 << 1, ASIMDDP = 1 << 20 }; /* of AT_HWCAP: Linux, arch/arm64 */
    unsigned long has = getauxval(AT_HWCAP);
    const struct kern_feature all[] = {
        {"asimd", "neon", has & ASIMD},
        {"asimddp", "dotprod", has & ASIMDDP},
    };
    size_t n = 0;
    for (; n < cap && n < sizeof(all) / sizeof(all[0]); n++)
        out[n] = all[n];
    return n;
}
#else
size_t kern_features(struct kern_feature *out, size_t cap)
{
    (void)out;
    (void)cap;
    return 0;
}
#endif

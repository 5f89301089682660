#include "kernels/cpu/cpu.h"

#include "kernels/features.h"

#include <fenv.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Has the CPU all that a table needs? */
static bool can_run(const char *table)
{
    struct kern_feature all[KERN_FEATURES_MAX];
    size_t n = kern_features(all, KERN_FEATURES_MAX), needed = 0, there = 0;
    for (size_t i = 0; i < n; i++) {
        bool counts = strcmp(all[i].table, table) == 0;
        needed += counts;
        there += counts && all[i].there;
    }
    return needed > 0 && there == needed;
}

unsigned kern_cpu_flags(void)
{
    if (can_run("neon"))
        return can_run("dotprod") ? KERN_CPU_NEON | KERN_CPU_DOTPROD : KERN_CPU_NEON;
    if (!can_run("avx2"))
        return 0;
    return can_run("avx512") ? KERN_CPU_AVX2 | KERN_CPU_AVX512 : KERN_CPU_AVX2;
}

#if defined(__x86_64__)
static void use_fast(struct kernels *k, unsigned cpu_flags)
{
    if (cpu_flags & KERN_CPU_AVX2)
        *k = (struct kernels){
            .name = "avx2",
            .prepare = prepare_avx2,
            .remainder = remainder_avx2,
            .matmul = matmul_avx2,
            .rms_norm = rms_norm_avx2,
            .rope = rope_avx2,
            .silu_mul = silu_mul_avx2,
            .gelu_mul = gelu_mul_avx2,
            .add = add_avx2,
            .scale = scale_avx2,
            .add_bias = add_bias_avx2,
            .softmax = softmax_avx2,
            .kv_store = kv_store_avx2,
            .attn = attn_avx2,
        };
    if (cpu_flags & KERN_CPU_AVX512) { /* the others gain nothing from wider registers */
        k->name = "avx512";
        k->prepare = prepare_avx512;
        k->remainder = remainder_avx512;
        k->matmul = matmul_avx512;
        k->rms_norm = rms_norm_avx512;
        k->silu_mul = silu_mul_avx512;
        k->gelu_mul = gelu_mul_avx512;
        k->softmax = softmax_avx512;
        k->attn = attn_avx512;
    }
}
#elif defined(__aarch64__)
static void use_fast(struct kernels *k, unsigned cpu_flags)
{
    if (!(cpu_flags & KERN_CPU_NEON))
        return;
    bool dot = cpu_flags & KERN_CPU_DOTPROD;
    k->name = dot ? "dotprod" : "neon";
    k->matmul = dot ? matmul_dotprod : matmul_neon;
    k->prepare = prepare_neon;
    k->remainder = remainder_neon;
    k->rms_norm = rms_norm_neon;
    k->silu_mul = silu_mul_neon;
    k->gelu_mul = gelu_mul_neon;
    k->add = add_neon;
    k->scale = scale_neon;
    k->add_bias = add_bias_neon;
    k->softmax = softmax_neon;
    k->attn = attn_neon;
}
#else
static void use_fast(struct kernels *k, unsigned cpu_flags)
{
    (void)k;
    (void)cpu_flags;
}
#endif

void kernels_init(struct kernels *k, unsigned cpu_flags)
{
    *k = (struct kernels){
        .name = "ref",
        .prepare = prepare_ref,
        .remainder = remainder_ref,
        .matmul = matmul_ref,
        .rms_norm = rms_norm_ref,
        .rope = rope_ref,
        .silu_mul = silu_mul_ref,
        .gelu_mul = gelu_mul_ref,
        .add = add_ref,
        .scale = scale_ref,
        .add_bias = add_bias_ref,
        .softmax = softmax_ref,
        .kv_store = kv_store_ref,
        .attn = attn_ref,
    };
    use_fast(k, cpu_flags);
}

void kernels_init_float_inputs(struct kernels *k, unsigned cpu_flags)
{
    kernels_init(k, cpu_flags);
    k->remainder = remainder_zero;
    k->matmul = matmul_float_inputs_ref;
#if defined(__x86_64__)
    if (cpu_flags & KERN_CPU_AVX2)
        k->matmul = matmul_float_inputs_avx2;
#endif
}

/* MXCSR: all exceptions masked, round to nearest, no flush to zero; the sticky flags do not matter. FPCR: round to
 * nearest, no flush to zero, NaN kept, halves as IEEE has them. */
bool kern_float_environment_ok(void)
{
#if defined(__x86_64__)
    return (_mm_getcsr() & 0xffc0) == 0x1f80;
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return (control & (UINT64_C(0x1f) << 22 | 1 << 19)) == 0;
#else
    return fegetround() == FE_TONEAREST;
#endif
}

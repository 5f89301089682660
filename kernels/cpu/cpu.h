/* kernels/cpu/cpu.h - every op of every CPU table, declared by its type: a wrong signature cannot compile. */
#ifndef QUIRE_KERNELS_CPU_CPU_H
#define QUIRE_KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

kern_prepare_fn prepare_ref, prepare_avx2, prepare_avx512, prepare_neon;
kern_remainder_fn remainder_ref, remainder_avx2, remainder_avx512, remainder_neon,
    remainder_zero;
kern_matmul_fn matmul_ref, matmul_avx2, matmul_avx512, matmul_neon, matmul_dotprod;
kern_matmul_fn matmul_float_avx512, matmul_float_neon; /* float types only */
kern_matmul_fn matmul_float_inputs_ref, matmul_float_inputs_avx2;
kern_rms_norm_fn rms_norm_ref, rms_norm_avx2, rms_norm_avx512, rms_norm_neon;
kern_rope_fn rope_ref, rope_avx2;
kern_silu_mul_fn silu_mul_ref, silu_mul_avx2, silu_mul_avx512, silu_mul_neon;
kern_gelu_mul_fn gelu_mul_ref, gelu_mul_avx2, gelu_mul_avx512, gelu_mul_neon;
kern_add_fn add_ref, add_avx2, add_neon;
kern_scale_fn scale_ref, scale_avx2, scale_neon;
kern_add_bias_fn add_bias_ref, add_bias_avx2, add_bias_neon;
kern_softmax_fn softmax_ref, softmax_avx2, softmax_avx512, softmax_neon;
kern_kv_store_fn kv_store_ref, kv_store_avx2;
kern_attn_fn attn_ref, attn_avx2, attn_avx512, attn_neon;

#endif

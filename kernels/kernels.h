/* kernels/kernels.h - the contract of every op. docs/kernels.md is the same, with reasons.
 *
 * What:   a table of functions. The `ref` table is the definition: plain C that reads like the formula.
 *         Every other CPU table returns the same bytes. Tables differ in speed only.
 * Rules:  1. All values are IEEE binary32 unless named. fma(a,b,c) rounds once; every other operation
 *            rounds once, as written, in the order written. No formula adds a bare product: where a
 *            product meets a sum, fma is written. Round to nearest even, no flush to zero.
 *         2. Results never depend on the number of threads, on other rows of the call, or on how a
 *            matrix is split: an output column is one lane and sums over K in order.
 *         3. Kernels allocate nothing; scratch comes from the caller, aligned to 64, sizes from functions here.
 *         4. Pointers are not NULL, counts >= 1, outputs do not overlap inputs unless said.
 *         5. Ops share their work out over the team of the calling thread (team.h); without one they compute alone.
 * Domain: finite inputs. kern_prepare and kv_store report rows that are not finite in bad[row] (set to 1,
 *         never cleared); the caller fails that row's document.
 * Thread: a call belongs to one thread at a time; tables are immutable.
 */
#ifndef QUIRE_KERNELS_H
#define QUIRE_KERNELS_H

#include "kernels/qtypes.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ---- */

/* A matrix of n_out rows (the file's rows: output columns) by n_in, packed into panels of 16 outputs:
 * the same layout for every table, for many rows and for few. n_in is a multiple of 32 (quantised
 * types: of their block). docs/kernels.md draws the records. */
struct kern_weights {
    enum kern_type type;
    int n_out, n_in;
    const void *data; /* kern_packed_bytes(), aligned to 64 */
};

/* Of the layout, for those who keep packed weights: raise it when kern_pack() gives other bytes. */
enum { KERN_PACKED_VERSION = 2 };

size_t kern_packed_bytes(enum kern_type t, int n_out, int n_in);
/* Pack the panels that cover outputs [out_begin, out_end) (multiples of 16, but for the last) from the
 * file's rows. src is the first byte of row 0. Panels are independent: callers may split the range. */
void kern_pack(void *dst, const void *src, enum kern_type t, int n_out, int n_in, int out_begin,
               int out_end);
/* Row i of a matrix in the file's layout, as floats: out[n]. The formulas of qtypes.h, each product and
 * sum rounded once: (d*q) + m as fma(d, q, m); (d*sc)*q - dmin*mn as fma(d*sc, q, -(dmin*mn)). */
void kern_dequantize_row(float *out, const void *row, enum kern_type t, int n);

/* out[p], p in [begin, end): no row of panel p (outputs 16p .. 16p+15) has a Euclidean norm above it. False, and nothing
 * written, for types that it does not serve: float types and those with a minimum. */
bool kern_panel_norms(float *out, const struct kern_weights *w, int begin, int end);
/* The same outputs of w alone: [first, first + n), first a multiple of 16. */
struct kern_weights kern_weights_part(const struct kern_weights *w, int first, int n);

/* ---- inputs of a product ---- */

/* The rows of one product, prepared once for all matrices that take them: float values, and for
 * quantised weights int8 in blocks of 32:
 *   amax = max|x|; amax < 2^-90: d = 0, q = 0; else d = amax/127, q_i = rne(x_i * (127/amax));
 *   n = sum q_i; s = d * float(n). A row with a value that is not finite becomes all zero and bad. */
struct kern_input {
    int rows, k;
    const float *x; /* [rows][k], stays the caller's and must outlive this */
    void *mem;      /* kern_input_bytes(rows, k), aligned to 64, filled by prepare */
};
size_t kern_input_bytes(int rows, int k);
/* Rows [first, first + n) of it, first a multiple of KERN_INPUT_GROUP: prepared by themselves they are the same bytes. */
enum { KERN_INPUT_GROUP = 6 };
struct kern_input kern_input_part(const struct kern_input *in, int first, int n);

typedef void kern_prepare_fn(struct kern_input *in, uint8_t *bad);

/* What the 8 bits of prepare leave of each value: out_i = fma(-d, float(q_i), x_i), d and q as above, so that
 * the products of x and of out together are one of x in 16 bits. A row with a value that is not finite
 * gives zeros. out, x: [rows][n]. */
typedef void kern_remainder_fn(float *out, const float *x, int rows, int n);

/* out[rows][ld] = in x W^T. Quantised: blocks b rising, acc from +0:
 *   sum = sum_k (w_k - off)*q_k exact;  min types: acc = fma(m, s, acc);  acc = fma(float(sum)*d, d_a, acc)
 * Float types: k rising, acc = fma(W[k], x[k], acc). scratch: kern_matmul_scratch(). */
typedef void kern_matmul_fn(float *out, size_t ld, const struct kern_weights *w,
                            const struct kern_input *in, void *scratch);
size_t kern_matmul_scratch(int max_threads);

/* ---- rows ---- */

/* out_i = (x_i * r) * w_i, r = 1 / sqrt(fold(sum x^2) / float(n) + eps), over `rows` rows of n values.
 * Sums: 16 lanes v[i%16] = fma(x_i, x_i, v), then v[l] += v[l+h] for h = 8,4,2,1. out may be x. */
typedef void kern_rms_norm_fn(float *out, size_t ld_out, const float *x, size_t ld_x,
                              const float *w, int rows, int n, float eps);

/* Rotate n_head heads of each row in place. cos_sin: [rows][rot] floats, cos then sin of rot/2 angles
 * (kern_rope_angles). neox: pairs (i, i + rot/2), else (2i, 2i+1). x0' = fma(x0, c, -(x1*s)),
 * x1' = fma(x0, s, x1*c). Values past rot stay. */
typedef void kern_rope_fn(float *x, size_t ld, int rows, int n_head, int head_dim, int rot,
                          bool neox, const float *cos_sin);

/* out = (g / (1 + exp(0 - g))) * u;   out may be g. [rows][n], common ld. */
typedef void kern_silu_mul_fn(float *out, const float *g, const float *u, size_t ld, int rows,
                              int n);
/* tanh form: z = g * fma(C*g, g, L), L = -2 sqrt(2/pi), C = 0.044715 L (cpu/gelu.h);
 * out = (g / (1 + exp(z))) * u;   out may be g. */
typedef void kern_gelu_mul_fn(float *out, const float *g, const float *u, size_t ld, int rows,
                              int n);

/* x += y;  x *= c;  [rows][n]. */
typedef void kern_add_fn(float *x, const float *y, size_t ld, int rows, int n);
typedef void kern_scale_fn(float *x, float c, size_t ld, int rows, int n);
/* x_i += b_i: bias of a projection. */
typedef void kern_add_bias_fn(float *x, const float *b, size_t ld, int rows, int n);

/* y_i = exp(x_i - max) * (1 / fold(sum)), in place, one row. */
typedef void kern_softmax_fn(float *x, int n);

/* ---- KV pages and attention ---- */

enum { KERN_PAGE_TOKENS = 64 };

/* One layer's slice of a KV page: for each kv head K as [4][head_dim][16] half (key j of the page is
 * lane j%16 of group j/16), then V as [64][head_dim] half. */
size_t kern_page_slice_bytes(int n_kv_head, int head_dim);
/* The same of a full page in 8 bits: for each kv head K as [head_dim][64] int8, V as [64][head_dim] int8, then half scales,
 * [head_dim] of the channels of K and [64] of the tokens of V, and up to 63 bytes of nothing. A value is its
 * integer times its scale. */
size_t kern_q8_slice_bytes(int n_kv_head, int head_dim);

/* Write K and V of `rows` consecutive positions from pos into slices[] (one pointer per page of the
 * sequence, index pos/64). k, v: [rows][ld], heads side by side. Values that round to infinity: bad. */
typedef void kern_kv_store_fn(void *const *slices, int pos, const float *k, const float *v,
                              size_t ld, int rows, int n_kv_head, int head_dim, uint8_t *bad);

/* Rows of one sequence: row r is position pos + r and sees keys max(0, pos+r-window+1) .. pos+r
 * (window 0: from 0). q [rows][ld_q], n_head heads side by side, already scaled; out alike.
 * slices[page] may be NULL where no row of the call sees the page. */
struct kern_attn_rows {
    float *out;
    const float *q;
    size_t ld_out, ld_q;
    const void *const *slices;
    int q8_pages; /* slices before this one are of 8 bits; none that is written to */
    int pos, rows, window;
};
/* Per row and head, pages rising from the first visible: see docs/kernels.md section 6.
 *   m = -2^100, l = +0, o = +0; s_j = fma over channels from +0; top = max(m, max s); a = exp(m-top);
 *   e_j = exp(s_j - top) (+0 where invisible); l = fma(l, a, fold(e)); o = o*a; j rising:
 *   o = fma(V[j], e_j, o); m = top.  out = o * (1/l) + 0.
 * Of a page in 8 bits K and V are the integers, with q_c * scale_c for q_c in s_j, and e_j * scale_j for e_j in o.
 * Heads share K and V in groups of n_head/n_kv_head. scratch: kern_attn_scratch(). */
typedef void kern_attn_fn(const struct kern_attn_rows *calls, int n_calls, int n_head,
                          int n_kv_head, int head_dim, void *scratch);
size_t kern_attn_scratch(int max_threads, int n_head, int n_kv_head, int head_dim);

/* ---- the table ---- */

struct kernels {
    const char *name;
    kern_prepare_fn *prepare;
    kern_remainder_fn *remainder;
    kern_matmul_fn *matmul;
    kern_rms_norm_fn *rms_norm;
    kern_rope_fn *rope;
    kern_silu_mul_fn *silu_mul;
    kern_gelu_mul_fn *gelu_mul;
    kern_add_fn *add;
    kern_scale_fn *scale;
    kern_add_bias_fn *add_bias;
    kern_softmax_fn *softmax;
    kern_kv_store_fn *kv_store;
    kern_attn_fn *attn;
};

enum kern_cpu_flags {
    KERN_CPU_AVX2 = 1, /* AVX2, FMA and F16C together */
    KERN_CPU_AVX512 =
        2, /* AVX-512 F, BW, DQ, VL and VNNI together; never without KERN_CPU_AVX2 */
    KERN_CPU_NEON = 4,    /* 64-bit Arm */
    KERN_CPU_DOTPROD = 8, /* its dot product of bytes; never without KERN_CPU_NEON */
};

unsigned kern_cpu_flags(void);
/* The fastest table for these flags; 0 gives ref. All members are always set. */
void kernels_init(struct kernels *k, unsigned cpu_flags);
/* For tests: as kernels_init, but products of quantised weights take the inputs as floats:
 * acc = fma(w_k, x_k, acc), k rising, w_k by kern_dequantize_row, and remainders are zero. Shows what
 * int8 inputs cost. */
void kernels_init_float_inputs(struct kernels *k, unsigned cpu_flags);

/* False when this thread rounds or flushes in a way that would change results (MXCSR). */
bool kern_float_environment_ok(void);

/* cos then sin of rot/2 angles for one position: angle_i = pos * freq_i in double, reduced by own code;
 * each rounded once. freq[rot/2] are the caller's (base, scaling). out[rot]. Exact on every machine. */
void kern_rope_angles(float *out, const double *freq, int rot, int64_t pos);
/* freq_i = base^(-2i/rot) in double by own exp and log: no libm, whose last bits differ by version. */
void kern_rope_freqs(double *freq, int rot, double base);

/* exp as section 5 of docs/kernels.md, for scalar users (sampler). */
float kern_exp(float x);

#ifdef __cplusplus
}
#endif
#endif

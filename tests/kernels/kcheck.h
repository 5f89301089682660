/* tests/kernels/kcheck.h - what the kernel checks share: data, guarded memory, comparison.
 *
 * What:   kcheck runs every op of the fast table against the reference, byte for byte, and the reference
 *         against the formula in double precision. One cmocka test per op and type.
 * Rules:  inputs end at a page that may not be read; outputs lie between bytes of 0xaa, which both
 *         tables must leave alone. Every test starts its random numbers from (seed, its number).
 */
#ifndef QUIRE_TESTS_KCHECK_H
#define QUIRE_TESTS_KCHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kcheck {
    struct kernels ref, fast;             /* fast: the table under test */
    struct kernels ref_float, fast_float; /* the same with float inputs */
    int n_tables;
    uint64_t seed, state;
    int rounds; /* per test, before a test's own factor */
    bool all;   /* --long: exhaustive where that is possible */
};
extern struct kcheck kcheck;

/* Make the i-th of n_tables, slowest first, the table under test. */
void kcheck_take_table(int i);

/* ---- random numbers and data ---- */

uint64_t rnd(void);
int upto(int n);     /* 0 .. n-1 */
float gauss(void);   /* about normal, deviation 1 */
int odd_size(int n); /* 1..69 mostly, sometimes up to n */

/* Kinds of data: normal, outliers, zeros, signed zeros, denormals, some of them, around the cut of
 * prepare, mixed exponents, ties of rounding, cancellation, limits, powers of two, large, edges of exp. */
enum { DATA_KINDS = 14 };
void fill(float *x, size_t n, int kind);
uint16_t random_half(int kind); /* 0 sane, 1 any finite, 2 denormal, 3 either sign and -0 */

/* ---- memory ---- */

/* n bytes that end where a forbidden page starts; slot 0..9, the next call with a slot takes it over. */
void *edge_bytes(int slot, size_t n);
float *edge_floats(int slot, size_t n, int kind);
/* As edge_bytes, aligned to 64 (up to 63 readable bytes behind). */
void *edge_aligned(int slot, size_t n);
/* A slice in 8 bits: any integers, scales up to `most`, some of them 0. */
void random_q8_page(void *slice, int n_kv_head, int head_dim, float most);

/* n bytes of 0xaa between guards; slot 0..4. skew: bytes off an alignment of 64. */
void *guarded(int slot, size_t n, int skew);
/* Fail the test when a guard of the slot was touched. */
void check_guards(int slot, const char *who);
/* Fail unless both are equal, naming the first difference. */
void check_same(const void *want, const void *got, size_t n, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- bounds ---- */

/* Worst error as a share of its bound, printed at the end of a test; over 1 fails it. */
struct share {
    double worst;
};
void share_add(struct share *s, double error, double bound);
void share_report(const struct share *s, const char *what);

/* Skip the running test where there is no fast table. */
void need_fast(void);
/* Run body's threads from now on. */
void set_threads(int n);

/* ---- weights ---- */

struct matrix {
    enum kern_type type;
    int n_out, n_in;
    uint8_t *file; /* rows as a file has them */
    struct kern_weights packed;
};
/* Random weights; scales: kind of random_half. Slots 8 and 9 of edge memory. */
void matrix_make(struct matrix *m, enum kern_type t, int n_out, int n_in, int scales);
/* Weight (out, in) in double, from the file's bytes by the formula of qtypes.h, apart from the kernels'
 * own reading: d, q - off and m of it. value = d*q + m. */
struct weight {
    double d, q, m;
};
struct weight matrix_weight(const struct matrix *m, int out, int in);

/* ---- lists of tests, one per file ---- */

struct kcheck_test {
    char name[64];
    void (*run)(void **state);
    int arg;
};
/* Each adds its tests to list and returns the new count. */
int kcheck_matmul_tests(struct kcheck_test *list, int n);
int kcheck_rows_tests(struct kcheck_test *list, int n);
int kcheck_scalar_tests(struct kcheck_test *list, int n);
int kcheck_attn_tests(struct kcheck_test *list, int n);
int kcheck_attn_batch_tests(struct kcheck_test *list, int n);
int kcheck_pinned_tests(struct kcheck_test *list, int n);
int kcheck_add(struct kcheck_test *list, int n, void (*run)(void **), int arg,
               const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Timings of every op beside peaks of the machine, measured in the same run. */
void kcheck_bench(void);

#endif

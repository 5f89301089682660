/* Bounds of the norms of packed weights: no row of a panel is longer, one is nearly as long. */
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_IN = 512, N_OUT = 16 * 4 + 5, PANELS = 5 };

static uint32_t seed = 1;

static uint32_t next_random(void)
{
    seed = seed * 1664525 + 1013904223;
    return seed >> 8;
}

/* Random blocks with scales of 2^-8 or so, halves, where this type has them. */
static uint8_t *random_rows(enum kern_type t)
{
    static const int scale_at[KERN_TYPE_COUNT] = {[KERN_Q6_K] = 208};
    size_t block = (size_t)kern_types[t].block_bytes, n = kern_row_bytes(t, N_IN) * N_OUT;
    uint8_t *rows = malloc(n);
    for (size_t i = 0; i < n; i++)
        rows[i] = (uint8_t)next_random();
    for (size_t i = 0; i < n; i += block) {
        uint16_t d = (uint16_t)(0x1c00 + next_random() % 0x400);
        memcpy(rows + i + scale_at[t], &d, sizeof(d));
    }
    return rows;
}

static void check(enum kern_type t)
{
    uint8_t *rows = random_rows(t);
    void *packed = aligned_alloc(64, (kern_packed_bytes(t, N_OUT, N_IN) + 63) / 64 * 64);
    kern_pack(packed, rows, t, N_OUT, N_IN, 0, N_OUT);
    struct kern_weights w = {t, N_OUT, N_IN, packed};
    float norms[PANELS], x[N_IN];
    double longest[PANELS] = {0};
    assert_true(kern_panel_norms(norms, &w, 0, PANELS));
    for (int i = 0; i < N_OUT; i++) {
        double sum = 0;
        kern_dequantize_row(x, rows + (size_t)i * kern_row_bytes(t, N_IN), t, N_IN);
        for (int k = 0; k < N_IN; k++)
            sum += (double)x[k] * (double)x[k];
        longest[i / 16] = fmax(longest[i / 16], sqrt(sum));
    }
    for (int p = 0; p < PANELS; p++) {
        assert_true((double)norms[p] >= longest[p]);
        assert_true((double)norms[p] <= longest[p] * 1.00001);
    }
    free(packed);
    free(rows);
}

static void a_panel_is_bounded_by_its_longest_row(void **state)
{
    (void)state;
    check(KERN_Q4_0);
    check(KERN_Q5_0);
    check(KERN_Q8_0);
    check(KERN_Q6_K);
}

static void types_with_a_minimum_and_floats_have_no_bound(void **state)
{
    (void)state;
    const enum kern_type none[] = {KERN_F32,  KERN_F16,  KERN_BF16, KERN_Q4_1,
                                   KERN_Q5_1, KERN_Q4_K, KERN_Q5_K};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        struct kern_weights w = {none[i], N_OUT, N_IN, NULL};
        assert_false(kern_panel_norms(NULL, &w, 0, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_panel_is_bounded_by_its_longest_row),
        cmocka_unit_test(types_with_a_minimum_and_floats_have_no_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

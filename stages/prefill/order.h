/* stages/prefill/order.h - which of the requests that wait is computed next.
 *
 * What:   walks the prefix tree of the waiting requests depth first: after a request comes the one that shares most
 *         with it, so a page is used by all its requests before memory is needed for others.
 * Rules:  1. What every request of the job shares counts for nothing: it stays in memory anyway.
 *         2. Among equals the one that came first. None is passed over more than ORDER_PATIENCE times.
 * Thread: pure.
 * Source: depth-first order over the prefix tree is optimal for offline batches: Zheng et al. 2024 (BatchLLM).
 */
#ifndef QUIRE_PREFILL_ORDER_H
#define QUIRE_PREFILL_ORDER_H

#include <stdint.h>

enum { ORDER_PATIENCE = 64 };

struct order_item {
    const int32_t *tokens;
    int n_tokens, n_shared;
    int passed_over; /* times that one behind it was taken */
};

/* Index of the item to take, of n > 0 items in order of arrival; last[n_last]: the tokens of the one taken before (NULL: none). */
int order_next(const struct order_item *items, int n, const int32_t *last, int n_last);

/* Full pages that two prompts have in common. */
int order_common_pages(const int32_t *a, int n_a, const int32_t *b, int n_b);

#endif

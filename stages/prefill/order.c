#include "stages/prefill/order.h"

#include "stages/kv/page.h"

#include <string.h>

int order_common_pages(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    int most = (n_a < n_b ? n_a : n_b) / PAGE_TOKENS, i = 0;
    while (i < most && memcmp(a + (size_t)i * PAGE_TOKENS, b + (size_t)i * PAGE_TOKENS,
                              PAGE_TOKENS * sizeof(*a)) == 0)
        i++;
    return i;
}

int order_next(const struct order_item *items, int n, const int32_t *last, int n_last)
{
    int best = 0, best_pages = 0;
    for (int i = 0; i < n && last && items[0].passed_over < ORDER_PATIENCE; i++) {
        int pages = order_common_pages(items[i].tokens, items[i].n_tokens, last, n_last) -
                    items[i].n_shared / PAGE_TOKENS;
        if (pages > best_pages) {
            best = i;
            best_pages = pages;
        }
    }
    return best;
}

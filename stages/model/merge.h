/* stages/model/merge.h - the loop that both kinds of BPE share: merge the best pair of neighbours until none is
 * left.
 *
 *   symbols    H e l l o       each knows its neighbours; a merge keeps the left one and empties the right one
 *   candidates (rank, left)    a heap; one that is out of date is noticed by its size when it comes up
 *
 * Rules:  1. Smaller rank first, then the one further left.  2. O(n log n), no recursion.
 *         3. n symbols need 52 n bytes; the memory is kept for the next word.
 */
#ifndef QUIRE_MODEL_MERGE_H
#define QUIRE_MODEL_MERGE_H

#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct vocab;

struct symbol {
    uint32_t at, len;   /* its bytes in the text; len 0: merged away */
    int32_t prev, next; /* neighbours, -1: none */
    int32_t id;         /* -1: no token */
};

struct candidate {
    uint64_t order; /* rank << 32 | left symbol */
    uint32_t len;   /* of both symbols together */
    int32_t id;     /* what they become */
};

struct merger {
    struct symbol *symbols;
    struct candidate *heap;
    size_t n, n_heap, cap; /* cap: symbols; the heap has twice as many */
};

/* What l and r merge to; false when they do not. */
typedef bool merge_find_fn(const struct vocab *v, const char *text, const struct symbol *l,
                           const struct symbol *r, uint32_t *rank, int32_t *id);

/* Forget the symbols; make room for n new ones (n <= INT32_MAX). -ERR_NOMEM, reach DOC. */
int merger_start(struct merger *m, size_t n, struct err *e) MUST_CHECK;
void merger_add(struct merger *m, size_t at, size_t len, int32_t id);
/* Merge; the first symbol stays the first of the chain of those that are left. */
void merger_run(struct merger *m, const struct vocab *v, const char *text, merge_find_fn *find);
void merger_release(struct merger *m);

#endif

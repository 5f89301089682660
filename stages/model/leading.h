/* stages/model/leading.h - the greatest of many logits.
 *
 * What:   a list of the n greatest that it was given, whatever their order. A logit leads another when it is greater, or equal
 *         and its id is lower; -0 equals 0.
 * Rules:  1. Values are no NaN.  2. While it is filled the list is a heap whose root is the one that would go first, so a
 *            value that does not enter costs one comparison.
 * Thread: one per list.
 */
#ifndef QUIRE_MODEL_LEADING_H
#define QUIRE_MODEL_LEADING_H

#include <stdint.h>

enum {
    LEADING_MOST = 1024, /* more are not worth a list */
};

struct logit {
    float value;
    int32_t id;
};

struct leading {
    struct logit *at; /* [most], the caller's */
    int n, most;      /* most >= 1 */
};

/* Of all n, at once; any that is no NaN leads one that is. */
int32_t leading_first(const float *logits, int n);

/* leading_add() past its first comparison. */
void leading_enter(struct leading *l, float value, int32_t id);
static inline void leading_add(struct leading *l, float value, int32_t id)
{
    if (l->n < l->most || value >= l->at[0].value) /* most are not, of many */
        leading_enter(l, value, id);
}

/* The last to lead so far, once the list is full; -inf before. What is less cannot enter. */
float leading_least(const struct leading *l);
/* Orders the list: who leads comes first. Nothing is added after it. */
void leading_sort(struct leading *l);
/* Orders n that were filled by other means. */
void leading_order(struct logit *at, int n);

#endif

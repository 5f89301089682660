#include "stages/model/leading.h"

#include <math.h>
#include <stdbool.h>

static bool leads(struct logit a, struct logit b)
{
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

int32_t leading_first(const float *logits, int n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
            best = i;
    return best;
}

/* Puts x where it belongs below i: of n, each leads its parent. */
static void sink(struct logit *at, int n, int i, struct logit x)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && leads(at[child], at[child + 1]))
            child++;
        if (!leads(x, at[child]))
            break;
        at[i] = at[child];
    }
    at[i] = x;
}

static void rise(struct logit *at, int i, struct logit x)
{
    for (int parent; i > 0 && leads(at[parent = (i - 1) / 2], x); i = parent)
        at[i] = at[parent];
    at[i] = x;
}

void leading_enter(struct leading *l, float value, int32_t id)
{
    struct logit x = {value, id};
    if (l->n < l->most)
        rise(l->at, l->n++, x);
    else if (leads(x, l->at[0]))
        sink(l->at, l->n, 0, x);
}

float leading_least(const struct leading *l)
{
    return l->n < l->most ? -INFINITY : l->at[0].value;
}

void leading_sort(struct leading *l)
{
    for (int n = l->n; n > 1; n--) {
        struct logit last = l->at[0];
        sink(l->at, n - 1, 0, l->at[n - 1]);
        l->at[n - 1] = last;
    }
}

void leading_order(struct logit *at, int n)
{
    struct leading l = {.at = at, .most = n};
    for (int i = 0; i < n; i++)
        leading_add(&l, at[i].value, at[i].id); /* the heap ends before i */
    leading_sort(&l);
}

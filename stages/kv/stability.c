/* What a wrong guess costs: a page kept in vain is written once and is among the first to be evicted (lru_k.h);
 * a page missing next time is computed, which takes tens of times as long as reading it. So a small share of
 * repeats is enough, and in doubt documents begin as kept. */
#include "stages/kv/stability.h"

#include <assert.h>

static const double KEPT_FROM = 0.10; /* share of repeats */

/* Look-ups that a class has behind it at the start, and the repeats among them. */
struct prior {
    double lookups, repeats;
};

static struct prior prior_of(const struct stability *s, enum prefix_class of)
{
    if (of == PREFIX_OWN)
        return (struct prior){100, 0};
    if (s->expect_reuse)
        return (struct prior){4000, 2400};
    return (struct prior){100, 20};
}

enum prefix_class stability_class(int end, int n_shared, int n_document)
{
    return end <= n_shared ? PREFIX_SHARED : end <= n_document ? PREFIX_DOCUMENT : PREFIX_OWN;
}

void stability_count(struct stability *s, enum prefix_class of, bool repeat)
{
    assert((unsigned)of < PREFIX_CLASS_COUNT);
    atomic_fetch_add_explicit(&s->lookups[of], 1, memory_order_relaxed);
    if (repeat)
        atomic_fetch_add_explicit(&s->repeats[of], 1, memory_order_relaxed);
}

bool stability_keeps(const struct stability *s, enum prefix_class of, bool repeat)
{
    assert((unsigned)of < PREFIX_CLASS_COUNT);
    if (repeat || of == PREFIX_SHARED)
        return true;
    struct prior p = prior_of(s, of);
    double lookups = p.lookups + (double)atomic_load(&s->lookups[of]);
    double repeats = p.repeats + (double)atomic_load(&s->repeats[of]);
    return repeats >= KEPT_FROM * lookups;
}

double stability_share(const struct stability *s, enum prefix_class of)
{
    assert((unsigned)of < PREFIX_CLASS_COUNT);
    double lookups = (double)atomic_load(&s->lookups[of]);
    return lookups > 0 ? (double)atomic_load(&s->repeats[of]) / lookups : -1;
}

const char *prefix_class_name(enum prefix_class of)
{
    static const char *const names[PREFIX_CLASS_COUNT] = {"shared", "document", "own"};
    return (unsigned)of < PREFIX_CLASS_COUNT ? names[of] : NULL;
}

int stability_line(const struct stability *s, struct buf *out, struct err *e)
{
    int rc = buf_adds(out, "prefix stability:", e);
    const char *before = " ";
    for (int of = 0; !rc && of < PREFIX_CLASS_COUNT; of++) {
        double share = stability_share(s, (enum prefix_class)of);
        if (share < 0)
            continue;
        rc = buf_addf(out, e, "%s%s %.0f %%", before, prefix_class_name((enum prefix_class)of),
                      100 * share);
        before = ", ";
    }
    return rc || before[0] == ',' ? rc : buf_adds(out, " nothing was looked up", e);
}

#include "stages/write/tally.h"

#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tally_release(struct tally *t)
{
    for (int i = 0; i < t->n_failures; i++) {
        free(t->failures[i].name);
        free(t->failures[i].code);
        free(t->failures[i].message);
    }
    for (int i = 0; i < t->n_slowest; i++)
        free(t->slowest[i].name);
    *t = (struct tally){0};
}

static void add_code(struct tally *t, const char *code)
{
    int i = 0;
    while (i < t->n_codes && strcmp(t->codes[i].code, code) != 0)
        i++;
    if (i == TALLY_CODES)
        return;
    if (i == t->n_codes) {
        snprintf(t->codes[i].code, sizeof(t->codes[i].code), "%s", code);
        t->n_codes++;
    }
    t->codes[i].n++;
}

static void add_slow(struct tally *t, const struct tally_doc *d)
{
    int64_t us = d->compute_us;
    int at = t->n_slowest;
    while (at > 0 && t->slowest[at - 1].compute_us < us)
        at--;
    if (at == TALLY_SLOWEST || us <= 0)
        return;
    if (t->n_slowest == TALLY_SLOWEST)
        free(t->slowest[--t->n_slowest].name);
    memmove(&t->slowest[at + 1], &t->slowest[at],
            (size_t)(t->n_slowest - at) * sizeof(t->slowest[0]));
    t->slowest[at] = (struct tally_slow){
        .ordinal = d->ordinal, .compute_us = us, .name = mem_strdup(d->name)};
    t->n_slowest++;
}

void tally_add(struct tally *t, const struct tally_doc *d)
{
    static const unsigned counted[] = {ANSWER_TRUNCATED, ANSWER_REPETITIVE, ANSWER_THINKING};
    t->by_status[d->status]++;
    for (size_t i = 0; i < ARRAY_LEN(counted); i++)
        t->flagged[i] += (d->flags & counted[i]) != 0;
    add_slow(t, d);
    if (d->status != DOC_FAILED)
        return;
    add_code(t, d->code);
    if (t->n_failures < TALLY_FAILURES)
        t->failures[t->n_failures++] = (struct tally_failure){
            d->ordinal, mem_strdup(d->name), mem_strdup(d->code), mem_strdup(d->message)};
}

void tally_log(const struct tally *t)
{
    for (int i = 0; i < t->n_failures; i++)
        log_warn("write", "failed: %s: %s (%s)", t->failures[i].name, t->failures[i].message,
                 t->failures[i].code);
    int64_t more = t->by_status[DOC_FAILED] - t->n_failures;
    if (more > 0)
        log_warn("write", "and %" PRId64 " more; results.jsonl has them all", more);
}

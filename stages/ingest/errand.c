#include "stages/ingest/errand.h"

#include "stages/base/utf8.h"
#include "stages/ingest/jail.h"

#include <stdio.h>
#include <string.h>

bool spot_equal(const struct spot *a, const struct spot *b)
{
    return a->n == b->n && a->head == b->head &&
           memcmp(a->path, b->path, (size_t)a->n * sizeof(a->path[0])) == 0;
}

void board_post(struct board *b, uint64_t file, const struct spot *s)
{
    unsigned next = atomic_load_explicit(&b->turn, memory_order_relaxed) + 1;
    b->posts[next % 2].file = file;
    b->posts[next % 2].spot = *s;
    atomic_store_explicit(&b->turn, next, memory_order_release);
}

bool board_read(const struct board *b, uint64_t *file, struct spot *s)
{
    unsigned turn = board_turn(b);
    *file = b->posts[turn % 2].file;
    memcpy(s, &b->posts[turn % 2].spot, sizeof(*s));
    unsigned char head;
    memcpy(&head, &s->head, 1); /* a byte that is neither 0 nor 1 is no bool */
    return *file > 0 && s->n >= 0 && s->n <= SPOT_DEPTH && head <= 1 && !(head && s->n == 0);
}

void board_say(struct board *b, const char *why)
{
    snprintf(b->said, sizeof(b->said), "%s", why);
}

void board_said(const struct board *b, char *out, size_t cap)
{
    size_t n = 0;
    while (n + 1 < cap && n < sizeof(b->said) && b->said[n] != '\0') {
        out[n] = b->said[n];
        n++;
    }
    out[utf8_valid_prefix(out, n)] = '\0';
}

void board_clear(struct board *b)
{
    memset(b->said, 0, sizeof(b->said));
    memset(b->posts, 0, sizeof(b->posts));
}

const struct err *errand_at(const struct errand *x, const struct spot *s)
{
    board_post(x->board, x->file, s);
    if (x->cpu_seconds > 0)
        jail_allow_cpu(x->cpu_seconds);
    for (int i = 0; i < x->n_blames; i++)
        if (spot_equal(&x->blames[i].spot, s))
            return &x->blames[i].why;
    return NULL;
}

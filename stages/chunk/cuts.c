#include "stages/chunk/cuts.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A search for the end of a piece. [begin, low) fits, [begin, high) does not (high 0: none known). */
struct fit {
    size_t begin, low, high;
    int64_t low_tokens, high_tokens, room;
};

static int no_memory(struct err *e)
{
    return err_set(e, REACH_DOC, ERR_NOMEM, "no memory to cut the text");
}

void piece_list_release(struct piece_list *l)
{
    free(l->items);
    *l = (struct piece_list){0};
}

static int add(struct piece_list *l, struct piece p, struct err *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 16, bytes;
        struct piece *items =
            size_mul(cap, sizeof(*items), &bytes) ? mem_resize(l->items, bytes) : NULL;
        if (!items)
            return no_memory(e);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = p;
    return 0;
}

/* The next length to try: towards 31/32 of the room, inside the bracket, never a step so small that the
 * search crawls. Every second step of a long search bisects. */
static size_t next_guess(const struct fit *f, int round)
{
    int64_t target = f->room - f->room / 32;
    size_t low = f->low - f->begin;
    if (!f->high) {
        double per_token = (double)low / (double)(f->low_tokens > 0 ? f->low_tokens : 1);
        double want = per_token * (double)target;
        double least = (double)low + (double)low / 16 + 4, most = 4 * (double)low + 64;
        return (size_t)(want < least ? least : want > most ? most : want);
    }
    size_t span = f->high - f->low, step = span / 2;
    if (round % 2 == 0 && f->high_tokens > f->low_tokens)
        step = (size_t)((double)span * (double)(target - f->low_tokens) /
                        (double)(f->high_tokens - f->low_tokens));
    size_t least = span / 16 + 1;
    return low + (step < least ? least : step > span - least ? span - least : step);
}

/* Find a length that fills nearly all of the room, or reaches the end of the text. */
static int fit_find(const struct cut_text *t, const struct cut_rules *r, struct fit *f,
                    double *bytes_per_token, struct err *e)
{
    double first = *bytes_per_token * (double)f->room + 4;
    size_t rest = t->len - f->begin, guess = first < (double)rest ? (size_t)first : rest;
    for (int round = 0;; round++) {
        size_t end = guess >= rest ? t->len : utf8_floor(t->text, t->len, f->begin + guess);
        if (end <= f->low) { /* a guess inside the next code point */
            uint32_t cp;
            end = f->low + (size_t)utf8_decode(t->text + f->low, t->len - f->low, &cp);
        }
        if (f->high && end >= f->high)
            break;
        int64_t n = r->count(r->ctx, t->text + f->begin, end - f->begin);
        if (n < 0)
            return no_memory(e);
        if (n <= f->room) {
            f->low = end;
            f->low_tokens = n;
        } else {
            f->high = end;
            f->high_tokens = n;
        }
        if (f->low == t->len || f->low_tokens >= f->room - f->room / 16)
            break;
        if (f->high && f->low > f->begin && f->high - f->low <= 4)
            break;
        guess = next_guess(f, round);
    }
    if (f->low_tokens > 0)
        *bytes_per_token = (double)(f->low - f->begin) / (double)f->low_tokens;
    return 0;
}

static int too_small(const struct cut_text *t, size_t begin, int64_t room, struct err *e)
{
    return err_set(e, REACH_DOC, ERR_LIMIT,
                   "byte %zu of %zu: room for %" PRId64
                   " tokens of text is too little for one character; set a larger "
                   "model.context or a smaller "
                   "decode.max_tokens",
                   begin, t->len, room > 0 ? room : 0);
}

/* One piece that begins at `begin`. */
static int cut_one(const struct cut_text *t, const struct cut_rules *r, size_t begin,
                   double *bytes_per_token, struct piece *out, struct err *e)
{
    struct fit f = {.begin = begin, .low = begin, .room = r->room(r->ctx, begin)};
    if (f.room == ROOM_NO_MEMORY)
        return no_memory(e);
    if (f.room < 1)
        return too_small(t, begin, f.room, e);
    if (fit_find(t, r, &f, bytes_per_token, e) != 0)
        return -(int)e->code;
    *out = (struct piece){
        .begin = begin, .end = f.low, .tokens = (int)f.low_tokens, .rank = BOUNDARY_TOP};
    if (f.low == t->len)
        return 0;
    for (size_t limit = f.low; limit > begin;) {
        size_t end = boundary_choose(t, begin, limit, &out->rank);
        if (end <= begin)
            break;
        int64_t n = r->count(r->ctx, t->text + begin, end - begin);
        if (n < 0)
            return no_memory(e);
        out->end = end;
        out->tokens = (int)n;
        if (n <= f.room)
            return 0;
        limit =
            begin + (end - begin) / 4 * 3; /* fewer bytes, more tokens: rare, but it happens */
        limit = utf8_floor(t->text, t->len, limit);
    }
    return too_small(t, begin, f.room, e);
}

/* Join the last two pieces, or move their border towards the middle, when the last is very short. */
static int even_out(const struct cut_text *t, const struct cut_rules *r, struct piece_list *l,
                    struct err *e)
{
    struct piece *a = &l->items[l->n - 2], *b = a + 1;
    int64_t room_a = r->room(r->ctx, a->begin);
    int64_t both = r->count(r->ctx, t->text + a->begin, b->end - a->begin);
    if (both < 0 || room_a == ROOM_NO_MEMORY)
        return no_memory(e);
    if (both <= room_a) {
        *a = (struct piece){
            .begin = a->begin, .end = b->end, .tokens = (int)both, .rank = b->rank};
        l->n--;
        return 0;
    }
    size_t span = b->end - a->begin, middle;
    enum boundary rank =
        boundary_best(t, a->begin + span / 8 * 3, a->begin + span / 8 * 5, &middle);
    if (rank < BOUNDARY_WORD)
        return 0;
    int64_t n_a = r->count(r->ctx, t->text + a->begin, middle - a->begin);
    int64_t n_b = r->count(r->ctx, t->text + middle, b->end - middle);
    int64_t room_b = r->room(r->ctx, middle);
    if (n_a < 0 || n_b < 0 || room_b == ROOM_NO_MEMORY)
        return no_memory(e);
    if (n_a > room_a || n_b > room_b)
        return 0;
    *a = (struct piece){.begin = a->begin, .end = middle, .tokens = (int)n_a, .rank = rank};
    *b = (struct piece){.begin = middle, .end = b->end, .tokens = (int)n_b, .rank = b->rank};
    return 0;
}

int cuts_make(const struct cut_text *t, const struct cut_rules *r, size_t limit,
              struct piece_list *out, struct err *e)
{
    double bytes_per_token = 4;
    for (size_t at = 0; at < t->len && (limit == 0 || out->n < limit);) {
        struct piece p;
        if (cut_one(t, r, at, &bytes_per_token, &p, e) != 0 || add(out, p, e) != 0)
            return -(int)e->code;
        at = p.end;
    }
    bool short_last = out->n > 1 && out->items[out->n - 1].end == t->len &&
                      out->items[out->n - 1].tokens < r->min_tokens;
    return short_last ? even_out(t, r, out, e) : 0;
}

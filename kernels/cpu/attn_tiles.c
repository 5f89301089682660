#include "kernels/cpu/attn_tiles.h"

#include "kernels/team.h"

#include <string.h>

enum { PAGE = KERN_PAGE_TOKENS, SQUARE = ATTN_SQUARE };

static int squares_of(int d)
{
    return (d + SQUARE - 1) / SQUARE;
}

static int square_at(int d, int i)
{
    return d / 16 * i / squares_of(d) * 16;
}

/* Scratch of a tile: row i of it is row i / n_heads of the tile's list, head head + i % n_heads. */
struct tile_mem {
    float (*square)[SQUARE]; /* [PAGE] of keys or values as floats */
    float (*scores)[PAGE];   /* [ATTN_TILE_ROWS] */
    float (*q)[SQUARE];      /* [squares][ATTN_TILE_ROWS] */
    float (*out)[SQUARE];
    float *max, *sum, *shrink; /* [ATTN_TILE_ROWS] */
};

size_t attn_thread_floats(int head_dim)
{
    return ATTN_TILE_ROWS * (2 * (size_t)(squares_of(head_dim) * SQUARE) + PAGE + 3) +
           PAGE * SQUARE;
}

static struct tile_mem tile_mem_at(float *scratch, int head_dim)
{
    size_t n = ATTN_TILE_ROWS, squares = (size_t)squares_of(head_dim);
    struct tile_mem m = {.square = (float(*)[SQUARE])scratch};
    m.scores = m.square + PAGE;
    m.q = m.scores + n;
    m.out = m.q + squares * n;
    m.max = (float *)(m.out + squares * n);
    m.sum = m.max + n;
    m.shrink = m.sum + n;
    return m;
}

static void tile_begin(const struct attn_tile *t, const struct tile_mem *m, int d)
{
    for (int i = 0; i < t->n_rows * t->n_heads; i++) {
        const struct attn_row *r = &t->rows[i / t->n_heads];
        const float *q =
            r->call->q + (size_t)r->row * r->call->ld_q + (t->head + i % t->n_heads) * d;
        m->max[i] = ATTN_LOWEST;
        m->sum[i] = 0.0f;
        for (int s = 0; s < squares_of(d); s++) {
            int begin = square_at(d, s), end = square_at(d, s + 1);
            memcpy(m->q[s * ATTN_TILE_ROWS + i], q + begin,
                   (size_t)(end - begin) * sizeof(float));
            memset(m->out[s * ATTN_TILE_ROWS + i], 0, sizeof(m->out[0]));
        }
    }
}

/* A key that is multiplied by 0 here and skipped elsewhere: `+ 0`, so that there is no -0. */
static void tile_end(const struct attn_ops *ops, const struct attn_tile *t,
                     const struct tile_mem *m, int d)
{
    for (int i = 0; i < t->n_rows * t->n_heads; i++) {
        const struct attn_row *r = &t->rows[i / t->n_heads];
        float *to =
            r->call->out + (size_t)r->row * r->call->ld_out + (t->head + i % t->n_heads) * d;
        float scale = 1.0f / m->sum[i];
        for (int s = 0; s < squares_of(d); s++) {
            int begin = square_at(d, s);
            ops->scale(to + begin, m->out[s * ATTN_TILE_ROWS + i], scale,
                       square_at(d, s + 1) - begin);
        }
    }
}

int attn_part(struct attn_product *part, const struct attn_product *all, int rows, int i, int n)
{
    int first = rows * i / n, end = rows * (i + 1) / n;
    *part = *all;
    part->a += first * ATTN_SQUARE;
    part->c += first * ATTN_SQUARE;
    part->shrink = all->shrink ? all->shrink + first : NULL;
    if (all->seen) {
        struct attn_view span = {PAGE, 0};
        for (int r = first; r < end; r++) {
            span.begin = all->seen[r].begin < span.begin ? all->seen[r].begin : span.begin;
            span.end = all->seen[r].end > span.end ? all->seen[r].end : span.end;
        }
        span.begin = span.begin > 0 ? span.begin : 0;
        span.end = span.end < PAGE ? span.end : PAGE;
        attn_skip_lanes(part, span.begin / 16);
        part->lanes = (span.end + 15) / 16 * 16 - span.begin / 16 * 16;
    }
    attn_ask(part, i, n);
    return end - first;
}

/* Rows [first, first + n) of the tile's memory, which all see some of a page. */
struct run {
    int first, n;
    struct kv_part page;
    struct kv_part next; /* where its first row goes on, in the same form; or no keys */
    const struct attn_view *seen; /* [n]; NULL: all rows see all keys */
    int written;                  /* values from here on were never written: no number at all */
};

/* The product of a square of the page, or one as it is, and the rows of a run. */
static void multiply(const struct attn_ops *ops, const struct tile_mem *m,
                     const struct run *run, struct attn_product *p)
{
    if (run->n > ATTN_FEW) {
        ops->widen(m->square[0], p);
        p->kind = ATTN_FLOATS;
        p->w = m->square;
    }
    ops->multiply(p, run->n);
}

/* From the first of some values of a page to one of them, in bytes. */
static size_t bytes_to(const struct run *run, size_t values)
{
    return values * (run->page.key_scales ? 1 : sizeof(uint16_t));
}

/* What is read next, once as many values of a page are. */
static const char *ahead_of(const struct run *run, const void *next, size_t passed)
{
    return next ? (const char *)next + bytes_to(run, passed) : NULL;
}

static void add_scores(const struct attn_ops *ops, const struct tile_mem *m,
                       const struct run *run, int d)
{
    bool q8 = run->page.key_scales != NULL;
    for (int i = 0; i < squares_of(d); i++) {
        int begin = square_at(d, i), n = square_at(d, i + 1) - begin;
        size_t line = q8 ? PAGE : 16, passed = (size_t)begin * PAGE;
        struct attn_product p = {.kind = q8 ? ATTN_BYTES : ATTN_KEYS,
                                 .w = (const char *)run->page.keys +
                                      bytes_to(run, line * (size_t)begin),
                                 .ld = q8 ? PAGE : 16 * (size_t)d,
                                 .n = n,
                                 .lanes = PAGE,
                                 .seen = run->seen,
                                 .a = m->q[i * ATTN_TILE_ROWS + run->first],
                                 .scales = q8 ? run->page.key_scales + begin : NULL,
                                 .c = m->scores[0],
                                 .go_on = i > 0,
                                 .ahead = ahead_of(run, run->next.keys, passed)};
        multiply(ops, m, run, &p);
    }
}

static void add_values(const struct attn_ops *ops, const struct tile_mem *m,
                       const struct run *run, int d)
{
    bool q8 = run->page.value_scales != NULL;
    for (int i = 0; i < squares_of(d); i++) {
        int begin = square_at(d, i);
        size_t passed = (size_t)begin * PAGE;
        struct attn_product p = {.kind = q8 ? ATTN_BYTES : ATTN_VALUES,
                                 .w = (const char *)run->page.values +
                                      bytes_to(run, (size_t)begin),
                                 .ld = (size_t)d,
                                 .n = run->written,
                                 .lanes = square_at(d, i + 1) - begin,
                                 .a = m->scores[0],
                                 .scales = run->page.value_scales,
                                 .c = m->out[i * ATTN_TILE_ROWS + run->first],
                                 .go_on = true,
                                 .shrink = m->shrink,
                                 .ahead = ahead_of(run, run->next.values, passed)};
        multiply(ops, m, run, &p);
    }
}

/* What the rows of a tile see of a page. */
struct page_views {
    struct attn_view of[ATTN_TILE_ROWS];
    int n;
    bool whole; /* all see all of it */
    int written;
};

static bool sees(const struct key_range *keys, int page)
{
    return keys->begin < (page + 1) * PAGE && keys->end > page * PAGE;
}

static void add_view(struct page_views *v, struct key_range keys, int page, int heads)
{
    struct attn_view one = {keys.begin - page * PAGE, keys.end - page * PAGE};
    v->whole &= one.begin <= 0 && one.end >= PAGE;
    int end = one.end < PAGE ? one.end : PAGE;
    v->written = end > v->written ? end : v->written;
    for (int h = 0; h < heads; h++)
        v->of[v->n++] = one;
}

/* The run that begins with row i of the tile's list, which sees the page. Returns the row behind it. */
static int add_run(const struct attn_ops *ops, const struct attn_tile *t,
                   const struct tile_mem *m, const struct key_range *keys, int i, int page,
                   int d)
{
    const struct kern_attn_rows *call = t->rows[i].call;
    const void *slice = call->slices[page];
    struct page_views v = {.n = 0, .whole = true};
    struct run run = {.first = i * t->n_heads, .page = kv_part_of(call, page, t->kv_head, d)};
    if (call->pos + call->rows > (page + 1) * PAGE && page + 1 != call->q8_pages)
        run.next = kv_part_of(call, page + 1, t->kv_head, d);
    for (; i < t->n_rows && sees(&keys[i], page) && t->rows[i].call->slices[page] == slice; i++)
        add_view(&v, keys[i], page, t->n_heads);
    run.n = v.n;
    run.seen = v.whole ? NULL : v.of;
    run.written = v.written;
    add_scores(ops, m, &run, d);
    ops->weigh(m->scores[0], run.n, run.seen, m->max + run.first, m->sum + run.first,
               m->shrink);
    add_values(ops, m, &run, d);
    return i;
}

static void attend(const struct attn_ops *ops, const struct attn_tile *t, int d, float *scratch)
{
    struct tile_mem m = tile_mem_at(scratch, d);
    struct key_range keys[ATTN_TILE_ROWS], all = {INT32_MAX, 0};
    for (int i = 0; i < t->n_rows; i++) {
        keys[i] = visible_keys(t->rows[i].call, t->rows[i].row);
        all.begin = keys[i].begin < all.begin ? keys[i].begin : all.begin;
        all.end = keys[i].end > all.end ? keys[i].end : all.end;
    }
    tile_begin(t, &m, d);
    for (int page = all.begin / PAGE; page * PAGE < all.end; page++)
        for (int i = 0; i < t->n_rows;)
            i = sees(&keys[i], page) ? add_run(ops, t, &m, keys, i, page, d) : i + 1;
    tile_end(ops, t, &m, d);
}

struct attention {
    const struct attn_ops *ops;
    struct attn_plan plan;
    int head_dim;
    float *scratch;
};

static void attend_tiles(void *arg, int begin, int end, int thread)
{
    const struct attention *a = arg;
    for (int i = begin; i < end; i++) {
        struct attn_tile t;
        attn_plan_tile(&a->plan, i, &t);
        attend(a->ops, &t, a->head_dim,
               a->scratch + (size_t)thread * attn_thread_floats(a->head_dim));
    }
}

void attn_tiles(const struct attn_ops *ops, const struct kern_attn_rows *calls, int n_calls,
                int n_head, int n_kv_head, int head_dim, void *scratch)
{
    struct attention a = {.ops = ops, .head_dim = head_dim, .scratch = scratch};
    for (int n; n_calls > 0; calls += n, n_calls -= n) {
        n = n_calls < ATTN_CALLS ? n_calls : ATTN_CALLS;
        attn_plan_make(&a.plan, calls, n, n_head, n_kv_head, team_threads());
        team_run(a.plan.n_tiles, 1, attend_tiles, &a);
    }
}

#include "kernels/cpu/attn_plan.h"

#include "kernels/cpu/kv_slice.h"

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

static int first_page(const struct kern_attn_rows *c)
{
    return visible_keys(c, 0).begin / KERN_PAGE_TOKENS;
}

static int end_page(const struct kern_attn_rows *c)
{
    return ceil_div(c->pos + c->rows, KERN_PAGE_TOKENS);
}

/* Sequences share pages from the first on, so the first page that differs is found by halving. */
int attn_shared_pages(const struct kern_attn_rows *a, const struct kern_attn_rows *b)
{
    int begin = max_of(first_page(a), first_page(b));
    int low = begin, high = min_of(end_page(a), end_page(b));
    if (low < high && a->slices[low] != b->slices[low])
        return 0;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (a->slices[middle] == b->slices[middle])
            low = middle + 1;
        else
            high = middle;
    }
    return max_of(low - begin, 0);
}

/* Behind the last of those that share most with a call stands that call: so all that share some pages are neighbours. */
static void put_in_order(struct attn_plan *p, int n_calls)
{
    for (int n = 0; n < n_calls; n++) {
        int most = 0, at = n;
        for (int i = 0; i < n; i++) {
            int shared = attn_shared_pages(&p->calls[p->order[i]], &p->calls[n]);
            if (shared > 0 && shared >= most) {
                most = shared;
                at = i + 1;
            }
        }
        for (int i = n; i > at; i--)
            p->order[i] = p->order[i - 1];
        p->order[at] = n;
    }
}

/* Calls with many rows fill tiles of their own; others join when a quarter of what the shorter sees is shared:
 * fewer, larger tiles have a price when threads are to finish together. */
static bool belong_together(const struct kern_attn_rows *a, const struct kern_attn_rows *b)
{
    int pages = min_of(end_page(a) - first_page(a), end_page(b) - first_page(b));
    return 4 * attn_shared_pages(a, b) >= pages && attn_shared_pages(a, b) > 0;
}

static void make_bundles(struct attn_plan *p, int n_calls)
{
    p->n_bundles = 0;
    for (int i = 0; i < n_calls; i++) {
        const struct kern_attn_rows *c = &p->calls[p->order[i]];
        if (i == 0 || !belong_together(c, &p->calls[p->order[i - 1]]))
            p->bundles[p->n_bundles++] = (struct attn_bundle){.first = i};
        struct attn_bundle *b = &p->bundles[p->n_bundles - 1];
        b->end = i + 1;
        b->rows += c->rows;
    }
}

static int tiles_of(const struct attn_plan *p, const struct attn_bundle *b)
{
    return ceil_div(b->rows, p->rows) * p->n_kv_head * ceil_div(p->group, p->heads);
}

static int count_tiles(const struct attn_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_bundles; i++)
        n += tiles_of(p, &p->bundles[i]);
    return n;
}

/* Time of a tile: products of a row, and reading a page once for each group of rows or, widened, about twice. */
static int price(int rows)
{
    return 2 * rows + 2 * (rows <= ATTN_FEW ? ceil_div(rows, ATTN_GROUP) : 2);
}

/* Three tiles on two threads are a thread idle for a quarter of the time: six half ones are worth a second reading
 * of the same pages. Rows are parted first, then heads. */
static void part_for(struct attn_plan *p, int threads)
{
    int rows = 0;
    for (int i = 0; i < p->n_bundles; i++)
        rows = max_of(rows, p->bundles[i].rows);
    p->rows = ceil_div(rows, ceil_div(rows, p->rows)); /* of the largest tile */
    const struct attn_plan whole = *p;
    int best = ceil_div(count_tiles(p), threads) * price(p->rows * p->heads);
    for (int parts = 2; parts <= 2 * threads && parts <= whole.rows * whole.heads; parts++) {
        struct attn_plan q = whole;
        q.rows = ceil_div(whole.rows, parts);
        q.heads = ceil_div(whole.heads, parts / whole.rows > 1 ? parts / whole.rows : 1);
        int time = ceil_div(count_tiles(&q), threads) * price(q.rows * q.heads);
        if (time < best) {
            best = time;
            p->rows = q.rows;
            p->heads = q.heads;
        }
    }
}

void attn_plan_make(struct attn_plan *p, const struct kern_attn_rows *calls, int n_calls,
                    int n_head, int n_kv_head, int threads)
{
    p->calls = calls;
    p->n_kv_head = n_kv_head;
    p->group = n_head / n_kv_head;
    p->heads = min_of(p->group, ATTN_TILE_ROWS);
    p->rows = ATTN_TILE_ROWS / p->heads;
    put_in_order(p, n_calls);
    make_bundles(p, n_calls);
    if (count_tiles(p) < 4 * threads)
        part_for(p, threads);
    p->n_tiles = count_tiles(p);
}

void attn_plan_tile(const struct attn_plan *p, int i, struct attn_tile *t)
{
    const struct attn_bundle *b = p->bundles;
    for (; i >= tiles_of(p, b); b++)
        i -= tiles_of(p, b);
    int parts = ceil_div(p->group, p->heads), cuts = ceil_div(b->rows, p->rows);
    int cut = cuts - 1 - i / parts % cuts, part = i % parts;
    t->kv_head = i / (cuts * parts);
    t->head = t->kv_head * p->group + part * p->heads;
    t->n_heads = min_of(p->heads, p->group - part * p->heads);
    int first = (int)((int64_t)b->rows * cut / cuts),
        end = (int)((int64_t)b->rows * (cut + 1) / cuts);
    t->n_rows = 0;
    for (int c = b->first, at = 0; at < end; c++) {
        const struct kern_attn_rows *call = &p->calls[p->order[c]];
        for (int row = max_of(first - at, 0); row < call->rows && at + row < end; row++)
            t->rows[t->n_rows++] = (struct attn_row){call, row};
        at += call->rows;
    }
}

/* Which logits need their second part (head_tokens). With a row's first 8 bits all logits are known up to |w . r|, r what
 * these bits have left: at most norm(w) * norm(r). So the greatest logit is at least
 *
 *     T = max over all of (first part - norm(w) * norm(r))
 *
 * and a logit whose first part + norm(w) * norm(r) is below T is not the greatest, nor equal to it. Those of the panels
 * that are left are computed exactly, second part and all, by the same products as head_logits().
 *
 * Rounding. The second part is a product with q', the 8 bits of r: |r - d q'| <= max|r| / 254 in each block of 32, so
 * norm(d q') <= (1 + sqrt(32)/254) norm(r) < 1.0223 norm(r). Its terms round to nearest, a block is two operations, and
 * weights have no minimum: the result is at most the sum of the terms' magnitudes, norm(w) * norm(d q'), times
 * (1 + 2^-23)^(2 blocks), which 1.03 covers up to 60,000 blocks. Adding to the first part rounds, too, but rounding
 * never changes an order: first + second rounded is at most first + bound rounded. */
#include "stages/model/head.h"

#include "kernels/team.h"

#include <math.h>
#include <string.h>

enum {
    PANEL = 16,
    LANES = 16,
    FEW_ROWS =
        2, /* up to here rows and remainders are one tile: reading the weights is what costs */
};

#define ROUNDED_UP 1.03f /* see above */
#define SAFE 0x1p100f    /* logits that are bounded by it are finite, parts and all */

/* ---- norms ---- */

void head_measure(struct head *h)
{
    enum { PANELS_AT_ONCE = 64 };
    int panels = head_panels(h->w);
    h->bounded = h->w->n_in <= 60000 * 32 && kern_panel_norms(h->norms, h->w, 0, 0);
    if (!h->bounded)
        return;
#pragma omp parallel for schedule(dynamic, 1)
    for (int p = 0; p < panels; p += PANELS_AT_ONCE)
        (void)kern_panel_norms(h->norms, h->w, p,
                               panels - p < PANELS_AT_ONCE ? panels : p + PANELS_AT_ONCE);
    h->most = 0;
    for (int p = 0; p < panels; p++)
        if (!(h->norms[p] <= h->most)) /* NaN stays, and is safe for no row */
            h->most = h->norms[p];
}

static float norm_of(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum);
}

/* ---- all logits ---- */

/* Sixteen at a time, so that compilers make vectors of them. */
static void add_rows(float *restrict out, const float *restrict x, const float *restrict y,
                     int n)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            out[i + j] = x[i + j] + y[i + j];
    for (; i < n; i++)
        out[i] = x[i] + y[i];
}

/* A weight may hold anything. */
static bool all_finite(const float *x, int n)
{
    const uint32_t infinite = 0x7f800000;
    uint32_t bits[LANES], found[LANES] = {0}, any = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        memcpy(bits, x + i, sizeof(bits));
        for (int j = 0; j < LANES; j++)
            found[j] |= (bits[j] & infinite) == infinite;
    }
    for (int j = 0; j < LANES; j++)
        any |= found[j];
    for (; i < n; i++)
        any |= !isfinite(x[i]);
    return !any;
}

struct logits_job {
    const struct head *h;
    float *const *out;
    bool *ok;
    int rows;
    bool rest;
};

static void finish_rows(void *arg, int begin, int end, int thread)
{
    (void)thread;
    const struct logits_job *job = arg;
    size_t n = (size_t)job->h->w->n_out;
    for (int r = begin; r < end; r++) {
        const float *x = job->h->out + (size_t)r * n;
        if (job->rest)
            add_rows(job->out[r], x, x + (size_t)job->rows * n, (int)n);
        else
            memcpy(job->out[r], x, n * sizeof(*x));
        job->ok[r] = all_finite(job->out[r], (int)n);
    }
}

void head_logits(struct head *h, const struct kern_input *in, bool rest, float *const *out,
                 bool *ok)
{
    struct logits_job job = {h, out, ok, rest ? in->rows / 2 : in->rows, rest};
    h->k->matmul(h->out, (size_t)h->w->n_out, h->w, in, h->scratch);
    team_run(job.rows, 1, finish_rows, &job);
}

/* ---- the greatest ---- */

struct token_job {
    struct head *h;
    const struct kern_input *in; /* n rows and their remainders */
    float error[HEAD_ROWS]; /* times the norm of a row of weights: bound of the second part */
    int marked[HEAD_ROWS];  /* panels */
    int32_t *tokens;
    bool *ok;
};

/* All of it: in->rows is 2n. */
static void choose_of_all(struct token_job *job, int n)
{
    struct head *h = job->h;
    float *rows[HEAD_ROWS];
    for (int r = 0; r < n; r++)
        rows[r] = h->out + (size_t)r * (size_t)h->w->n_out;
    h->k->matmul(h->out, (size_t)h->w->n_out, h->w, job->in, h->scratch);
    h->k->add(rows[0], rows[0] + (size_t)n * (size_t)h->w->n_out, (size_t)h->w->n_out, n,
              h->w->n_out);
    for (int r = 0; r < n; r++) {
        job->ok[r] = all_finite(rows[r], h->w->n_out);
        job->tokens[r] = h->k->argmax(rows[r], h->w->n_out);
    }
}

/* Some outputs of a row: the greatest first part, and the bound of its panels. */
struct part_top {
    float top, norm;
};

static struct part_top part_top(const struct token_job *job, const float *x, int first)
{
    const struct head *h = job->h;
    int n = h->w->n_out - first < HEAD_PART ? h->w->n_out - first : HEAD_PART;
    struct part_top p = {x[first + h->k->argmax(x + first, n)], 0};
    for (int i = first / PANEL; i < (first + n + PANEL - 1) / PANEL; i++)
        p.norm = h->norms[i] > p.norm ? h->norms[i] : p.norm;
    return p;
}

/* Mark the panels that may hold the greatest logit of row r. */
static void mark_row(struct token_job *job, int r)
{
    struct head *h = job->h;
    uint8_t *marks = h->marks + (size_t)r * (size_t)head_panels(h->w);
    const float *x = h->out + (size_t)r * (size_t)h->w->n_out;
    float error = job->error[r], least = -INFINITY;
    for (int i = 0; i < h->w->n_out; i += HEAD_PART) {
        struct part_top p = part_top(job, x, i);
        least = p.top - p.norm * error > least ? p.top - p.norm * error : least;
    }
    for (int i = 0; i < h->w->n_out; i += HEAD_PART) {
        struct part_top p = part_top(job, x, i);
        int end = h->w->n_out - i < HEAD_PART ? h->w->n_out : i + HEAD_PART;
        if (!(p.top + p.norm * error >= least))
            continue;
        for (int j = i; j < end; j++)
            if (x[j] + h->norms[j / PANEL] * error >= least)
                marks[j / PANEL] = 1;
    }
    job->marked[r] = 0;
    for (int i = 0; i < head_panels(h->w); i++)
        job->marked[r] += marks[i];
}

static void mark_rows(void *arg, int begin, int end, int thread)
{
    (void)thread;
    for (int r = begin; r < end; r++)
        mark_row(arg, r);
}

/* The marked logits of row r, exactly. Panels come in rising order: the first of equals stays. */
static void choose_of_marked(struct token_job *job, int n, int r)
{
    struct head *h = job->h;
    size_t k = (size_t)h->w->n_in, panels = (size_t)head_panels(h->w);
    const uint8_t *marks = h->marks + (size_t)r * panels, *mark = marks;
    struct kern_input in = {.rows = 2, .k = (int)k, .x = h->pair, .mem = h->pair_input};
    uint8_t bad[2]; /* has been noted */
    memcpy(h->pair, job->in->x + (size_t)r * k, k * sizeof(float));
    memcpy(h->pair + k, job->in->x + (size_t)(n + r) * k, k * sizeof(float));
    h->k->prepare(&in, bad);
    float top = -INFINITY;
    while ((mark = memchr(mark, 1, panels - (size_t)(mark - marks)))) {
        float x[2 * PANEL];
        int first = (int)(mark++ - marks) * PANEL, left = h->w->n_out - first;
        struct kern_weights w = kern_weights_part(h->w, first, left < PANEL ? left : PANEL);
        h->k->matmul(x, PANEL, &w, &in, h->scratch);
        for (int c = 0; c < w.n_out; c++)
            if (x[c] + x[PANEL + c] > top) {
                top = x[c] + x[PANEL + c];
                job->tokens[r] = first + c;
            }
    }
    job->ok[r] = true;
}

/* Bounds of the second parts. False where one says nothing: weights or inputs are not finite, or huge. */
static bool bound_rows(struct token_job *job, int n)
{
    const struct head *h = job->h;
    int k = h->w->n_in;
    bool safe = h->bounded;
    for (int r = 0; r < n && safe; r++) {
        job->error[r] = ROUNDED_UP * norm_of(job->in->x + (size_t)(n + r) * (size_t)k, k);
        float size = norm_of(job->in->x + (size_t)r * (size_t)k, k) + job->error[r];
        safe = size * h->most < SAFE;
    }
    return safe;
}

void head_tokens(struct head *h, const struct kern_input *in, int32_t *tokens, bool *ok)
{
    int n = in->rows / 2, panels = head_panels(h->w), marked = 0;
    struct token_job job = {.h = h, .in = in, .tokens = tokens, .ok = ok};
    if (n <= FEW_ROWS || !bound_rows(&job, n)) {
        choose_of_all(&job, n);
        return;
    }
    struct kern_input first = *in;
    first.rows = n;
    h->k->matmul(h->out, (size_t)h->w->n_out, h->w, &first, h->scratch);
    memset(h->marks, 0, (size_t)n * (size_t)panels);
    team_run(n, 1, mark_rows, &job);
    for (int r = 0; r < n; r++)
        marked += job.marked[r];
    if (marked > panels)
        choose_of_all(&job, n);
    else
        for (int r = 0; r < n; r++)
            choose_of_marked(&job, n, r);
}

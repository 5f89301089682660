/* Which logits need their second part (head_tokens). With a row's first 8 bits all logits are known up to |w . r|, r what
 * these bits have left: at most norm(w) * norm(r). Let T be the greatest logit of one panel, exactly: of the panel with
 * the greatest first part. A logit whose first part + norm(w) * norm(r) is below T is not the greatest of all, nor equal
 * to it. Those of the panels that are left are computed exactly, second part and all, by the same products as
 * head_logits().
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
    int n;
    float error[HEAD_ROWS]; /* times the norm of a row of weights: bound of the second part */
    int marked[HEAD_ROWS];  /* panels */
    int32_t *tokens;
    bool *ok;
};

static void choose_of_all(struct token_job *job)
{
    struct head *h = job->h;
    int n = job->n;
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

/* What a thread has to compute single panels of a row with. */
struct row_pair {
    struct kern_input in; /* the row and its remainder */
    void *scratch;
};

static struct row_pair pair_of(const struct token_job *job, int r, int thread)
{
    const struct head *h = job->h;
    size_t k = (size_t)h->w->n_in, t = (size_t)thread;
    float *x = h->pairs + t * 2 * k;
    struct row_pair pair = {{.rows = 2,
                             .k = (int)k,
                             .x = x,
                             .mem = (char *)h->pair_inputs + t * head_pair_bytes((int)k)},
                            (char *)h->scratch + t * kern_matmul_scratch(1)};
    uint8_t bad[2]; /* has been noted */
    memcpy(x, job->in->x + (size_t)r * k, k * sizeof(float));
    memcpy(x + k, job->in->x + (size_t)(job->n + r) * k, k * sizeof(float));
    h->k->prepare(&pair.in, bad);
    return pair;
}

/* Raises *top to the greatest logit of panel p, exactly. Returns the first that is above what it was; -1: none. */
static int32_t panel_top(const struct head *h, const struct row_pair *pair, int p, float *top)
{
    float x[2 * PANEL];
    int first = p * PANEL, left = h->w->n_out - first;
    int32_t at = -1;
    struct kern_weights w = kern_weights_part(h->w, first, left < PANEL ? left : PANEL);
    h->k->matmul(x, PANEL, &w, &pair->in, pair->scratch);
    for (int c = 0; c < w.n_out; c++)
        if (x[c] + x[PANEL + c] > *top) {
            *top = x[c] + x[PANEL + c];
            at = first + c;
        }
    return at;
}

/* Mark the panels of a row x that may hold a logit of `least` or more. Returns how many. */
static int mark_panels(const struct head *h, uint8_t *marks, const float *x, float error,
                       float least)
{
    int marked = 0;
    for (int p = 0; p < head_panels(h->w); p++, x += PANEL) {
        int n = h->w->n_out - p * PANEL < PANEL ? h->w->n_out - p * PANEL : PANEL;
        float bound = h->norms[p] * error;
        bool may = false;
        for (int c = 0; c < n; c++)
            may |= x[c] + bound >= least;
        marks[p] = may;
        marked += may;
    }
    return marked;
}

static uint8_t *marks_of(const struct head *h, int r)
{
    return h->marks + (size_t)r * (size_t)head_panels(h->w);
}

static void mark_rows(void *arg, int begin, int end, int thread)
{
    struct token_job *job = arg;
    struct head *h = job->h;
    for (int r = begin; r < end; r++) {
        const float *x = h->out + (size_t)r * (size_t)h->w->n_out;
        const struct row_pair pair = pair_of(job, r, thread);
        float least = -INFINITY;
        panel_top(h, &pair, h->k->argmax(x, h->w->n_out) / PANEL, &least);
        job->marked[r] = mark_panels(h, marks_of(h, r), x, job->error[r], least);
    }
}

/* The marked logits, exactly. Panels come in rising order: the first of equals stays. */
static void choose_of_marked(void *arg, int begin, int end, int thread)
{
    struct token_job *job = arg;
    size_t panels = (size_t)head_panels(job->h->w);
    for (int r = begin; r < end; r++) {
        const uint8_t *marks = marks_of(job->h, r), *mark = marks;
        const struct row_pair pair = pair_of(job, r, thread);
        float top = -INFINITY;
        while ((mark = memchr(mark, 1, panels - (size_t)(mark - marks)))) {
            int32_t at = panel_top(job->h, &pair, (int)(mark++ - marks), &top);
            job->tokens[r] = at < 0 ? job->tokens[r] : at;
        }
        job->ok[r] = true;
    }
}

/* Bounds of the second parts. False where one says nothing: weights or inputs are not finite, or huge. */
static bool bound_rows(struct token_job *job)
{
    const struct head *h = job->h;
    int k = h->w->n_in, n = job->n;
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
    int n = in->rows / 2, marked = 0;
    struct token_job job = {.h = h, .in = in, .n = n, .tokens = tokens, .ok = ok};
    if (n <= FEW_ROWS || !bound_rows(&job)) {
        choose_of_all(&job);
        return;
    }
    struct kern_input first = *in;
    first.rows = n;
    h->k->matmul(h->out, (size_t)h->w->n_out, h->w, &first, h->scratch);
    team_run(n, 1, mark_rows, &job);
    for (int r = 0; r < n; r++)
        marked += job.marked[r];
    if (marked > head_panels(h->w))
        choose_of_all(&job);
    else
        team_run(n, 1, choose_of_marked, &job);
}

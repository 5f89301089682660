/* Which logits need their second part (head_leading). With a row's first 8 bits all logits are known up to |w . r|, r what
 * these bits have left: at most norm(w) * norm(r). Of the n greatest logits that are wanted let T be the last that is found
 * in n panels, exactly: those with the greatest first parts. A logit whose first part + norm(w) * norm(r) is below T is not one
 * of the n greatest, nor equal to one. Those of the panels that are left are computed exactly, second part and all, by the
 * same products as head_logits().
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

enum panel_mark {
    LEFT_OUT,
    FIRST,  /* one of those with the greatest logits, or first parts of them */
    SECOND, /* may hold a logit that leads */
};

static float greater(float a, float b)
{
    return a > b ? a : b;
}

static float panel_max(const float *x, int n)
{
    float lane[PANEL / 4], max = x[0];
    for (int c = 1; c < n && n < PANEL; c++)
        max = greater(max, x[c]);
    if (n < PANEL)
        return max;
    for (int j = 0; j < PANEL / 4; j++)
        lane[j] = greater(greater(x[j], x[4 + j]), greater(x[8 + j], x[12 + j]));
    return greater(greater(lane[0], lane[1]), greater(lane[2], lane[3]));
}

/* maxima[p] = the greatest of panel p of x; marks[p] = FIRST for the n panels that lead. All n greatest of x are in
 * these: one of another panel has n before it. list is used for the work, and left empty. */
static void mark_first(const struct head *h, const float *x, float *maxima, uint8_t *marks,
                       struct leading *list)
{
    int panels = head_panels(h->w);
    for (int p = 0; p < panels; p++) {
        int left = h->w->n_out - p * PANEL;
        maxima[p] = panel_max(x + (size_t)p * PANEL, left < PANEL ? left : PANEL);
        leading_add(list, maxima[p], p);
    }
    memset(marks, LEFT_OUT, (size_t)panels);
    for (int i = 0; i < list->n; i++)
        marks[list->at[i].id] = FIRST;
    list->n = 0;
}

/* The logits of the panels that are marked so. */
static void add_marked(const struct head *h, const float *x, const uint8_t *marks,
                       enum panel_mark mark, struct leading *list)
{
    const uint8_t *end = marks + head_panels(h->w), *at = marks;
    for (; (at = memchr(at, mark, (size_t)(end - at))); at++)
        for (int c = (int)(at - marks) * PANEL, i = 0; i < PANEL && c < h->w->n_out; i++, c++)
            leading_add(list, x[c], c);
}

static void find_leading(const struct head *h, const float *x, float *maxima, uint8_t *marks,
                         struct leading *list)
{
    mark_first(h, x, maxima, marks, list);
    add_marked(h, x, marks, FIRST, list);
    leading_sort(list);
}

void head_find_leading(struct head *h, const float *logits, struct leading *list)
{
    find_leading(h, logits, h->maxima, h->marks, list);
}

struct leading_job {
    struct head *h;
    const struct kern_input *in; /* n rows and their remainders */
    struct kern_input rest;      /* the remainders */
    int n;
    float error[HEAD_ROWS]; /* times the norm of a row of weights: bound of the second part */
    enum panel_mark mark;
    struct leading *lists;
    bool *ok;
};

/* What belongs to row r: first parts, which become logits; marks and maxima of its panels. */
static float *row_of(const struct leading_job *job, int r)
{
    return job->h->out + (size_t)r * (size_t)job->h->w->n_out;
}

static uint8_t *marks_of(const struct leading_job *job, int r)
{
    return job->h->marks + (size_t)r * (size_t)head_panels(job->h->w);
}

static float *maxima_of(const struct leading_job *job, int r)
{
    return job->h->maxima + (size_t)r * (size_t)head_panels(job->h->w);
}

/* ---- from all second parts ---- */

static void lead_all(void *arg, int begin, int end, int thread)
{
    (void)thread;
    const struct leading_job *job = arg;
    const struct head *h = job->h;
    for (int r = begin; r < end; r++) {
        float *x = row_of(job, r);
        h->k->add(x, row_of(job, job->n + r), (size_t)h->w->n_out, 1, h->w->n_out);
        job->ok[r] = all_finite(x, h->w->n_out);
        if (job->ok[r])
            find_leading(h, x, maxima_of(job, r), marks_of(job, r), &job->lists[r]);
    }
}

static void compute_all(struct leading_job *job)
{
    const struct head *h = job->h;
    h->k->matmul(h->out, (size_t)h->w->n_out, h->w, job->in, h->scratch);
    team_run(job->n, 1, lead_all, job);
}

/* ---- from few ---- */

/* Bounds of the second parts. False where one says nothing: weights or inputs are not finite, or huge. */
static bool bound_rows(struct leading_job *job)
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

static void compute_first_parts(struct leading_job *job)
{
    const struct head *h = job->h;
    struct kern_input first = *job->in;
    uint8_t bad[HEAD_ROWS]; /* has been noted */
    first.rows = job->n;
    h->k->matmul(h->out, (size_t)h->w->n_out, h->w, &first, h->scratch);
    job->rest = (struct kern_input){.rows = job->n,
                                    .k = first.k,
                                    .x = first.x + (size_t)job->n * (size_t)first.k,
                                    .mem = h->rest_input};
    h->k->prepare(&job->rest, bad);
    memset(h->exact, 0, (size_t)head_panels(h->w));
}

enum { PANELS_AT_ONCE = 32 };

/* Which of n panels from `first` on some row has marked, and are not computed yet. */
static void find_wanted(const struct leading_job *job, int first, int n,
                        bool wanted[PANELS_AT_ONCE])
{
    memset(wanted, 0, PANELS_AT_ONCE);
    for (int r = 0; r < job->n; r++)
        for (int i = 0; i < n; i++)
            wanted[i] |= marks_of(job, r)[first + i] == job->mark;
    for (int i = 0; i < n; i++)
        wanted[i] &= !job->h->exact[first + i];
}

/* The second parts of panels [first, end) for all rows together: their weights are read once. */
static void complete_run(const struct leading_job *job, int first, int end, void *scratch)
{
    const struct head *h = job->h;
    int from = first * PANEL, to = end * PANEL < h->w->n_out ? end * PANEL : h->w->n_out;
    struct kern_weights w = kern_weights_part(h->w, from, to - from);
    float *second = row_of(job, job->n) + from;
    h->k->matmul(second, (size_t)h->w->n_out, &w, &job->rest, scratch);
    h->k->add(row_of(job, 0) + from, second, (size_t)h->w->n_out, job->n, to - from);
    memset(h->exact + first, true, (size_t)(end - first));
}

static void complete_panels(void *arg, int begin, int end, int thread)
{
    const struct leading_job *job = arg;
    void *scratch = (char *)job->h->scratch + (size_t)thread * kern_matmul_scratch(1);
    for (int n; begin < end; begin += n) {
        bool wanted[PANELS_AT_ONCE];
        n = end - begin < PANELS_AT_ONCE ? end - begin : PANELS_AT_ONCE;
        find_wanted(job, begin, n, wanted);
        for (int i = 0, first; i < n; i++) {
            for (first = i; i < n && wanted[i]; i++)
                ;
            if (i > first)
                complete_run(job, begin + first, begin + i, scratch);
        }
    }
}

static void complete(struct leading_job *job, enum panel_mark mark)
{
    job->mark = mark;
    team_run(head_panels(job->h->w), PANELS_AT_ONCE, complete_panels, job);
}

static void mark_first_of_rows(void *arg, int begin, int end, int thread)
{
    (void)thread;
    const struct leading_job *job = arg;
    for (int r = begin; r < end; r++)
        mark_first(job->h, row_of(job, r), maxima_of(job, r), marks_of(job, r), &job->lists[r]);
}

/* The others that may hold a logit that leads those of the first. */
static void mark_second_of_rows(void *arg, int begin, int end, int thread)
{
    (void)thread;
    const struct leading_job *job = arg;
    const struct head *h = job->h;
    for (int r = begin; r < end; r++) {
        uint8_t *marks = marks_of(job, r);
        const float *maxima = maxima_of(job, r);
        add_marked(h, row_of(job, r), marks, FIRST, &job->lists[r]);
        float least = leading_least(&job->lists[r]);
        for (int p = 0; p < head_panels(h->w); p++)
            if (marks[p] == LEFT_OUT && maxima[p] + h->norms[p] * job->error[r] >= least)
                marks[p] = SECOND;
    }
}

static void finish_lists(void *arg, int begin, int end, int thread)
{
    (void)thread;
    const struct leading_job *job = arg;
    for (int r = begin; r < end; r++) {
        add_marked(job->h, row_of(job, r), marks_of(job, r), SECOND, &job->lists[r]);
        leading_sort(&job->lists[r]);
        job->ok[r] = true;
    }
}

void head_leading(struct head *h, const struct kern_input *in, struct leading *lists, bool *ok)
{
    struct leading_job job = {.h = h, .in = in, .n = in->rows / 2, .lists = lists, .ok = ok};
    if (job.n <= FEW_ROWS || !bound_rows(&job)) {
        compute_all(&job);
        return;
    }
    compute_first_parts(&job);
    team_run(job.n, 1, mark_first_of_rows, &job);
    complete(&job, FIRST);
    team_run(job.n, 1, mark_second_of_rows, &job);
    complete(&job, SECOND);
    team_run(job.n, 1, finish_lists, &job);
}

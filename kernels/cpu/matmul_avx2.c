/* Products of quantised weights with int8 rows; the tile is in matmul_tile_avx2.h.
 *
 * K runs in chunks of a panel. The first six rows take records and leave the bytes that they unpack in L1, for the
 * rows after them, whose prepared form stays in L2. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_tile_avx2.h"
#include "kernels/team.h"

enum {
    AHEAD = 2048,
    ROWS_IN_L2 = 320 << 10, /* bytes of prepared rows per pass over the panels */
};

typedef void tile_fn(const struct tile_work *t, int rows);

/* A function of its own for every form: the compiler sees constants. */
#define TILE(name, source, ...)                                                                \
    static __attribute__((noinline)) void name(const struct tile_work *t, int rows)            \
    {                                                                                          \
        add_rows(t, rows, (struct tile_form){__VA_ARGS__, .from = source});                    \
    }
#define TILES_OF(type, ...)                                                                    \
    TILE(read_##type, READ, __VA_ARGS__)                                                       \
    TILE(keep_##type, READ_KEEP, __VA_ARGS__)

TILE(kept_4_off, KEPT, .bits = 4, .off_log2 = 3)
TILE(kept_4_min, KEPT, .bits = 4, .off_log2 = -1, .min = true)
TILE(kept_5_off, KEPT, .bits = 5, .off_log2 = 4)
TILE(kept_5_min, KEPT, .bits = 5, .off_log2 = -1, .min = true)
TILE(kept_6_off, KEPT, .bits = 6, .off_log2 = 5)
TILE(kept_8_off, KEPT, .bits = 8, .off_log2 = 7)
TILES_OF(q4_0, .bits = 4, .off_log2 = 3)
TILES_OF(q4_1, .bits = 4, .off_log2 = -1, .min = true)
TILES_OF(q5_0, .bits = 5, .off_log2 = 4)
TILES_OF(q5_1, .bits = 5, .off_log2 = -1, .min = true)
TILES_OF(q8_0, .bits = 8, .off_log2 = 7)
TILES_OF(q4_k, .bits = 4, .off_log2 = -1, .min = true, .shared = true)
TILES_OF(q5_k, .bits = 5, .off_log2 = -1, .min = true, .shared = true)
TILES_OF(q6_k, .bits = 6, .off_log2 = 5, .shared = true)

static const struct {
    tile_fn *read, *keep, *kept;
} tiles[KERN_TYPE_COUNT] = {
    [KERN_Q4_0] = {read_q4_0, keep_q4_0, kept_4_off},
    [KERN_Q4_1] = {read_q4_1, keep_q4_1, kept_4_min},
    [KERN_Q5_0] = {read_q5_0, keep_q5_0, kept_5_off},
    [KERN_Q5_1] = {read_q5_1, keep_q5_1, kept_5_min},
    [KERN_Q8_0] = {read_q8_0, keep_q8_0, kept_8_off},
    [KERN_Q4_K] = {read_q4_k, keep_q4_k, kept_4_min},
    [KERN_Q5_K] = {read_q5_k, keep_q5_k, kept_5_min},
    [KERN_Q6_K] = {read_q6_k, keep_q6_k, kept_6_off},
};

/* One panel, rows [first, end) of the call: `first` starts a group. */
struct panel_job {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct input_block *blocks;
    int panel, first, end;
};

/* Add the work's blocks to what the outputs of up to six rows from `row` on hold; the first ones start at +0. */
static void add_group(const struct panel_job *job, tile_fn *tile, struct tile_work *work,
                      int row)
{
    int rows = job->end - row < ROW_GROUP ? job->end - row : ROW_GROUP;
    int left = job->w->n_out - job->panel * PANEL;
    float acc[ROW_GROUP][16] __attribute__((aligned(32)));
    float *out = job->out + (size_t)row * job->ld + (size_t)job->panel * PANEL;
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            _mm256_store_ps(acc[r] + 8 * h,
                            work->begin > 0
                                ? load_left(out + (size_t)r * job->ld + 8 * h, left - 8 * h)
                                : _mm256_setzero_ps());
    work->acc = acc;
    work->a =
        job->blocks + (size_t)(row / ROW_GROUP) * (size_t)(job->w->n_in / 32) + work->begin;
    tile(work, rows);
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            store_left(out + (size_t)r * job->ld + 8 * h, left - 8 * h,
                       _mm256_load_ps(acc[r] + 8 * h));
}

/* What the first tile asks for while it works, the only one that waits for memory. Alone: the record 2 KiB on, for
 * hardware follows a stream, but only within a page of 4 KiB. Else the next chunk. */
static void look_ahead(struct tile_work *work, const struct panel_job *job, bool alone)
{
    work->ahead =
        alone ? work->rec + AHEAD : record_at(job->w, job->panel, work->begin + work->n);
    work->ahead_bytes = record_bytes(&record_forms[job->w->type]);
}

static void add_panel(const struct panel_job *job, struct matmul_scratch *s)
{
    int n_blocks = job->w->n_in / 32;
    bool alone = job->end - job->first <= ROW_GROUP;
    int n_chunks = alone ? 1 : (n_blocks + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS;
    int chunk = (n_blocks + n_chunks - 1) / n_chunks; /* of equal size: a short one is slow */
    tile_fn *first = alone ? tiles[job->w->type].read : tiles[job->w->type].keep;
    struct tile_work work = {.w = s->weights, .scales = s->scales};
    for (int b = 0; b < n_blocks; b += chunk) {
        work.begin = b;
        work.n = n_blocks - b < chunk ? n_blocks - b : chunk;
        work.rec = record_at(job->w, job->panel, b);
        look_ahead(&work, job, alone);
        add_group(job, first, &work, job->first);
        work.ahead_bytes = 0;
        for (int row = job->first + ROW_GROUP; row < job->end; row += ROW_GROUP)
            add_group(job, tiles[job->w->type].kept, &work, row);
    }
}

static int rows_per_pass(int n_blocks)
{
    int groups = ROWS_IN_L2 / (n_blocks * (int)sizeof(struct input_block));
    return (groups < 8 ? 8 : groups) * ROW_GROUP;
}

/* A call, cut into passes over all panels by some rows. */
struct product {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
    struct matmul_scratch *scratch;
    int panels, rows_per_pass;
};

static void add_panels(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    for (int i = begin; i < end; i++) {
        int first = i / p->panels * p->rows_per_pass, left = p->in->rows - first;
        const struct panel_job job = {p->out,
                                      p->ld,
                                      p->w,
                                      p->in->mem,
                                      i % p->panels,
                                      first,
                                      first +
                                          (left < p->rows_per_pass ? left : p->rows_per_pass)};
        add_panel(&job, p->scratch + thread);
    }
}

static void quantised(float *out, size_t ld, const struct kern_weights *w,
                      const struct kern_input *in, struct matmul_scratch *scratch)
{
    int panels = (w->n_out + PANEL - 1) / PANEL, pass = rows_per_pass(w->n_in / 32);
    int passes = (in->rows + pass - 1) / pass;
    struct product p = {out, ld, w, in, scratch, panels, pass};
    team_run(passes * panels, panels / (8 * team_threads()), add_panels, &p);
}

void matmul_avx2(float *out, size_t ld, const struct kern_weights *w,
                 const struct kern_input *in, void *scratch)
{
    if (record_forms[w->type].bits)
        quantised(out, ld, w, in, scratch);
    else
        matmul_float_inputs_avx2(out, ld, w, in, scratch);
}

/* Products of quantised weights with int8 rows; the tile is in matmul_tile_avx512.h.
 *
 * K runs in chunks, so that the weights of three panels stay in L1 while all rows use them; the float sums wait in
 * the output. The first four rows take records and leave the bytes that they unpack to the rows after them. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_tile_avx512.h"
#include "kernels/team.h"

enum {
    ROWS_IN_L2 = 256 << 10, /* bytes of prepared rows per pass over the panels */
    /* With few rows the records that come in push what is kept out of L1 while it is filled: shorter chunks. */
    FEW_TILES = 16,
    FEW_BLOCKS = 12,
    LEAST_TILES = 3,
    LEAST_BLOCKS = 6,
    AHEAD = 2048, /* hardware follows a stream, but only within a page of 4 KiB */
};

typedef void tile_fn(const struct tile_work *t, int rows, int panels);

/* A function of its own for every form: the compiler sees constants. */
#define TILE(name, source, ...)                                                                \
    static __attribute__((noinline)) void name(const struct tile_work *t, int rows,            \
                                               int panels)                                     \
    {                                                                                          \
        add_tile(t, rows, panels, (struct tile_form){.rec = {__VA_ARGS__}, .from = source});   \
    }

TILE(kept_min, KEPT, .min = true, .n_scales = 1)
TILE(kept_off8, KEPT, .off = 8, .n_scales = 1)
TILE(kept_off16, KEPT, .off = 16, .n_scales = 1)
TILE(kept_off128, KEPT, .off = 128, .n_scales = 1)
TILE(kept_off32, KEPT, .off = 32, .n_scales = 2)

#define TILES_OF(type, ...)                                                                    \
    TILE(read_##type, READ, __VA_ARGS__)                                                       \
    TILE(keep_##type, READ_KEEP, __VA_ARGS__)

TILES_OF(q4_0, .bits = 4, .off = 8, .n_scales = 1)
TILES_OF(q4_1, .bits = 4, .min = true, .n_scales = 1)
TILES_OF(q5_0, .bits = 5, .off = 16, .n_scales = 1)
TILES_OF(q5_1, .bits = 5, .min = true, .n_scales = 1)
TILES_OF(q8_0, .bits = 8, .off = 128, .n_scales = 1)
TILES_OF(q4_k, .bits = 4, .min = true, .shared = true, .n_scales = 1)
TILES_OF(q5_k, .bits = 5, .min = true, .shared = true, .n_scales = 1)
TILES_OF(q6_k, .bits = 6, .off = 32, .shared = true, .n_scales = 2)

static const struct {
    tile_fn *read, *keep, *kept;
} tiles[KERN_TYPE_COUNT] = {
    [KERN_Q4_0] = {read_q4_0, keep_q4_0, kept_off8},
    [KERN_Q4_1] = {read_q4_1, keep_q4_1, kept_min},
    [KERN_Q5_0] = {read_q5_0, keep_q5_0, kept_off16},
    [KERN_Q5_1] = {read_q5_1, keep_q5_1, kept_min},
    [KERN_Q8_0] = {read_q8_0, keep_q8_0, kept_off128},
    [KERN_Q4_K] = {read_q4_k, keep_q4_k, kept_min},
    [KERN_Q5_K] = {read_q5_k, keep_q5_k, kept_min},
    [KERN_Q6_K] = {read_q6_k, keep_q6_k, kept_off32},
};

/* Some panels' blocks [begin, begin + n), for rows [first, end) of the call. */
struct panel_job {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct input_block *blocks;
    int panel, panels, first, end;
};

/* Add the work's blocks, from block `begin` on, to up to four rows from `row` on. */
static void add_group(const struct panel_job *job, tile_fn *tile, struct tile_work *work,
                      int row, int begin)
{
    int rows = job->end - row < TILE_ROWS ? job->end - row : TILE_ROWS;
    size_t n_blocks = (size_t)(job->w->n_in / 32);
    for (int r = 0; r < rows; r++)
        work->row[r] =
            (const char *)(job->blocks + (size_t)((row + r) / ROW_GROUP) * n_blocks + begin) +
            4 * ((row + r) % ROW_GROUP);
    work->out = job->out + (size_t)row * job->ld + (size_t)job->panel * PANEL;
    tile(work, rows, job->panels);
}

/* What the tiles ask for while they work. One tile alone: its own records some blocks on and, from the end of its
 * panels, those of the panels after them. Several tiles share out what comes after this chunk. */
static void look_ahead(struct tile_work *work, const struct panel_job *job, int b, int tile,
                       int n_tiles)
{
    int n_blocks = job->w->n_in / 32;
    size_t bytes = record_bytes(&record_forms[job->w->type]);
    size_t share = (bytes / (size_t)n_tiles + 63) / 64 * 64, done = (size_t)tile * share;
    work->ahead_bytes = done < bytes ? share : 0;
    work->turn = -1;
    if (n_tiles == 1) {
        int blocks = AHEAD / (int)bytes;
        work->ahead = record_at(job->w, job->panel, blocks);
        work->turn = n_blocks > blocks ? n_blocks - blocks : 0;
    } else {
        const uint8_t *next = b + work->n < n_blocks
                                  ? record_at(job->w, job->panel, b + work->n)
                                  : record_at(job->w, job->panel + job->panels, 0);
        work->ahead = next + (size_t)work->n * done;
    }
}

static int most_blocks(int n_tiles, int n_blocks)
{
    return n_tiles == 1             ? n_blocks
           : n_tiles <= LEAST_TILES ? LEAST_BLOCKS
           : n_tiles <= FEW_TILES   ? FEW_BLOCKS
                                    : CHUNK_BLOCKS;
}

static void add_panels(const struct panel_job *job, struct wide_scratch *s)
{
    const struct record_form *f = &record_forms[job->w->type];
    int n_blocks = job->w->n_in / 32,
        n_tiles = (job->end - job->first + TILE_ROWS - 1) / TILE_ROWS;
    int most = most_blocks(n_tiles, n_blocks);
    int n_chunks = (n_blocks + most - 1) / most; /* of equal size: a short one is slow */
    int chunk = (n_blocks + n_chunks - 1) / n_chunks;
    tile_fn *first = n_tiles == 1 ? tiles[job->w->type].read : tiles[job->w->type].keep;
    struct tile_work work = {.w = s->weights,
                             .scales = s->scales,
                             .shared = s->shared,
                             .pitch = record_panel_bytes(f, job->w->n_in),
                             .ld = job->ld};
    for (int p = 0; p < job->panels; p++)
        work.mask[p] = first_lanes(job->w->n_out - (job->panel + p) * PANEL);
    for (int b = 0; b < n_blocks; b += chunk) {
        work.rec = record_at(job->w, job->panel, b);
        work.begin = b;
        work.n = n_blocks - b < chunk ? n_blocks - b : chunk;
        work.first = b == 0;
        for (int i = 0; i < n_tiles; i++) {
            look_ahead(&work, job, b, i, n_tiles);
            add_group(job, i == 0 ? first : tiles[job->w->type].kept, &work,
                      job->first + i * TILE_ROWS, b);
        }
    }
}

static int rows_per_pass(int n_blocks)
{
    int groups = ROWS_IN_L2 / (n_blocks * (int)sizeof(struct input_block));
    return (groups < 8 ? 8 : groups) * ROW_GROUP / TILE_ROWS * TILE_ROWS;
}

/* A call, cut into passes over all panels by some rows. */
struct product {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct kern_input *in;
    struct matmul_scratch *scratch;
    int panels, width, jobs, rows_per_pass;
};

static void some_jobs(void *arg, int begin, int end, int thread)
{
    const struct product *p = arg;
    for (int i = begin; i < end; i++) {
        int first = i / p->jobs * p->rows_per_pass, left = p->in->rows - first;
        int panel = i % p->jobs * p->width, n = p->panels - panel;
        const struct panel_job job = {
            p->out, p->ld,
            p->w,   p->in->mem,
            panel,  n < p->width ? n : p->width,
            first,  first + (left < p->rows_per_pass ? left : p->rows_per_pass)};
        add_panels(&job, &p->scratch[thread].wide);
    }
}

static void quantised(float *out, size_t ld, const struct kern_weights *w,
                      const struct kern_input *in, struct matmul_scratch *scratch)
{
    int panels = (w->n_out + PANEL - 1) / PANEL, threads = team_threads();
    int pass = rows_per_pass(w->n_in / 32), width = panels / threads;
    width = width < 1 ? 1 : width > TILE_PANELS ? TILE_PANELS : width;
    int jobs = (panels + width - 1) / width, passes = (in->rows + pass - 1) / pass;
    struct product p = {out, ld, w, in, scratch, panels, width, jobs, pass};
    team_run(passes * jobs, jobs / (8 * threads), some_jobs, &p);
}

void matmul_avx512(float *out, size_t ld, const struct kern_weights *w,
                   const struct kern_input *in, void *scratch)
{
    if (record_forms[w->type].bits)
        quantised(out, ld, w, in, scratch);
    else
        matmul_float_avx512(out, ld, w, in, scratch);
}

/* Products of quantised weights with int8 rows; the tile is in matmul_tile_avx512.h.
 *
 * K runs in chunks, so that the weights of three panels stay in L1 while all rows use them; the float sums wait in
 * the output. Many rows: a chunk is unpacked to bytes first. Few: records are unpacked in registers. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_tile_avx512.h"

#include <omp.h>

enum {
    /* Up to here records are read in registers; 5 and 6 bits are dearer to unpack. */
    DIRECT_ROWS = 24,
    DIRECT_ROWS_5_6 = 12,
    ROWS_IN_L2 = 900 << 10, /* bytes of prepared rows per pass over the panels */
    DIRECT_AHEAD = 2048,    /* hardware follows a stream, but only within a page of 4 KiB */
};

typedef void tile_fn(const struct tile_work *t, int rows, int panels);

/* A function of its own for every form: the compiler sees constants. */
#define TILE(name, read, ...)                                                                  \
    static __attribute__((noinline)) void name(const struct tile_work *t, int rows,            \
                                               int panels)                                     \
    {                                                                                          \
        add_tile(t, rows, panels, (struct tile_form){.rec = {__VA_ARGS__}, .direct = read});   \
    }

TILE(tile_min, false, .min = true, .n_scales = 1)
TILE(tile_off8, false, .off = 8, .n_scales = 1)
TILE(tile_off16, false, .off = 16, .n_scales = 1)
TILE(tile_off128, false, .off = 128, .n_scales = 1)
TILE(tile_off32, false, .off = 32, .n_scales = 2)
TILE(direct_q4_0, true, .bits = 4, .off = 8, .n_scales = 1)
TILE(direct_q4_1, true, .bits = 4, .min = true, .n_scales = 1)
TILE(direct_q5_0, true, .bits = 5, .off = 16, .n_scales = 1)
TILE(direct_q5_1, true, .bits = 5, .min = true, .n_scales = 1)
TILE(direct_q8_0, true, .bits = 8, .off = 128, .n_scales = 1)
TILE(direct_q4_k, true, .bits = 4, .min = true, .shared = true, .n_scales = 1)
TILE(direct_q5_k, true, .bits = 5, .min = true, .shared = true, .n_scales = 1)
TILE(direct_q6_k, true, .bits = 6, .off = 32, .shared = true, .n_scales = 2)

static const struct {
    tile_fn *unpacked, *direct;
} tiles[KERN_TYPE_COUNT] = {
    [KERN_Q4_0] = {tile_off8, direct_q4_0},   [KERN_Q4_1] = {tile_min, direct_q4_1},
    [KERN_Q5_0] = {tile_off16, direct_q5_0},  [KERN_Q5_1] = {tile_min, direct_q5_1},
    [KERN_Q8_0] = {tile_off128, direct_q8_0}, [KERN_Q4_K] = {tile_min, direct_q4_k},
    [KERN_Q5_K] = {tile_min, direct_q5_k},    [KERN_Q6_K] = {tile_off32, direct_q6_k},
};

/* Some panels' blocks [begin, begin + n), for rows [first, end) of the call. */
struct panel_job {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct input_block *blocks;
    int panel, panels, first, end;
};

TILE_INLINE void unpack_weights(uint8_t *out, int panels, int bits, const uint8_t *rec)
{
    UNROLL
    for (int step = 0; step < 8; step++)
        _mm512_store_si512(out + (size_t)(RECORD_UNIT * panels * step),
                           record_step16(bits, rec, step));
}

/* Blocks [begin, begin + n) of one panel, rec the first of them, the p-th of `panels` side by side. */
static void unpack_panel(struct wide_scratch *s, const struct record_form *f,
                         const uint8_t *rec, int begin, int n, int p, int panels)
{
    const __m512 magic = _mm512_set1_ps(-MAGIC);
    uint8_t *out = s->weights + RECORD_UNIT * p;
    float *scales = s->scales + scale_floats(f) * p;
    for (int b = begin; b < begin + n; rec += record_stride(f, b), b++) {
        switch (f->bits) {
        case 4:
            unpack_weights(out, panels, 4, rec);
            break;
        case 5:
            unpack_weights(out, panels, 5, rec);
            break;
        case 6:
            unpack_weights(out, panels, 6, rec);
            break;
        default:
            unpack_weights(out, panels, 8, rec);
        }
        for (int i = 0; i < f->n_scales; i++) {
            __m512 d = record_scale16(f, rec, b, i);
            _mm512_store_ps(scales + 32 * i, d);
            _mm512_store_ps(scales + 32 * i + 16, _mm512_mul_ps(d, magic));
        }
        if (f->min)
            _mm512_store_ps(scales + 32 * f->n_scales, record_scale16(f, rec, b, f->n_scales));
        out += 8 * RECORD_UNIT * panels;
        scales += scale_floats(f) * panels;
    }
}

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
        int blocks = DIRECT_AHEAD / (int)bytes;
        work->ahead = record_at(job->w, job->panel, blocks);
        work->turn = n_blocks > blocks ? n_blocks - blocks : 0;
    } else {
        const uint8_t *next = b + work->n < n_blocks
                                  ? record_at(job->w, job->panel, b + work->n)
                                  : record_at(job->w, job->panel + job->panels, 0);
        work->ahead = next + (size_t)work->n * done;
    }
}

static void add_panels(const struct panel_job *job, bool direct, struct wide_scratch *s)
{
    const struct record_form *f = &record_forms[job->w->type];
    int n_blocks = job->w->n_in / 32,
        n_tiles = (job->end - job->first + TILE_ROWS - 1) / TILE_ROWS;
    /* of equal size: a short one is slow */
    int n_chunks = n_tiles == 1 ? 1 : (n_blocks + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS;
    int chunk = (n_blocks + n_chunks - 1) / n_chunks;
    tile_fn *tile = direct ? tiles[job->w->type].direct : tiles[job->w->type].unpacked;
    struct tile_work work = {.w = s->weights,
                             .scales = s->scales,
                             .pitch = record_panel_bytes(f, job->w->n_in),
                             .ld = job->ld};
    for (int p = 0; p < job->panels; p++)
        work.mask[p] = first_lanes(job->w->n_out - (job->panel + p) * PANEL);
    for (int b = 0; b < n_blocks; b += chunk) {
        const uint8_t *rec = record_at(job->w, job->panel, b);
        work.begin = b;
        work.n = n_blocks - b < chunk ? n_blocks - b : chunk;
        work.first = b == 0;
        if (direct)
            work.w = rec;
        else
            for (int p = 0; p < job->panels; p++)
                unpack_panel(s, f, rec + (size_t)p * work.pitch, b, work.n, p, job->panels);
        for (int i = 0; i < n_tiles; i++) {
            look_ahead(&work, job, b, i, n_tiles);
            add_group(job, tile, &work, job->first + i * TILE_ROWS, b);
        }
    }
}

static int rows_per_pass(int n_blocks)
{
    int groups = ROWS_IN_L2 / (n_blocks * (int)sizeof(struct input_block));
    return (groups < 8 ? 8 : groups) * ROW_GROUP / TILE_ROWS * TILE_ROWS;
}

static void quantised(float *out, size_t ld, const struct kern_weights *w,
                      const struct kern_input *in, struct matmul_scratch *scratch)
{
    int panels = (w->n_out + PANEL - 1) / PANEL, threads = omp_get_max_threads();
    int pass = rows_per_pass(w->n_in / 32), width = panels / threads;
    width = width < 1 ? 1 : width > TILE_PANELS ? TILE_PANELS : width;
    int jobs = (panels + width - 1) / width, share = jobs / (8 * threads);
    share = share < 1 ? 1 : share;
    int bits = record_forms[w->type].bits;
    bool direct = in->rows <= (bits == 5 || bits == 6 ? DIRECT_ROWS_5_6 : DIRECT_ROWS);
#pragma omp parallel
    for (int first = 0; first < in->rows; first += pass) {
        int end = in->rows - first < pass ? in->rows : first + pass;
#pragma omp for schedule(dynamic, share) nowait
        for (int i = 0; i < jobs; i++) {
            int p = i * width, n = panels - p < width ? panels - p : width;
            const struct panel_job job = {out, ld, w, in->mem, p, n, first, end};
            add_panels(&job, direct, &scratch[omp_get_thread_num()].wide);
        }
    }
}

void matmul_avx512(float *out, size_t ld, const struct kern_weights *w,
                   const struct kern_input *in, void *scratch)
{
    if (record_forms[w->type].bits)
        quantised(out, ld, w, in, scratch);
    else
        matmul_float_avx512(out, ld, w, in, scratch);
}

/* Products of quantised weights with int8 rows; the tile is in matmul_tile_avx2.h.
 *
 * Many rows: a chunk of a panel is unpacked into L1 and used for all rows, whose prepared form stays in L2.
 * Few rows: records are unpacked in registers as they come from memory, which is the limit. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_tile_avx2.h"

#include <omp.h>

enum {
    DIRECT_ROWS = 6,        /* up to here records are read in registers */
    ROWS_IN_L2 = 320 << 10, /* bytes of prepared rows per pass over the panels */
};

typedef void tile_fn(const struct tile_work *t, int rows);

/* A function of its own for every form: the compiler sees constants. */
#define TILE(name, shared, ...)                                                                \
    static __attribute__((noinline)) void name(const struct tile_work *t, int rows)            \
    {                                                                                          \
        add_rows(t, rows, (struct tile_form){__VA_ARGS__}, shared);                            \
    }

TILE(tile_4_off, false, .bits = 4, .off_log2 = 3)
TILE(tile_4_min, false, .bits = 4, .off_log2 = -1, .min = true)
TILE(tile_5_off, false, .bits = 5, .off_log2 = 4)
TILE(tile_5_min, false, .bits = 5, .off_log2 = -1, .min = true)
TILE(tile_6_off, true, .bits = 6, .off_log2 = 5)
TILE(tile_8_off, false, .bits = 8, .off_log2 = 7)
TILE(direct_q4_0, false, .bits = 4, .off_log2 = 3, .direct = true)
TILE(direct_q4_1, false, .bits = 4, .off_log2 = -1, .min = true, .direct = true)
TILE(direct_q5_0, false, .bits = 5, .off_log2 = 4, .direct = true)
TILE(direct_q5_1, false, .bits = 5, .off_log2 = -1, .min = true, .direct = true)
TILE(direct_q8_0, false, .bits = 8, .off_log2 = 7, .direct = true)
TILE(direct_q4_k, true, .bits = 4, .off_log2 = -1, .min = true, .direct = true)
TILE(direct_q5_k, true, .bits = 5, .off_log2 = -1, .min = true, .direct = true)
TILE(direct_q6_k, true, .bits = 6, .off_log2 = 5, .direct = true)

static const struct {
    tile_fn *unpacked, *direct;
} tiles[KERN_TYPE_COUNT] = {
    [KERN_Q4_0] = {tile_4_off, direct_q4_0}, [KERN_Q4_1] = {tile_4_min, direct_q4_1},
    [KERN_Q5_0] = {tile_5_off, direct_q5_0}, [KERN_Q5_1] = {tile_5_min, direct_q5_1},
    [KERN_Q8_0] = {tile_8_off, direct_q8_0}, [KERN_Q4_K] = {tile_4_min, direct_q4_k},
    [KERN_Q5_K] = {tile_5_min, direct_q5_k}, [KERN_Q6_K] = {tile_6_off, direct_q6_k},
};

TILE_INLINE void unpack_weights(uint8_t *out, int bits, const uint8_t *rec)
{
    if (bits == 8) {
        for (int i = 0; i < 512; i += 32) {
            __m256i v = load_bytes(rec + i);
            _mm256_store_si256((__m256i *)(out + i), low_nibbles(v));
            _mm256_store_si256((__m256i *)(out + 512 + i), high_nibbles(v));
        }
        return;
    }
    UNROLL
    for (int step = 0; step < 8; step++)
        UNROLL
    for (int h = 0; h < 2; h++)
        _mm256_store_si256((__m256i *)(out + 64 * step + 32 * h),
                           record_step(bits, rec, step, h));
}

/* Records [begin, begin + n) of a panel, rec the first of them. */
static void unpack(struct matmul_scratch *s, const struct record_form *f, const uint8_t *rec,
                   int begin, int n)
{
    uint8_t *out = s->weights;
    for (int b = begin; b < begin + n; rec += record_stride(f, b), b++) {
        unpack_scales(s->scales[b - begin], f, rec, b);
        switch (f->bits) {
        case 4:
            unpack_weights(out, 4, rec);
            break;
        case 5:
            unpack_weights(out, 5, rec);
            break;
        case 6:
            unpack_weights(out, 6, rec);
            break;
        default:
            unpack_weights(out, 8, rec);
        }
        out += f->bits == 8 ? 1024 : 512;
    }
}

/* One panel, rows [first, end) of the call: `first` starts a group. */
struct panel_job {
    float *out;
    size_t ld;
    const struct kern_weights *w;
    const struct input_block *blocks;
    int panel, first, end;
};

/* Add the work's blocks, from block `begin` on, to what the outputs of up to six rows hold; begin = 0
 * starts them at +0. */
static void add_group(const struct panel_job *job, tile_fn *tile, struct tile_work work,
                      int row, int begin)
{
    int rows = job->end - row < ROW_GROUP ? job->end - row : ROW_GROUP;
    int left = job->w->n_out - job->panel * PANEL, cols = left < PANEL ? left : PANEL;
    float acc[ROW_GROUP][16] __attribute__((aligned(32))) = {0};
    float *out = job->out + (size_t)row * job->ld + (size_t)job->panel * PANEL;
    size_t bytes = (size_t)cols * sizeof(float);
    for (int r = 0; begin > 0 && r < rows; r++)
        memcpy(acc[r], out + (size_t)r * job->ld, bytes);
    work.acc = acc;
    work.a = job->blocks + (size_t)(row / ROW_GROUP) * (size_t)(job->w->n_in / 32) + begin;
    tile(&work, rows);
    for (int r = 0; r < rows; r++)
        memcpy(out + (size_t)r * job->ld, acc[r], bytes);
}

/* The record 2 KiB ahead: hardware follows a stream, but only within a page of 4 KiB. */
static void direct_panel(const struct panel_job *job)
{
    const uint8_t *rec = record_at(job->w, job->panel, 0);
    struct tile_work work = {.w = rec, .n = job->w->n_in / 32, .ahead = rec + 2048};
    work.ahead_bytes = record_bytes(&record_forms[job->w->type]);
    add_group(job, tiles[job->w->type].direct, work, job->first, 0);
}

/* Unpacking waits for memory and the tiles do not: the first one asks for the next chunk's records. */
static void unpacked_panel(const struct panel_job *job, struct matmul_scratch *s)
{
    const struct record_form *f = &record_forms[job->w->type];
    int n_blocks = job->w->n_in / 32;
    int n_chunks =
        (n_blocks + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS; /* of equal size: a short one is slow */
    int chunk = (n_blocks + n_chunks - 1) / n_chunks;
    for (int b = 0; b < n_blocks; b += chunk) {
        int n = n_blocks - b < chunk ? n_blocks - b : chunk;
        unpack(s, f, record_at(job->w, job->panel, b), b, n);
        struct tile_work work = {
            .w = s->weights, .scales = (const float(*)[SCALE_FLOATS])s->scales, .n = n};
        work.ahead = record_at(job->w, job->panel, b + n);
        work.ahead_bytes = record_bytes(f);
        for (int row = job->first; row < job->end; row += ROW_GROUP, work.ahead_bytes = 0)
            add_group(job, tiles[job->w->type].unpacked, work, row, b);
    }
}

static int rows_per_pass(int n_blocks)
{
    int groups = ROWS_IN_L2 / (n_blocks * (int)sizeof(struct input_block));
    return (groups < 8 ? 8 : groups) * ROW_GROUP;
}

static void quantised(float *out, size_t ld, const struct kern_weights *w,
                      const struct kern_input *in, struct matmul_scratch *scratch)
{
    int panels = (w->n_out + PANEL - 1) / PANEL, pass = rows_per_pass(w->n_in / 32);
    int share = panels / (8 * omp_get_max_threads());
    share = share < 1 ? 1 : share;
#pragma omp parallel
    for (int first = 0; first < in->rows; first += pass) {
        int end = in->rows - first < pass ? in->rows : first + pass;
#pragma omp for schedule(dynamic, share) nowait
        for (int p = 0; p < panels; p++) {
            const struct panel_job job = {out, ld, w, in->mem, p, first, end};
            if (in->rows <= DIRECT_ROWS)
                direct_panel(&job);
            else
                unpacked_panel(&job, scratch + omp_get_thread_num());
        }
    }
}

void matmul_avx2(float *out, size_t ld, const struct kern_weights *w,
                 const struct kern_input *in, void *scratch)
{
    if (record_forms[w->type].bits)
        quantised(out, ld, w, in, scratch);
    else
        matmul_float_inputs_avx2(out, ld, w, in, scratch);
}

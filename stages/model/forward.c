/* The rows of a pass lie one below the other, sequence after sequence:
 *
 *     seqs[0] rows pos..pos+n-1 | seqs[1] ... |        x [rows][n_embd] and so on
 *
 * and go through the layers together, so that each weight is read once for all of them. Only rope and
 * attention look at positions, only attention at other rows, and then at rows of the same sequence alone.
 * In the last layer only the rows that want logits go on past attention. Its products and the head's take
 * inputs in 16 bits (fine_product).
 *
 * Scratch is one block. carve() lays it out; with base NULL it counts.
 */
#include "stages/model/forward.h"

#include "kernels/team.h"
#include "stages/base/mem.h"
#include "stages/model/head.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Reading a row maps up to 64 KiB of the file around it, and a large vocabulary would soon be in memory a second
 * time: after so many rows the pages go back. */
enum { EMBEDDING_ROWS = 256 };

/* Rows of a product with inputs in 16 bits that are worked on at once, each as two. */
enum { FINE_ROWS = HEAD_ROWS };

struct forward {
    const struct hparams *h;
    const struct weights *w;
    const struct kernels *k;
    struct forward_limits limits;
    int max_threads;
    double *freqs, *freqs_local; /* [rot/2] */
    void *memory;

    bool fine;      /* products take inputs in 16 bits: in the last layer and the head */
    int rows_read;  /* of the embedding, since its pages were given back */
    int rows;       /* of the pass, after the last attention: those that want logits */
    float *x;       /* [rows][n_embd] the residual stream */
    float *y;       /* [rows][n_embd] into and out of a block */
    float *q, *att; /* [rows][n_head*head_dim] */
    float *k_rows;  /* [rows][n_kv_head*head_dim] */
    float *v_rows;
    float *gate, *up;         /* [rows][n_ff] */
    float *turn, *turn_local; /* [rows][rot] cos and sin */
    struct head head;
    void *input;                  /* of the product at hand */
    float *fine_rows;             /* [2*FINE_ROWS][widest] rows and their remainders */
    void *fine_input;             /* the same, prepared */
    void *scratch;                /* of products and of attention */
    uint8_t *bad;                 /* [rows], and of remainders */
    int *seq_of;                  /* [rows] */
    struct kern_attn_rows *calls; /* [seqs] */
    void **slices;                /* pages of all sequences, one sequence after the other */
};

static int pages_of(int tokens)
{
    return tokens / PAGE_TOKENS + (tokens % PAGE_TOKENS != 0);
}

static size_t max_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Rows that a product of n rows may write: the remainders of the last tile come behind them. */
static size_t with_spare(int n)
{
    return (size_t)n + (size_t)(n < FINE_ROWS ? n : FINE_ROWS);
}

/* One region of the block, and a gap behind it that nothing may touch; used counts on. */
static void *region(char *base, size_t *used, size_t n, size_t size)
{
    enum { GAP = 64 };
    void *p = base ? base + *used : NULL;
    *used += (n * size + 63) & ~(size_t)63;
    if (base)
        mem_forbid(base + *used, GAP);
    *used += GAP;
    return p;
}

static size_t carve(struct forward *f, const struct hparams *h, char *base)
{
    size_t rows = (size_t)f->limits.rows, used = 0;
    /* Of the last layer, q, k and v are of all rows, and the rest only of those that want logits. */
    size_t fine_all = with_spare(f->limits.rows),
           rest = max_of(rows, with_spare(f->limits.logits));
    size_t head_rows =
        2 * (size_t)(f->limits.logits < HEAD_ROWS ? f->limits.logits : HEAD_ROWS);
    size_t embd = (size_t)h->n_embd, ff = (size_t)h->n_ff;
    size_t wide = (size_t)h->n_head * (size_t)h->head_dim,
           kv = (size_t)h->n_kv_head * (size_t)h->head_dim;
    size_t widest = max_of(max_of(embd, ff), wide);
    f->freqs = region(base, &used, (size_t)h->rot / 2, sizeof(double));
    f->freqs_local = region(base, &used, (size_t)h->rot / 2, sizeof(double));
    f->x = region(base, &used, rows * embd, sizeof(float));
    f->y = region(base, &used, rest * embd, sizeof(float));
    f->q = region(base, &used, fine_all * wide, sizeof(float));
    f->att = region(base, &used, rows * wide, sizeof(float));
    f->k_rows = region(base, &used, fine_all * kv, sizeof(float));
    f->v_rows = region(base, &used, fine_all * kv, sizeof(float));
    f->gate = region(base, &used, rest * ff, sizeof(float));
    f->up = region(base, &used, rest * ff, sizeof(float));
    f->turn = region(base, &used, rows * (size_t)h->rot, sizeof(float));
    f->turn_local = region(base, &used, rows * (size_t)h->rot, sizeof(float));
    f->head.out = region(base, &used, head_rows * (size_t)h->n_vocab, sizeof(float));
    size_t panels = ((size_t)h->n_vocab + 15) / 16;
    f->head.norms = region(base, &used, panels, sizeof(float));
    f->head.marks = region(base, &used, head_rows / 2 * panels, 1);
    f->head.maxima = region(base, &used, head_rows / 2 * panels, sizeof(float));
    f->head.exact = region(base, &used, panels, sizeof(bool));
    f->head.rest_input =
        region(base, &used, kern_input_bytes((int)head_rows / 2, h->n_embd), 1);
    f->input = region(base, &used, kern_input_bytes(f->limits.rows, (int)widest), 1);
    f->fine_rows = region(base, &used, 2 * FINE_ROWS * widest, sizeof(float));
    f->fine_input = region(base, &used, kern_input_bytes(2 * FINE_ROWS, (int)widest), 1);
    f->scratch =
        region(base, &used,
               max_of(kern_matmul_scratch(f->max_threads),
                      kern_attn_scratch(f->max_threads, h->n_head, h->n_kv_head, h->head_dim)),
               1);
    f->bad = region(base, &used, fine_all, 1);
    f->seq_of = region(base, &used, rows, sizeof(int));
    f->calls = region(base, &used, rows, sizeof(*f->calls));
    f->slices = region(base, &used, rows * (size_t)pages_of(f->limits.context), sizeof(void *));
    return used;
}

static void set_up(struct forward *f, const struct hparams *h, struct forward_limits limits)
{
    /* Who loads has set how many threads there will be. */
    int threads = omp_get_max_threads(), cores = omp_get_num_procs();
    *f = (struct forward){
        .h = h, .limits = limits, .max_threads = threads > cores ? threads : cores};
}

uint64_t forward_mapped_bytes(struct forward_limits limits)
{
    enum { MAPPED_PER_ROW = 64 << 10 };
    return (uint64_t)(EMBEDDING_ROWS + limits.rows) * MAPPED_PER_ROW;
}

uint64_t forward_bytes(const struct hparams *h, struct forward_limits limits)
{
    struct forward f;
    set_up(&f, h, limits);
    return carve(&f, h, NULL);
}

/* Scaling and factors act on the frequencies, so that positions stay whole numbers. */
static void set_freqs(struct forward *f)
{
    const struct hparams *h = f->h;
    kern_rope_freqs(f->freqs, h->rot, h->rope_base);
    for (int i = 0; i < h->rot / 2; i++) {
        f->freqs[i] /= h->rope_linear;
        if (f->w->rope_factors)
            f->freqs[i] /= (double)f->w->rope_factors[i];
    }
    if (h->rope_base_local > 0)
        kern_rope_freqs(f->freqs_local, h->rot, h->rope_base_local);
    else
        memcpy(f->freqs_local, f->freqs, (size_t)h->rot / 2 * sizeof(double));
}

int forward_new(struct forward **out, const struct hparams *h, const struct weights *w,
                const struct kernels *k, struct forward_limits limits, struct err *e)
{
    struct forward *f = mem_need(sizeof(*f));
    set_up(f, h, limits);
    f->w = w;
    f->k = k;
    size_t bytes = carve(f, h, NULL);
    f->memory = mem_aligned(bytes);
    if (!f->memory) {
        free(f);
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for %zu bytes of activations",
                       bytes);
    }
    carve(f, h, f->memory);
    set_freqs(f);
    f->head.k = k;
    f->head.w = &w->head;
    f->head.scratch = f->scratch;
    head_measure(&f->head);
    *out = f;
    return 0;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    free(f->memory);
    free(f);
}

/* ---- one pass ---- */

/* Lay out the rows: where each belongs, its embedding, its angles. */
static void begin_rows(struct forward *f, struct forward_rows *seqs, int n_seqs)
{
    const struct hparams *h = f->h;
    const struct gguf_tensor *embd = f->w->embd;
    size_t row_bytes = kern_row_bytes((enum kern_type)embd->type, (size_t)h->n_embd);
    int r = 0;
    for (int s = 0; s < n_seqs; s++) {
        seqs[s].failed = false;
        for (int i = 0; i < seqs[s].n; i++, r++) {
            int pos = seqs[s].pos + i;
            f->seq_of[r] = s;
            kern_dequantize_row(f->x + (size_t)r * (size_t)h->n_embd,
                                embd->data + (size_t)seqs[s].tokens[pos] * row_bytes,
                                (enum kern_type)embd->type, h->n_embd);
            kern_rope_angles(f->turn + (size_t)r * (size_t)h->rot, f->freqs, h->rot, pos);
            if (h->rope_base_local > 0)
                kern_rope_angles(f->turn_local + (size_t)r * (size_t)h->rot, f->freqs_local,
                                 h->rot, pos);
        }
    }
    f->rows = r;
    memset(f->bad, 0, (size_t)r);
    f->rows_read += r;
    if (f->rows_read >= EMBEDDING_ROWS) {
        weights_give_back_embedding(f->w);
        f->rows_read = 0;
    }
    if (h->embed_scale != 1)
        f->k->scale(f->x, h->embed_scale, (size_t)h->n_embd, f->rows, h->n_embd);
}

static struct kern_input input_of(struct forward *f, const float *x, int n)
{
    return (struct kern_input){.rows = f->rows, .k = n, .x = x, .mem = f->input};
}

/* Rows x [n][k], of which the first is row `first` of the pass, and behind them what 8 bits leave of each. */
static struct kern_input fine_input(struct forward *f, const float *x, int n, int first, int k)
{
    size_t values = (size_t)n * (size_t)k;
    struct kern_input in = {.rows = 2 * n, .k = k, .x = f->fine_rows, .mem = f->fine_input};
    memcpy(f->fine_rows, x, values * sizeof(float));
    f->k->remainder(f->fine_rows + values, x, n, k);
    f->k->prepare(&in, f->bad + first); /* flags rows only: remainders are finite */
    return in;
}

/* Product with 16-bit inputs: the 8 bits of x and what these leave of it, in 8 bits again, are two rows of one
 * product, and the results are added. About half of what 8-bit inputs cost comes from the last layer and the
 * head, for nothing after them averages it out: with 16 bits there the mean KL from exact logits falls from
 * 0.0029 to 0.0015 for SmolLM2-135M (the greedy token agrees at 97.5 % of the positions, not 96.2 %), and
 * decode of 8 sequences is slower by a tenth.
 *
 * Rows go in tiles: results of remainders lie behind those of their rows, where the next tile puts its own. */
static void fine_product(struct forward *f, float *out, const struct kern_weights *w,
                         const float *x)
{
    size_t ld = (size_t)w->n_out, k = (size_t)w->n_in;
    for (int first = 0, n; first < f->rows;
         first += n, x += (size_t)n * k, out += (size_t)n * ld) {
        n = f->rows - first < FINE_ROWS ? f->rows - first : FINE_ROWS;
        struct kern_input in = fine_input(f, x, n, first, w->n_in);
        f->k->matmul(out, ld, w, &in, f->scratch);
        f->k->add(out, out + (size_t)n * ld, ld, n, w->n_out);
    }
}

/* Weights in floats take their inputs as floats in any case. */
static void product(struct forward *f, float *out, const struct kern_weights *w,
                    const struct kern_input *in)
{
    if (f->fine && kern_types[w->type].block_values > 1)
        fine_product(f, out, w, in->x);
    else
        f->k->matmul(out, (size_t)w->n_out, w, in, f->scratch);
}

/* ---- between products: ops on rows, one after the other while these are in a cache ---- */

/* Rows [first, first + n) of the pass. */
typedef void step_fn(struct forward *f, int layer, int first, int n);

struct steps {
    struct forward *f;
    step_fn *fn;
    int layer, rows;
};

static void some_steps(void *arg, int begin, int end, int thread)
{
    const struct steps *s = arg;
    (void)thread;
    for (int first = begin * s->rows; first < s->f->rows && first < end * s->rows;
         first += s->rows)
        s->fn(s->f, s->layer, first,
              s->f->rows - first < s->rows ? s->f->rows - first : s->rows);
}

static void each_step(struct forward *f, step_fn *fn, int layer)
{
    enum { FEW = 8 * KERN_INPUT_GROUP };
    struct steps s = {f, fn, layer, f->rows <= FEW ? KERN_INPUT_GROUP : 2 * KERN_INPUT_GROUP};
    team_run((f->rows + s.rows - 1) / s.rows, 1, some_steps, &s);
}

static float *row_of(float *x, int first, int n)
{
    return x + (size_t)first * (size_t)n;
}

static void prepare(struct forward *f, const float *x, int k, int first, int n)
{
    struct kern_input all = input_of(f, x, k), part = kern_input_part(&all, first, n);
    f->k->prepare(&part, f->bad + first);
}

static void norm(struct forward *f, float *out, const float *x, const float *w, int rows)
{
    int n = f->h->n_embd;
    f->k->rms_norm(out, (size_t)n, x, (size_t)n, w, rows, n, f->h->rms_eps);
}

static void norm_and_prepare(struct forward *f, const float *w, int first, int n)
{
    int embd = f->h->n_embd;
    norm(f, row_of(f->y, first, embd), row_of(f->x, first, embd), w, n);
    prepare(f, f->y, embd, first, n);
}

/* x += y, after the block's own norm if there is one. */
static void add_block(struct forward *f, const float *post_norm, int first, int n)
{
    int embd = f->h->n_embd;
    float *x = row_of(f->x, first, embd), *y = row_of(f->y, first, embd);
    if (post_norm)
        norm(f, y, y, post_norm, n);
    f->k->add(x, y, (size_t)embd, n, embd);
}

static void enter_layer(struct forward *f, int layer, int first, int n)
{
    norm_and_prepare(f, f->w->layers[layer].attn_norm, first, n);
}

/* Bias, norm per head and rotation of one projection, in place. */
static void finish_heads(struct forward *f, float *x, int n_head, const float *bias,
                         const float *norm_w, const float *turn, int rows)
{
    const struct hparams *h = f->h;
    int n = n_head * h->head_dim;
    if (bias)
        f->k->add_bias(x, bias, (size_t)n, rows, n);
    if (norm_w)
        f->k->rms_norm(x, (size_t)h->head_dim, x, (size_t)h->head_dim, norm_w, rows * n_head,
                       h->head_dim, h->rms_eps);
    if (turn)
        f->k->rope(x, (size_t)n, rows, n_head, h->head_dim, h->rot, h->neox, turn);
}

static void finish_projections(struct forward *f, int layer, int first, int n)
{
    const struct hparams *h = f->h;
    const struct layer_weights *w = &f->w->layers[layer];
    bool local = h->local[layer] && h->rope_base_local > 0;
    const float *turn = row_of(local ? f->turn_local : f->turn, first, h->rot);
    int wide = h->n_head * h->head_dim, kv = h->n_kv_head * h->head_dim;
    float *q = row_of(f->q, first, wide);
    finish_heads(f, q, h->n_head, w->q_bias, w->q_norm, turn, n);
    f->k->scale(q, h->attn_scale, (size_t)wide, n, wide);
    finish_heads(f, row_of(f->k_rows, first, kv), h->n_kv_head, w->k_bias, w->k_norm, turn, n);
    finish_heads(f, row_of(f->v_rows, first, kv), h->n_kv_head, w->v_bias, NULL, NULL, n);
}

static void enter_ffn(struct forward *f, int layer, int first, int n)
{
    const struct layer_weights *w = &f->w->layers[layer];
    add_block(f, w->attn_post_norm, first, n);
    norm_and_prepare(f, w->ffn_norm, first, n);
}

static void activate(struct forward *f, int layer, int first, int n)
{
    int ff = f->h->n_ff;
    float *gate = row_of(f->gate, first, ff), *up = row_of(f->up, first, ff);
    (void)layer;
    if (f->h->gelu)
        f->k->gelu_mul(gate, gate, up, (size_t)ff, n, ff);
    else
        f->k->silu_mul(gate, gate, up, (size_t)ff, n, ff);
    prepare(f, f->gate, ff, first, n);
}

static void leave_layer(struct forward *f, int layer, int first, int n)
{
    add_block(f, f->w->layers[layer].ffn_post_norm, first, n);
    if (layer + 1 < f->h->n_layer)
        enter_layer(f, layer + 1, first, n);
}

/* ---- attention ---- */

/* Write K and V of the new rows into the pages, then let each sequence look at its own. */
static void attend(struct forward *f, struct forward_rows *seqs, int n_seqs, int layer)
{
    const struct hparams *h = f->h;
    size_t wide = (size_t)h->n_head * (size_t)h->head_dim,
           kv = (size_t)h->n_kv_head * (size_t)h->head_dim;
    void **slices = f->slices;
    size_t row = 0;
    for (int s = 0; s < n_seqs; s++) {
        struct forward_rows *q = &seqs[s];
        int q8_pages = block_table_slices(q->table, layer, slices);
        f->k->kv_store(slices, q->pos, f->k_rows + row * kv, f->v_rows + row * kv, kv, q->n,
                       h->n_kv_head, h->head_dim, f->bad + row);
        f->calls[s] = (struct kern_attn_rows){.out = f->att + row * wide,
                                              .q = f->q + row * wide,
                                              .ld_out = wide,
                                              .ld_q = wide,
                                              .slices = (const void *const *)slices,
                                              .q8_pages = q8_pages,
                                              .pos = q->pos,
                                              .rows = q->n,
                                              .window = h->local[layer] ? h->window : 0};
        slices += q->table->n_pages;
        row += (size_t)q->n;
    }
    f->k->attn(f->calls, n_seqs, h->n_head, h->n_kv_head, h->head_dim, f->scratch);
}

static void note_failures(struct forward *f, struct forward_rows *seqs)
{
    for (int r = 0; r < f->rows; r++)
        seqs[f->seq_of[r]].failed |= f->bad[r] != 0;
    memset(f->bad, 0, (size_t)f->rows);
}

/* Nothing past the last attention is kept for later tokens: go on with the rows that want logits. */
static void keep_wanted_rows(struct forward *f, struct forward_rows *seqs, int n_seqs)
{
    size_t wide = (size_t)f->h->n_head * (size_t)f->h->head_dim, embd = (size_t)f->h->n_embd;
    note_failures(f, seqs);
    int to = 0, from = 0;
    for (int s = 0; s < n_seqs; s++) {
        from += seqs[s].n;
        if (!seqs[s].want_logits)
            continue;
        memmove(f->att + (size_t)to * wide, f->att + (size_t)(from - 1) * wide,
                wide * sizeof(float));
        memmove(f->x + (size_t)to * embd, f->x + (size_t)(from - 1) * embd,
                embd * sizeof(float));
        f->seq_of[to++] = s;
    }
    f->rows = to;
}

/* ---- layers ---- */

static void attention_block(struct forward *f, struct forward_rows *seqs, int n_seqs, int layer)
{
    const struct hparams *h = f->h;
    const struct layer_weights *w = &f->w->layers[layer];
    int wide = h->n_head * h->head_dim;

    struct kern_input in = input_of(f, f->y, h->n_embd);
    product(f, f->q, &w->q, &in);
    product(f, f->k_rows, &w->k, &in);
    product(f, f->v_rows, &w->v, &in);
    each_step(f, finish_projections, layer);
    attend(f, seqs, n_seqs, layer);

    if (layer == h->n_layer - 1)
        keep_wanted_rows(f, seqs, n_seqs);
    if (f->rows == 0)
        return;
    in = input_of(f, f->att, wide);
    f->k->prepare(&in, f->bad);
    product(f, f->y, &w->o, &in);
    each_step(f, enter_ffn, layer);
}

static void ffn_block(struct forward *f, int layer)
{
    const struct hparams *h = f->h;
    const struct layer_weights *w = &f->w->layers[layer];

    struct kern_input in = input_of(f, f->y, h->n_embd);
    product(f, f->gate, &w->gate, &in);
    product(f, f->up, &w->up, &in);
    each_step(f, activate, layer);
    in = input_of(f, f->gate, h->n_ff);
    product(f, f->y, &w->down, &in);
    each_step(f, leave_layer, layer);
}

/* The head for rows [first, first + n) of those that want it. */
static void head_part(struct forward *f, struct forward_rows *seqs, int first, int n)
{
    size_t k = (size_t)f->h->n_embd;
    const float *x = f->y + (size_t)first * k;
    bool rest = kern_types[f->w->head.type].block_values > 1, all = !rest, ok[HEAD_ROWS];
    float *out[HEAD_ROWS];
    struct leading lists[HEAD_ROWS];
    for (int r = 0; r < n; r++) {
        const struct forward_rows *s = &seqs[f->seq_of[first + r]];
        out[r] = s->logits;
        lists[r] = (struct leading){.at = s->leading, .most = s->n_leading};
        all |= s->n_leading == 0;
    }
    struct kern_input in =
        rest ? fine_input(f, x, n, first, (int)k)
             : (struct kern_input){.rows = n, .k = (int)k, .x = x, .mem = f->fine_input};
    if (!rest)
        f->k->prepare(&in, f->bad + first);
    if (all)
        head_logits(&f->head, &in, rest, out, ok);
    else
        head_leading(&f->head, &in, lists, ok);
    for (int r = 0; r < n; r++) {
        seqs[f->seq_of[first + r]].failed |= !ok[r];
        if (all && ok[r] && lists[r].most > 0)
            head_find_leading(&f->head, out[r], &lists[r]);
    }
}

static void head(struct forward *f, struct forward_rows *seqs)
{
    norm(f, f->y, f->x, f->w->output_norm, f->rows);
    for (int first = 0; first < f->rows; first += HEAD_ROWS)
        head_part(f, seqs, first, f->rows - first < HEAD_ROWS ? f->rows - first : HEAD_ROWS);
    note_failures(f, seqs);
}

int forward_run(struct forward *f, struct forward_rows *seqs, int n_seqs, struct err *e)
{
    if (n_seqs == 0)
        return 0;
    if (team_threads() > f->max_threads)
        return err_set(e, REACH_JOB, ERR_LIMIT, "%d threads; planned were %d", team_threads(),
                       f->max_threads);
    begin_rows(f, seqs, n_seqs);
    each_step(f, enter_layer, 0);
    for (int layer = 0; layer < f->h->n_layer; layer++) {
        f->fine = layer == f->h->n_layer - 1;
        attention_block(f, seqs, n_seqs, layer);
        if (f->rows > 0)
            ffn_block(f, layer);
    }
    if (f->rows > 0)
        head(f, seqs);
    return 0;
}

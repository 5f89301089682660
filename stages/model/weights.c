/* Two tables say what a model consists of: name in the file, shape in terms of the hyperparameters, whether
 * the architecture has it, and where it goes. Checking, planning and packing all walk the same list of
 * bindings that is made from them. */
#include "stages/model/weights.h"

#include "stages/base/clock.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum dim { ONE, EMBD, FF, HEAD, HALF_ROT, Q, KV, VOCAB };
enum part { ALWAYS, QK_NORM, QKV_BIAS, POST_NORMS, OWN_HEAD, ROPE_FACTORS };

struct tensor_row {
    const char *name;
    enum dim in, out; /* length of a row, number of rows; out ONE: a vector of floats */
    enum part part;
    size_t at; /* in struct layer_weights, or struct weights */
};

#define L(field) offsetof(struct layer_weights, field)
static const struct tensor_row layer_rows[] = {
    {"attn_norm.weight", EMBD, ONE, ALWAYS, L(attn_norm)},
    {"attn_q.weight", EMBD, Q, ALWAYS, L(q)},
    {"attn_k.weight", EMBD, KV, ALWAYS, L(k)},
    {"attn_v.weight", EMBD, KV, ALWAYS, L(v)},
    {"attn_q.bias", Q, ONE, QKV_BIAS, L(q_bias)},
    {"attn_k.bias", KV, ONE, QKV_BIAS, L(k_bias)},
    {"attn_v.bias", KV, ONE, QKV_BIAS, L(v_bias)},
    {"attn_q_norm.weight", HEAD, ONE, QK_NORM, L(q_norm)},
    {"attn_k_norm.weight", HEAD, ONE, QK_NORM, L(k_norm)},
    {"attn_output.weight", Q, EMBD, ALWAYS, L(o)},
    {"post_attention_norm.weight", EMBD, ONE, POST_NORMS, L(attn_post_norm)},
    {"ffn_norm.weight", EMBD, ONE, ALWAYS, L(ffn_norm)},
    {"ffn_gate.weight", EMBD, FF, ALWAYS, L(gate)},
    {"ffn_up.weight", EMBD, FF, ALWAYS, L(up)},
    {"ffn_down.weight", FF, EMBD, ALWAYS, L(down)},
    {"post_ffw_norm.weight", EMBD, ONE, POST_NORMS, L(ffn_post_norm)},
};
#undef L

#define W(field) offsetof(struct weights, field)
static const struct tensor_row model_rows[] = {
    {"output_norm.weight", EMBD, ONE, ALWAYS, W(output_norm)},
    {"output.weight", EMBD, VOCAB, OWN_HEAD, W(head)},
    {"rope_freqs.weight", HALF_ROT, ONE, ROPE_FACTORS, W(rope_factors)},
};
#undef W
static const struct tensor_row embd_row = {"token_embd.weight", EMBD, VOCAB, ALWAYS, 0};

struct weight_binding {
    const struct gguf_tensor *src;
    void *dst; /* const float ** for a vector, struct kern_weights * for a matrix */
    bool vector;
};

static int dim_of(const struct hparams *h, enum dim d)
{
    switch (d) {
    case EMBD:
        return h->n_embd;
    case FF:
        return h->n_ff;
    case HEAD:
        return h->head_dim;
    case HALF_ROT:
        return h->rot / 2;
    case Q:
        return h->n_head * h->head_dim;
    case KV:
        return h->n_kv_head * h->head_dim;
    case VOCAB:
        return h->n_vocab;
    default:
        return 1;
    }
}

static bool has_part(const struct hparams *h, enum part p)
{
    switch (p) {
    case QK_NORM:
        return h->qk_norm;
    case QKV_BIAS:
        return h->qkv_bias;
    case POST_NORMS:
        return h->post_norms;
    case OWN_HEAD:
        return !h->tied;
    case ROPE_FACTORS:
        return h->rope_llama3;
    default:
        return true;
    }
}

static int refuse_type(const struct gguf_tensor *t, struct err *e)
{
    static const char *const names[] = {
        [9] = "Q8_1",    [10] = "Q2_K",    [11] = "Q3_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
        [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
        [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
        [27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [34] = "TQ1_0",  [35] = "TQ2_0",
        [39] = "MXFP4"};
    size_t id = (size_t)t->gguf_type_id;
    const char *name = t->type >= 0                         ? kern_types[t->type].name
                       : id < ARRAY_LEN(names) && names[id] ? names[id]
                                                            : "unknown";
    return err_set(
        e, REACH_JOB, ERR_UNSUPPORTED, "tensor %s has type %s (%d), which is not read%s",
        t->name, name, t->gguf_type_id,
        t->type >= 0 ? " here: expected F32, F16 or BF16"
                     : "; readable are F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K");
}

static int check_tensor(const struct gguf_tensor **out, const struct hparams *h,
                        const struct gguf *g, const struct tensor_row *row, const char *name,
                        struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(g, name);
    if (!t)
        return err_set(e, REACH_JOB, ERR_FORMAT, "the tensor %s is missing", name);
    int64_t in = dim_of(h, row->in), rows = dim_of(h, row->out);
    if (t->dims[0] != in || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "tensor %s has shape %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
                       ", expected %" PRId64 " x %" PRId64,
                       name, t->dims[0], t->dims[1], t->dims[2], t->dims[3], in, rows);
    bool vector = row->out == ONE;
    if (t->type < 0 ||
        (vector && t->type != KERN_F32 && t->type != KERN_F16 && t->type != KERN_BF16))
        return refuse_type(t, e);
    *out = t;
    return 0;
}

static int bind_row(struct weights *w, const struct hparams *h, const struct gguf *g,
                    const struct tensor_row *row, const char *name, void *base, struct err *e)
{
    if (!has_part(h, row->part))
        return 0;
    struct weight_binding *b = &w->bindings[w->n_bindings];
    int rc = check_tensor(&b->src, h, g, row, name, e);
    if (rc)
        return rc;
    b->dst = (char *)base + row->at;
    b->vector = row->out == ONE;
    w->n_bindings++;
    return 0;
}

/* Every tensor of the file has its place: find one that has none. */
static int refuse_leftovers(const struct weights *w, const struct hparams *h,
                            const struct gguf *g, struct err *e)
{
    size_t bound =
        w->n_bindings + !h->tied; /* the embedding is no binding unless it is also the head */
    if (bound == g->n_tensors)
        return 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        bool used = t == w->embd;
        for (size_t j = 0; j < w->n_bindings && !used; j++)
            used = w->bindings[j].src == t;
        if (!used)
            return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                           "tensor %s is no part of a %s model as it is known here", t->name,
                           arch_name(h->arch));
    }
    return 0;
}

static size_t binding_bytes(const struct weight_binding *b)
{
    size_t n = b->vector ? (size_t)b->src->dims[0] * sizeof(float)
                         : kern_packed_bytes((enum kern_type)b->src->type, (int)b->src->dims[1],
                                             (int)b->src->dims[0]);
    return (n + 63) & ~(size_t)63;
}

int weights_bind(struct weights *w, const struct hparams *h, const struct gguf *g,
                 struct err *e)
{
    *w = (struct weights){0};
    size_t n = ARRAY_LEN(model_rows) + 1 + (size_t)h->n_layer * ARRAY_LEN(layer_rows);
    w->layers = mem_need((size_t)h->n_layer * sizeof(*w->layers));
    w->bindings = mem_need(n * sizeof(*w->bindings));
    int rc = check_tensor(&w->embd, h, g, &embd_row, embd_row.name, e);
    for (size_t i = 0; !rc && i < ARRAY_LEN(model_rows); i++)
        rc = bind_row(w, h, g, &model_rows[i], model_rows[i].name, w, e);
    for (int l = 0; !rc && l < h->n_layer; l++) {
        for (size_t i = 0; !rc && i < ARRAY_LEN(layer_rows); i++) {
            char name[65];
            snprintf(name, sizeof(name), "blk.%d.%s", l, layer_rows[i].name);
            rc = bind_row(w, h, g, &layer_rows[i], name, &w->layers[l], e);
        }
    }
    if (!rc && h->tied)
        w->bindings[w->n_bindings++] = (struct weight_binding){w->embd, &w->head, false};
    rc = rc ? rc : refuse_leftovers(w, h, g, e);
    for (size_t i = 0; !rc && i < w->n_bindings; i++)
        w->bytes += binding_bytes(&w->bindings[i]);
    if (rc)
        weights_release(w);
    return rc;
}

/* Whole pages inside the range go back to the system; they come again by themselves when they are read. */
static void give_back(const uint8_t *data, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)data + n) & ~(page - 1);
    if (end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED); /* only advice */
}

/* Outputs [begin, end), on all threads. */
static void pack_part(void *dst, const struct gguf_tensor *t, int begin, int end)
{
    enum { OUTPUTS_AT_ONCE = 4 * 16 };
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = begin; i < end; i += OUTPUTS_AT_ONCE) {
        int to = end - i < OUTPUTS_AT_ONCE ? end : i + OUTPUTS_AT_ONCE;
        kern_pack(dst, t->data, (enum kern_type)t->type, (int)t->dims[1], (int)t->dims[0], i,
                  to);
    }
}

/* A line now and then: some models take minutes on slow disks. */
struct progress {
    int64_t start_us, said_us;
    size_t done, total;
};

static void report(struct progress *p, size_t more)
{
    enum { EVERY_US = 5000000 };
    int64_t now = clock_us();
    p->done += more;
    if (now - p->said_us < EVERY_US)
        return;
    p->said_us = now;
    log_info("model", "packing weights done=%.0f%% bytes=%zu s=%.1f",
             100.0 * (double)p->done / (double)p->total, p->done,
             (double)(now - p->start_us) / 1e6);
}

/* In parts of some megabytes, so that a large tensor is never in memory twice. */
static void pack(void *dst, const struct gguf_tensor *t, struct progress *p)
{
    enum { OUTPUTS = 16 * 1024 };
    int n_out = (int)t->dims[1];
    size_t row = kern_row_bytes((enum kern_type)t->type, (size_t)t->dims[0]);
    for (int begin = 0; begin < n_out; begin += OUTPUTS) {
        int end = n_out - begin < OUTPUTS ? n_out : begin + OUTPUTS;
        pack_part(dst, t, begin, end);
        give_back(t->data + (size_t)begin * row, (size_t)(end - begin) * row);
        report(p, kern_packed_bytes((enum kern_type)t->type, end - begin, (int)t->dims[0]));
    }
    give_back(t->data, t->bytes); /* the pages at the seams */
}

static int check_vector(const struct gguf_tensor *t, const float *v, struct err *e)
{
    for (int i = 0; i < (int)t->dims[0]; i++) {
        if (!isfinite(v[i]))
            return err_set(e, REACH_JOB, ERR_FORMAT, "tensor %s: value %d is not finite",
                           t->name, i);
    }
    return 0;
}

/* The tensor lies at `at` now. */
static void place(const struct weight_binding *b, const void *at)
{
    const struct gguf_tensor *t = b->src;
    if (b->vector)
        *(const float **)b->dst = at;
    else
        *(struct kern_weights *)b->dst = (struct kern_weights){
            (enum kern_type)t->type, (int)t->dims[1], (int)t->dims[0], at};
}

int weights_load(struct weights *w, struct err *e)
{
    /* Fresh zero pages: nothing is written twice, and large pages where the system has them. */
    void *memory =
        mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for %zu bytes of weights", w->bytes);
    (void)madvise(memory, w->bytes, MADV_HUGEPAGE);
    w->packed = memory;
    w->own = true;
    int64_t now = clock_us();
    struct progress p = {.start_us = now, .said_us = now, .total = w->bytes};
    char *at = memory;
    for (size_t i = 0; i < w->n_bindings; i++) {
        const struct weight_binding *b = &w->bindings[i];
        const struct gguf_tensor *t = b->src;
        if (b->vector) {
            float *v = (float *)(void *)at;
            kern_dequantize_row(v, t->data, (enum kern_type)t->type, (int)t->dims[0]);
            if (check_vector(t, v, e))
                return -(int)e->code;
            give_back(t->data, t->bytes);
        } else {
            pack(at, t, &p);
        }
        place(b, at);
        at += binding_bytes(b);
    }
    return 0;
}

int weights_use(struct weights *w, const void *packed, struct err *e)
{
    const char *at = packed;
    w->packed = packed;
    for (size_t i = 0; i < w->n_bindings; i++) {
        const struct weight_binding *b = &w->bindings[i];
        if (b->vector && check_vector(b->src, (const float *)(const void *)at, e))
            return -(int)e->code;
        place(b, at);
        at += binding_bytes(b);
    }
    return 0;
}

void weights_layout(const struct weights *w, uint8_t out[HASH_BYTES])
{
    struct hash h;
    hash_init(&h);
    hash_field_u64(&h, "layout", KERN_PACKED_VERSION);
    hash_field_u64(&h, "bytes", w->bytes);
    for (size_t i = 0; i < w->n_bindings; i++) {
        const struct weight_binding *b = &w->bindings[i];
        hash_field(&h, "name", b->src->name, strlen(b->src->name));
        hash_field_u64(&h, "packed bytes", binding_bytes(b));
    }
    hash_end(&h, out);
}

void weights_give_back_embedding(const struct weights *w)
{
    give_back(w->embd->data, w->embd->bytes);
}

void weights_release(struct weights *w)
{
    if (w->own)
        munmap((void *)(uintptr_t)w->packed, w->bytes);
    free(w->layers);
    free(w->bindings);
    *w = (struct weights){0};
}

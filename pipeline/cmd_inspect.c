/* quire inspect: what a GGUF file holds, and what running it would take. */
#include "pipeline/cmd.h"

#include "pipeline/machine.h"
#include "pipeline/plan.h"
#include "stages/base/file.h"
#include "stages/base/le.h"
#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/model/chat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 60, SHOWN_ITEMS = 4 };

static const char *const type_names[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = "u8",       [GGUF_I8] = "i8",       [GGUF_U16] = "u16", [GGUF_I16] = "i16",
    [GGUF_U32] = "u32",     [GGUF_I32] = "i32",     [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
    [GGUF_STRING] = "text", [GGUF_ARRAY] = "array", [GGUF_U64] = "u64", [GGUF_I64] = "i64",
    [GGUF_F64] = "f64",
};

/* ---- metadata ---- */

/* A text on one line, cut after SHOWN_BYTES; its bytes are hostile. */
static int add_text(struct gguf_string s, struct buf *out, struct err *e)
{
    size_t valid = utf8_valid_prefix(s.s, s.len), n = s.len;
    if (n > SHOWN_BYTES)
        n = utf8_floor(s.s, valid, SHOWN_BYTES < valid ? SHOWN_BYTES : valid);
    int rc = buf_addc(out, '"', e);
    for (size_t i = 0; !rc && i < n; i++) {
        unsigned char c = (unsigned char)s.s[i];
        if (c == '\n')
            rc = buf_adds(out, "\\n", e);
        else if (c == '"' || c == '\\')
            rc = buf_addf(out, e, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || i >= valid)
            rc = buf_addf(out, e, "\\x%02x", c);
        else
            rc = buf_addc(out, (char)c, e);
    }
    if (!rc)
        rc = buf_addc(out, '"', e);
    return rc || n == s.len ? rc : buf_addf(out, e, "... (%zu bytes)", s.len);
}

/* The item at p; returns the bytes it takes, 0 for what has no fixed size. */
static size_t add_number(enum gguf_type type, const uint8_t *p, struct buf *out, int *rc,
                         struct err *e)
{
    float f;
    double d;
    uint64_t bits;
    switch (type) {
    case GGUF_U8:
        *rc = buf_addf(out, e, "%u", p[0]);
        return 1;
    case GGUF_I8:
        *rc = buf_addf(out, e, "%d", (int8_t)p[0]);
        return 1;
    case GGUF_BOOL:
        *rc = buf_adds(out, p[0] ? "true" : "false", e);
        return 1;
    case GGUF_U16:
        *rc = buf_addf(out, e, "%u", le16_get(p));
        return 2;
    case GGUF_I16:
        *rc = buf_addf(out, e, "%d", (int16_t)le16_get(p));
        return 2;
    case GGUF_U32:
        *rc = buf_addf(out, e, "%" PRIu32, le32_get(p));
        return 4;
    case GGUF_I32:
        *rc = buf_addf(out, e, "%" PRId32, (int32_t)le32_get(p));
        return 4;
    case GGUF_F32:
        bits = le32_get(p);
        memcpy(&f, &(uint32_t){(uint32_t)bits}, sizeof(f));
        *rc = buf_addf(out, e, "%g", (double)f);
        return 4;
    case GGUF_U64:
        *rc = buf_addf(out, e, "%" PRIu64, le64_get(p));
        return 8;
    case GGUF_I64:
        *rc = buf_addf(out, e, "%" PRId64, (int64_t)le64_get(p));
        return 8;
    case GGUF_F64:
        bits = le64_get(p);
        memcpy(&d, &bits, sizeof(d));
        *rc = buf_addf(out, e, "%g", d);
        return 8;
    default:
        return 0;
    }
}

static int add_value(const struct gguf_kv *kv, struct buf *out, struct err *e)
{
    bool array = kv->type == GGUF_ARRAY;
    enum gguf_type type = array ? kv->item_type : kv->type;
    uint64_t n = array && kv->count > SHOWN_ITEMS ? SHOWN_ITEMS : kv->count;
    const uint8_t *p = kv->data;
    int rc = array ? buf_adds(out, "[", e) : 0;
    for (uint64_t i = 0; !rc && i < n; i++) {
        if (i)
            rc = buf_adds(out, ", ", e);
        if (rc)
            break;
        if (type == GGUF_STRING)
            rc = add_text(gguf_next_string(&p), out, e);
        else
            p += add_number(type, p, out, &rc, e);
    }
    return rc || !array ? rc : buf_adds(out, n < kv->count ? ", ...]" : "]", e);
}

static int print_metadata(const struct gguf *g, struct buf *out, struct err *e)
{
    int rc = buf_addf(out, e, "\nmetadata (%zu)\n", g->n_kv);
    for (size_t i = 0; !rc && i < g->n_kv; i++) {
        const struct gguf_kv *kv = &g->kv[i];
        char type[48];
        if (kv->type == GGUF_ARRAY)
            snprintf(type, sizeof(type), "%s[%" PRIu64 "]", type_names[kv->item_type],
                     kv->count);
        else
            snprintf(type, sizeof(type), "%s", type_names[kv->type]);
        rc = buf_addf(out, e, "  %-44.*s %-14s ", (int)kv->key.len, kv->key.s, type);
        if (!rc)
            rc = add_value(kv, out, e);
        if (!rc)
            rc = buf_addc(out, '\n', e);
    }
    return rc;
}

/* ---- tensors ---- */

static int print_tensors(const struct gguf *g, struct buf *out, struct err *e)
{
    uint64_t values = 0, bytes = 0;
    int rc = buf_addf(out, e, "\ntensors (%zu)\n", g->n_tensors);
    for (size_t i = 0; !rc && i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        char shape[96], type[24];
        size_t n = 0;
        uint64_t of_this = 1;
        for (int d = 0; d < t->n_dims; d++) {
            n += (size_t)snprintf(shape + n, sizeof(shape) - n, "%s%" PRId64, d ? " x " : "",
                                  t->dims[d]);
            of_this *= (uint64_t)t->dims[d];
        }
        if (t->type >= 0)
            snprintf(type, sizeof(type), "%s", kern_types[t->type].name);
        else
            snprintf(type, sizeof(type), "type %d (not read)", t->gguf_type_id);
        rc = buf_addf(out, e, "  %-40s %-8s %-20s %12" PRIu64 "\n", t->name, type, shape,
                      t->bytes);
        values += of_this;
        bytes += t->bytes;
    }
    return rc ? rc
              : buf_addf(out, e, "  %" PRIu64 " values, %" PRIu64 " bytes\n", values, bytes);
}

/* ---- the model ---- */

static int print_template(const struct model *m, struct buf *out, struct err *e)
{
    char automatic[] = "auto";
    struct prompt_config c = {.template = automatic};
    struct chat *chat = NULL;
    struct err why = {0};
    if (chat_open(&chat, model_vocab(m), model_gguf(m), &c, ".", &why))
        return buf_addf(out, e, "template not usable: %s\n", why.msg);
    int rc = buf_addf(out, e, "template %s\n", chat_family(chat));
    for (const char *const *note = chat_notes(chat); !rc && *note; note++)
        rc = buf_addf(out, e, "         %s\n", *note);
    chat_free(chat);
    return rc;
}

static int print_model(const struct model *m, struct buf *out, struct err *e)
{
    const struct hparams *h = model_hparams(m);
    const struct vocab *v = model_vocab(m);
    int local = 0;
    for (int i = 0; i < h->n_layer; i++)
        local += h->local[i];
    int rc = buf_addf(out, e,
                      "model    %s: %s\n"
                      "shape    %d layers, %d wide, feed forward %d, %d heads (%d for keys and "
                      "values) of %d\n"
                      "context  trained for %d tokens; RoPE base %g\n",
                      h->name, arch_name(h->arch), h->n_layer, h->n_embd, h->n_ff, h->n_head,
                      h->n_kv_head, h->head_dim, h->context_train, h->rope_base);
    if (!rc && h->window)
        rc = buf_addf(out, e, "window   %d tokens in %d of the layers\n", h->window, local);
    if (!rc)
        rc = buf_addf(out, e, "vocab    %s, %d tokens, begin %d, end %d\n", vocab_kind(v),
                      vocab_size(v), (int)vocab_bos(v), (int)vocab_eos(v));
    return rc ? rc : print_template(m, out, e);
}

/* The memory of a job with this model and every key at its default, but for the two options. */
static int print_memory(const struct cmd_line *l, const struct model *m, struct buf *out,
                        struct err *e)
{
    struct job j = {0};
    struct machine k;
    struct plan p;
    const struct opt *context = opt_find(model_opts, n_model_opts, "context");
    const struct opt *batch = opt_find(decode_opts, n_decode_opts, "batch");
    int rc = job_defaults(&j, e);
    if (!rc && cmd_value(l, "--context", 0) &&
        opt_set(context, &j.model, cmd_value(l, "--context", 0), ".", e))
        rc = err_wrap(e, "--context");
    if (!rc && cmd_value(l, "--batch", 0) &&
        opt_set(batch, &j.decode, cmd_value(l, "--batch", 0), ".", e))
        rc = err_wrap(e, "--batch");
    machine_read(&k, "");
    if (!rc)
        rc = buf_adds(out, "\nmemory\n", e);
    if (!rc)
        rc = plan_make(&p, &j, m, &k, e);
    if (!rc)
        rc = plan_print(&p, out, e);
    job_release(&j);
    return rc;
}

int cmd_inspect(const struct cmd_line *l)
{
    struct err e = {0};
    struct file_map map = {0};
    struct gguf g = {0};
    struct model *m = NULL;
    struct buf out;
    buf_init(&out, CMD_TEXT);
    char *path = mem_strdup(l->args[0]);
    struct model_config c = {.kind = MODEL_GGUF, .file = path};
    int rc = file_map_open(&map, path, &e);
    if (!rc && gguf_parse(&g, map.data, map.len, &e))
        rc = err_wrap(&e, "%s", path);
    bool wrong_file = rc != 0; /* named on the command line: its fault */
    if (!rc)
        rc = buf_addf(&out, &e, "file     %s: GGUF version %d, %zu bytes\n", path, g.version,
                      map.len);
    /* A model that cannot run can still be looked at: the reason comes after the tables. */
    struct err cannot = {0};
    if (!rc && !model_open(&m, &c, &cannot))
        rc = print_model(m, &out, &e);
    if (!rc && m)
        rc = print_memory(l, m, &out, &e);
    if (!rc)
        rc = print_metadata(&g, &out, &e);
    if (!rc)
        rc = print_tensors(&g, &out, &e);
    model_free(m);
    gguf_release(&g);
    file_map_close(&map);
    free(path);
    int status = cmd_print(&out, rc, &e);
    if (cannot.code && !rc)
        status = cmd_fail(&cannot);
    return wrong_file || (cannot.code && !rc) ? EXIT_USAGE : status;
}

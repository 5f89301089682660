#include "stages/model/hparams.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DIM = 1 << 20, MAX_HEAD_DIM = 512, MAX_VOCAB = 1 << 24, GEMMA3_PATTERN = 6 };

static const struct arch_info {
    const char *name;
    bool neox, qk_norm, post_norms, gelu;
} archs[] = {
    [ARCH_LLAMA] = {"llama", .neox = false},
    [ARCH_QWEN2] = {"qwen2", .neox = true},
    [ARCH_QWEN3] = {"qwen3", .neox = true, .qk_norm = true},
    [ARCH_GEMMA3] = {"gemma3", .neox = true, .qk_norm = true, .post_norms = true, .gelu = true},
    [ARCH_NULL] = {"null", .neox = false},
};

const char *arch_name(enum arch a)
{
    return archs[a].name;
}

/* Reads keys of the architecture's own namespace ("llama.block_count"). */
struct keys {
    const struct gguf *g;
    const char *arch;
    char key[128];
};

static const char *key_of(struct keys *k, const char *name)
{
    snprintf(k->key, sizeof(k->key), "%s.%s", k->arch, name);
    return k->key;
}

/* A whole number in min..max; the default stands when the key is absent, unless it is negative. */
static int get_int(struct keys *k, const char *name, int def, int min, int max, int *out,
                   struct err *e)
{
    uint64_t v;
    int rc = gguf_u64(k->g, key_of(k, name), UINT32_MAX, &v, e);
    if (rc < 0)
        return rc;
    if (rc > 0 && def < 0)
        return err_set(e, REACH_JOB, ERR_FORMAT, "the key %s is missing", k->key);
    if (rc > 0)
        v = (uint64_t)def;
    if (v < (uint64_t)min || v > (uint64_t)max)
        return err_set(e, REACH_JOB, ERR_FORMAT, "%s is %" PRIu64 ", expected %d to %d", k->key,
                       v, min, max);
    *out = (int)v;
    return 0;
}

/* As get_int, for a real number; a NaN default makes the key required. */
static int get_real(struct keys *k, const char *name, double def, double min, double max,
                    double *out, struct err *e)
{
    double v = def;
    int rc = gguf_f64(k->g, key_of(k, name), &v, e);
    if (rc < 0)
        return rc;
    if (rc > 0 && isnan(def))
        return err_set(e, REACH_JOB, ERR_FORMAT, "the key %s is missing", k->key);
    if (!(v >= min && v <= max))
        return err_set(e, REACH_JOB, ERR_FORMAT, "%s is %g, expected %g to %g", k->key, v, min,
                       max);
    *out = v;
    return 0;
}

static bool equals(struct gguf_string s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.s, text, s.len) == 0;
}

static int read_arch(struct hparams *h, const struct gguf *g, struct err *e)
{
    struct gguf_string s;
    int rc = gguf_str(g, "general.architecture", &s, e);
    if (rc > 0)
        return err_set(e, REACH_JOB, ERR_FORMAT, "the key general.architecture is missing");
    if (rc < 0)
        return rc;
    for (int a = 0; a < ARCH_NULL; a++) {
        if (equals(s, archs[a].name)) {
            h->arch = (enum arch)a;
            return 0;
        }
    }
    return err_set(
        e, REACH_JOB, ERR_UNSUPPORTED,
        "models of architecture \"%.*s\" are not read; known: llama, qwen2, qwen3, gemma3",
        s.len < 64 ? (int)s.len : 64, s.s);
}

static int read_name(struct hparams *h, const struct gguf *g, struct err *e)
{
    struct gguf_string s;
    int rc = gguf_str(g, "general.name", &s, e);
    if (rc < 0)
        return rc;
    if (rc > 0 || s.len == 0)
        s = (struct gguf_string){archs[h->arch].name, strlen(archs[h->arch].name)};
    size_t n = s.len < sizeof(h->name) ? s.len : sizeof(h->name) - 1;
    while (n < s.len && n > 0 && ((unsigned char)s.s[n] & 0xc0) == 0x80)
        n--; /* cut between code points */
    memcpy(h->name, s.s, n);
    h->name[n] = '\0';
    return 0;
}

/* What the architecture may have in general but the forward pass has not: computing on without it would
 * give wrong answers in silence. */
static int refuse_unknown_parts(struct keys *k, struct err *e)
{
    static const struct {
        const char *name;
        double harmless;
    } parts[] = {{"final_logit_softcapping", 0},
                 {"attn_logit_softcapping", 0},
                 {"rope.scaling.attn_factor", 1},
                 {"attention.scale", 0},
                 {"logit_scale", 0},
                 {"embedding_scale", 0},
                 {"residual_scale", 0}};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        double v;
        int rc = gguf_f64(k->g, key_of(k, parts[i].name), &v, e);
        if (rc < 0)
            return rc;
        if (rc == 0 && v != parts[i].harmless)
            return err_set(e, REACH_JOB, ERR_UNSUPPORTED, "%s = %g is not supported", k->key,
                           v);
    }
    uint64_t experts = 0;
    int rc = gguf_u64(k->g, key_of(k, "expert_count"), UINT32_MAX, &experts, e);
    if (rc < 0)
        return rc;
    if (experts > 0)
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED, "%s = %" PRIu64 " is not supported",
                       k->key, experts);
    return 0;
}

static int read_shape(struct hparams *h, struct keys *k, struct err *e)
{
    int rc = get_int(k, "block_count", -1, 1, MAX_LAYERS, &h->n_layer, e);
    rc = rc ? rc : get_int(k, "embedding_length", -1, 32, MAX_DIM, &h->n_embd, e);
    rc = rc ? rc : get_int(k, "feed_forward_length", -1, 32, MAX_DIM, &h->n_ff, e);
    rc = rc ? rc : get_int(k, "attention.head_count", -1, 1, MAX_DIM, &h->n_head, e);
    rc = rc ? rc
            : get_int(k, "attention.head_count_kv", h->n_head, 1, h->n_head, &h->n_kv_head, e);
    rc = rc ? rc : get_int(k, "context_length", -1, 1, 1 << 30, &h->context_train, e);
    if (rc)
        return rc;
    int value_length;
    rc = get_int(k, "attention.key_length", h->n_embd / h->n_head, 2, MAX_HEAD_DIM,
                 &h->head_dim, e);
    rc = rc ? rc
            : get_int(k, "attention.value_length", h->head_dim, 2, MAX_HEAD_DIM, &value_length,
                      e);
    if (rc)
        return rc;
    if (value_length != h->head_dim)
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                       "keys of %d and values of %d channels are not supported", h->head_dim,
                       value_length);
    if (h->n_head % h->n_kv_head != 0)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "%d heads do not share %d key/value heads evenly", h->n_head,
                       h->n_kv_head);
    if (h->head_dim % 2 != 0 || (int64_t)h->n_head * h->head_dim > MAX_DIM)
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                       "%d heads of %d channels are not supported", h->n_head, h->head_dim);
    /* Inputs of products are quantised in blocks of 32. */
    if (h->n_embd % 32 != 0 || h->n_ff % 32 != 0 || h->n_head * h->head_dim % 32 != 0)
        return err_set(
            e, REACH_JOB, ERR_UNSUPPORTED,
            "widths of %d, %d and %d are not supported: each must be a multiple of 32",
            h->n_embd, h->n_ff, h->n_head * h->head_dim);
    double eps;
    rc = get_real(k, "attention.layer_norm_rms_epsilon", NAN, 0, 0.1, &eps, e);
    h->rms_eps = (float)eps;
    return rc;
}

static int read_rope(struct hparams *h, struct keys *k, struct err *e)
{
    int rc = get_int(k, "rope.dimension_count", h->head_dim, 2, h->head_dim, &h->rot, e);
    rc = rc ? rc : get_real(k, "rope.freq_base", 10000, 1, 1e12, &h->rope_base, e);
    if (rc)
        return rc;
    if (h->rot % 2 != 0)
        return err_set(e, REACH_JOB, ERR_FORMAT, "%s.rope.dimension_count is %d, an odd number",
                       k->arch, h->rot);
    struct gguf_string type = {"linear", 6};
    rc = gguf_str(k->g, key_of(k, "rope.scaling.type"), &type, e);
    if (rc < 0)
        return rc;
    h->rope_linear = 1;
    if (equals(type, "none"))
        return 0;
    if (!equals(type, "linear"))
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                       "RoPE scaling \"%.*s\" is not supported; known: none, linear, and "
                       "frequency factors in "
                       "the tensor rope_freqs.weight",
                       type.len < 32 ? (int)type.len : 32, type.s);
    double old, factor;
    rc = get_real(k, "rope.scale_linear", 1, 0, 1e6, &old, e);
    rc = rc ? rc : get_real(k, "rope.scaling.factor", old, 0, 1e6, &factor, e);
    if (!rc)
        h->rope_linear = factor == 0 ? 1 : factor;
    return rc;
}

/* Gemma 3: windows on all layers but every sixth, unless a key says which (a number, or a flag a layer). */
static int read_gemma3_layers(struct hparams *h, struct keys *k, struct err *e)
{
    int rc = get_int(k, "attention.sliding_window", 0, 0, 1 << 30, &h->window, e);
    rc = rc ? rc : get_real(k, "rope.freq_base_swa", 10000, 1, 1e12, &h->rope_base_local, e);
    if (rc || h->window == 0)
        return rc;
    const struct gguf_kv *kv = gguf_find(k->g, key_of(k, "attention.sliding_window_pattern"));
    if (kv && kv->type == GGUF_ARRAY) {
        if (kv->item_type != GGUF_BOOL || kv->count != (uint64_t)h->n_layer)
            return err_set(e, REACH_JOB, ERR_FORMAT, "%s is not a list of %d flags", k->key,
                           h->n_layer);
        for (int i = 0; i < h->n_layer; i++)
            h->local[i] = kv->data[i] != 0;
        return 0;
    }
    int pattern;
    rc = get_int(k, "attention.sliding_window_pattern", GEMMA3_PATTERN, 0, MAX_LAYERS, &pattern,
                 e);
    for (int i = 0; !rc && i < h->n_layer; i++)
        h->local[i] = pattern == 0 || i % pattern < pattern - 1;
    return rc;
}

static int read_layers(struct hparams *h, struct keys *k, struct err *e)
{
    h->embed_scale = 1;
    h->attn_scale = 1.0f / sqrtf((float)h->head_dim);
    if (h->arch == ARCH_GEMMA3) {
        h->embed_scale = sqrtf((float)h->n_embd);
        /* The largest of the family scales by the width of a head as if heads filled the embedding. */
        if (h->n_layer == 62)
            h->attn_scale = 1.0f / sqrtf((float)(h->n_embd / h->n_head));
        return read_gemma3_layers(h, k, e);
    }
    if (h->arch != ARCH_LLAMA)
        return 0;
    int rc = get_int(k, "attention.sliding_window", 0, 0, 1 << 30, &h->window, e);
    if (!rc && h->window > 0) /* Mistral: every layer has the window */
        memset(h->local, 1, (size_t)h->n_layer);
    return rc;
}

int hparams_read(struct hparams *h, const struct gguf *g, struct err *e)
{
    *h = (struct hparams){0};
    int rc = read_arch(h, g, e);
    if (rc)
        return rc;
    const struct arch_info *a = &archs[h->arch];
    struct keys k = {.g = g, .arch = a->name};
    h->neox = a->neox;
    h->qk_norm = a->qk_norm;
    h->post_norms = a->post_norms;
    h->gelu = a->gelu;
    h->qkv_bias = h->arch == ARCH_QWEN2 || gguf_tensor(g, "blk.0.attn_q.bias");
    h->tied = !gguf_tensor(g, "output.weight");
    h->rope_llama3 = gguf_tensor(g, "rope_freqs.weight") != NULL;
    rc = read_name(h, g, e);
    rc = rc ? rc : refuse_unknown_parts(&k, e);
    rc = rc ? rc : read_shape(h, &k, e);
    rc = rc ? rc : read_rope(h, &k, e);
    rc = rc ? rc : read_layers(h, &k, e);
    if (rc)
        return rc;
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->count < 1 || tokens->count > MAX_VOCAB)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "tokenizer.ggml.tokens is not a list of 1 to %d tokens", MAX_VOCAB);
    h->n_vocab = (int)tokens->count;
    return 0;
}

static void add_real(struct hash *h, const char *tag, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    hash_field_u64(h, tag, bits);
}

void hparams_digest(const struct hparams *p, uint8_t out[HASH_BYTES])
{
    const struct {
        const char *tag;
        int value;
    } whole[] = {{"vocab", p->n_vocab},
                 {"layers", p->n_layer},
                 {"embd", p->n_embd},
                 {"ff", p->n_ff},
                 {"heads", p->n_head},
                 {"kv heads", p->n_kv_head},
                 {"head", p->head_dim},
                 {"neox", p->neox},
                 {"rot", p->rot},
                 {"tied", p->tied},
                 {"rope factors", p->rope_llama3},
                 {"qk norm", p->qk_norm},
                 {"bias", p->qkv_bias},
                 {"post norms", p->post_norms},
                 {"gelu", p->gelu},
                 {"window", p->window}};
    const struct {
        const char *tag;
        double value;
    } real[] = {{"eps", p->rms_eps},
                {"embd scale", p->embed_scale},
                {"attn scale", p->attn_scale},
                {"rope base", p->rope_base},
                {"rope base local", p->rope_base_local},
                {"rope linear", p->rope_linear}};
    struct hash h;
    hash_init(&h);
    hash_field(&h, "arch", archs[p->arch].name, strlen(archs[p->arch].name));
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        hash_field_u64(&h, whole[i].tag, (uint64_t)whole[i].value);
    for (size_t i = 0; i < ARRAY_LEN(real); i++)
        add_real(&h, real[i].tag, real[i].value);
    hash_field(&h, "local", p->local, sizeof(p->local));
    hash_end(&h, out);
}

/* What a model file must say, and the message when it does not. */
#include "stages/base/buf.h"
#include "stages/base/le.h"
#include "stages/model/hparams.h"
#include "stages/model/weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A GGUF file under construction; tensors hold zeros. */
struct draft {
    struct buf kv, infos;
    uint64_t n_kv, n_tensors, data_bytes;
};

static void add(struct buf *b, const void *p, size_t n)
{
    struct err e = {0};
    assert_int_equal(buf_add(b, p, n, &e), 0);
}

static void add_u32(struct buf *b, uint32_t v)
{
    uint8_t x[4];
    le32_put(x, v);
    add(b, x, 4);
}

static void add_u64(struct buf *b, uint64_t v)
{
    uint8_t x[8];
    le64_put(x, v);
    add(b, x, 8);
}

static void add_str(struct buf *b, const char *s)
{
    add_u64(b, strlen(s));
    add(b, s, strlen(s));
}

static void key(struct draft *d, const char *name, enum gguf_type type)
{
    add_str(&d->kv, name);
    add_u32(&d->kv, type);
    d->n_kv++;
}

static void u32(struct draft *d, const char *name, uint32_t v)
{
    key(d, name, GGUF_U32);
    add_u32(&d->kv, v);
}

static void f32(struct draft *d, const char *name, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    key(d, name, GGUF_F32);
    add_u32(&d->kv, bits);
}

static void str(struct draft *d, const char *name, const char *v)
{
    key(d, name, GGUF_STRING);
    add_str(&d->kv, v);
}

static void flags(struct draft *d, const char *name, const uint8_t *v, int n)
{
    key(d, name, GGUF_ARRAY);
    add_u32(&d->kv, GGUF_BOOL);
    add_u64(&d->kv, (uint64_t)n);
    add(&d->kv, v, (size_t)n);
}

static void tokens(struct draft *d, int n)
{
    key(d, "tokenizer.ggml.tokens", GGUF_ARRAY);
    add_u32(&d->kv, GGUF_STRING);
    add_u64(&d->kv, (uint64_t)n);
    for (int i = 0; i < n; i++)
        add_str(&d->kv, "x");
}

static void tensor_of(struct draft *d, const char *name, int64_t n, int64_t rows,
                      enum kern_type type)
{
    add_str(&d->infos, name);
    add_u32(&d->infos, rows > 1 ? 2 : 1);
    add_u64(&d->infos, (uint64_t)n);
    if (rows > 1)
        add_u64(&d->infos, (uint64_t)rows);
    add_u32(&d->infos, (uint32_t)kern_types[type].gguf_id);
    add_u64(&d->infos, d->data_bytes);
    d->data_bytes += (kern_row_bytes(type, (size_t)n) * (size_t)rows + 31) & ~(uint64_t)31;
    d->n_tensors++;
}

static void draft_begin(struct draft *d)
{
    *d = (struct draft){.n_kv = 0};
    buf_init(&d->kv, 1 << 20);
    buf_init(&d->infos, 1 << 20);
}

/* The bytes of the file; the draft is used up. */
static struct buf finished(struct draft *d)
{
    struct buf b;
    buf_init(&b, 1 << 22);
    add(&b, "GGUF", 4);
    add_u32(&b, 3);
    add_u64(&b, d->n_tensors);
    add_u64(&b, d->n_kv);
    add(&b, d->kv.data, d->kv.len);
    if (d->infos.len)
        add(&b, d->infos.data, d->infos.len);
    static const char zeros[1024];
    add(&b, zeros, (32 - b.len % 32) % 32);
    for (uint64_t left = d->data_bytes, n; left > 0; left -= n) {
        n = left < sizeof(zeros) ? left : sizeof(zeros);
        add(&b, zeros, n);
    }
    buf_release(&d->kv);
    buf_release(&d->infos);
    return b;
}

/* Keys of a small model; skip: one key to leave out. */
static void keys_of(struct draft *d, const char *arch, const char *skip)
{
    static const struct {
        const char *name;
        uint32_t v;
    } numbers[] = {{"block_count", 2},
                   {"embedding_length", 64},
                   {"feed_forward_length", 96},
                   {"attention.head_count", 4},
                   {"attention.head_count_kv", 2},
                   {"context_length", 512}};
    char name[100];
    str(d, "general.architecture", arch);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        snprintf(name, sizeof(name), "%s.%s", arch, numbers[i].name);
        if (!skip || strcmp(skip, numbers[i].name) != 0)
            u32(d, name, numbers[i].v);
    }
    snprintf(name, sizeof(name), "%s.attention.layer_norm_rms_epsilon", arch);
    if (!skip || strcmp(skip, "attention.layer_norm_rms_epsilon") != 0)
        f32(d, name, 1e-5f);
    tokens(d, 32);
}

static int read_draft(struct draft *d, struct hparams *h, struct err *e)
{
    struct buf b = finished(d);
    struct gguf g;
    *e = (struct err){0};
    if (gguf_parse(&g, (const uint8_t *)b.data, b.len, e))
        fail_msg("%s", e->msg);
    int rc = hparams_read(h, &g, e);
    gguf_release(&g);
    buf_release(&b);
    return rc;
}

static void refused(struct draft *d, int code, const char *part)
{
    struct hparams h;
    struct err e;
    int rc = read_draft(d, &h, &e);
    if (rc != -code || !strstr(e.msg, part))
        fail_msg("got %d \"%s\", expected %d with \"%s\"", rc, e.msg, -code, part);
    assert_int_equal(e.reach, REACH_JOB);
}

static void a_plain_llama_gets_the_usual_defaults(void **state)
{
    (void)state;
    struct draft d;
    struct hparams h;
    struct err e;
    draft_begin(&d);
    keys_of(&d, "llama", NULL);
    assert_int_equal(read_draft(&d, &h, &e), 0);
    assert_int_equal(h.arch, ARCH_LLAMA);
    assert_string_equal(h.name, "llama");
    assert_int_equal(h.n_vocab, 32);
    assert_int_equal(h.head_dim, 16);
    assert_int_equal(h.rot, 16);
    assert_float_equal(h.rope_base, 10000, 0);
    assert_float_equal(h.rope_linear, 1, 0);
    assert_float_equal(h.attn_scale, 0.25, 0);
    assert_float_equal(h.embed_scale, 1, 0);
    assert_false(h.neox || h.qk_norm || h.qkv_bias || h.post_norms || h.gelu);
    assert_int_equal(h.window, 0);
    assert_int_equal(h.local[0], 0);
}

static void architectures_differ_in_what_a_layer_has(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool neox, qk_norm, bias, post, gelu;
    } expected[] = {{"qwen2", true, false, true, false, false},
                    {"qwen3", true, true, false, false, false},
                    {"gemma3", true, true, false, true, true}};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        struct draft d;
        struct hparams h;
        struct err e;
        draft_begin(&d);
        keys_of(&d, expected[i].name, NULL);
        assert_int_equal(read_draft(&d, &h, &e), 0);
        assert_string_equal(arch_name(h.arch), expected[i].name);
        assert_int_equal(h.neox, expected[i].neox);
        assert_int_equal(h.qk_norm, expected[i].qk_norm);
        assert_int_equal(h.qkv_bias, expected[i].bias);
        assert_int_equal(h.post_norms, expected[i].post);
        assert_int_equal(h.gelu, expected[i].gelu);
    }
}

static void gemma_has_windows_on_all_layers_but_every_sixth(void **state)
{
    (void)state;
    struct draft d;
    struct hparams h;
    struct err e;
    draft_begin(&d);
    keys_of(&d, "gemma3", "block_count");
    u32(&d, "gemma3.block_count", 12);
    u32(&d, "gemma3.attention.sliding_window", 512);
    f32(&d, "gemma3.rope.freq_base", 1e6f);
    assert_int_equal(read_draft(&d, &h, &e), 0);
    assert_int_equal(h.window, 512);
    for (int i = 0; i < 12; i++)
        assert_int_equal(h.local[i], i % 6 != 5);
    assert_float_equal(h.rope_base, 1e6, 0);
    assert_float_equal(h.rope_base_local, 10000, 0);
    assert_float_equal(h.embed_scale, 8, 0);

    draft_begin(&d);
    keys_of(&d, "gemma3", NULL);
    u32(&d, "gemma3.attention.sliding_window", 512);
    flags(&d, "gemma3.attention.sliding_window_pattern", (const uint8_t[]){0, 1}, 2);
    assert_int_equal(read_draft(&d, &h, &e), 0);
    assert_int_equal(h.local[0], 0);
    assert_int_equal(h.local[1], 1);

    draft_begin(&d);
    keys_of(&d, "gemma3", NULL);
    u32(&d, "gemma3.attention.sliding_window", 512);
    flags(&d, "gemma3.attention.sliding_window_pattern", (const uint8_t[]){0, 1, 1}, 3);
    refused(&d, ERR_FORMAT, "sliding_window_pattern is not a list of 2 flags");
}

static void a_llama_with_a_window_has_it_on_every_layer(void **state)
{
    (void)state;
    struct draft d;
    struct hparams h;
    struct err e;
    draft_begin(&d);
    keys_of(&d, "llama", NULL);
    u32(&d, "llama.attention.sliding_window", 4096);
    assert_int_equal(read_draft(&d, &h, &e), 0);
    assert_int_equal(h.window, 4096);
    assert_int_equal(h.local[0] + h.local[1], 2);
    assert_float_equal(h.rope_base_local, 0, 0);
}

static void every_key_that_is_needed_is_named_when_missing(void **state)
{
    (void)state;
    static const char *const names[] = {
        "block_count",          "embedding_length", "feed_forward_length",
        "attention.head_count", "context_length",   "attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char expected[120];
        struct draft d;
        draft_begin(&d);
        keys_of(&d, "qwen3", names[i]);
        snprintf(expected, sizeof(expected), "the key qwen3.%s is missing", names[i]);
        refused(&d, ERR_FORMAT, expected);
    }
}

static void numbers_that_make_no_model_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t v;
        int code;
        const char *part;
    } cases[] = {
        {"block_count", 0, ERR_FORMAT, "block_count is 0, expected 1 to 512"},
        {"block_count", 513, ERR_FORMAT, "block_count is 513"},
        {"embedding_length", 72, ERR_UNSUPPORTED, "widths of 72, 96 and 72"},
        {"embedding_length", 0, ERR_FORMAT, "embedding_length is 0"},
        {"feed_forward_length", 100, ERR_UNSUPPORTED, "multiple of 32"},
        {"feed_forward_length", 4000000000u, ERR_FORMAT, "feed_forward_length is 4000000000"},
        {"attention.head_count", 0, ERR_FORMAT, "head_count is 0"},
        {"attention.head_count_kv", 3, ERR_FORMAT, "do not share 3"},
        {"attention.head_count_kv", 5, ERR_FORMAT, "head_count_kv is 5, expected 1 to 4"},
        {"attention.head_count", 64, ERR_FORMAT, "key_length is 1"},
        {"context_length", 0, ERR_FORMAT, "context_length is 0"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char name[100];
        struct draft d;
        draft_begin(&d);
        keys_of(&d, "llama", cases[i].name);
        snprintf(name, sizeof(name), "llama.%s", cases[i].name);
        u32(&d, name, cases[i].v);
        refused(&d, cases[i].code, cases[i].part);
    }
}

static void odd_heads_and_parts_that_are_not_computed_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t v;
        const char *part;
    } numbers[] = {
        {"llama.attention.key_length", 17, "4 heads of 17"},
        {"llama.attention.value_length", 8, "keys of 16 and values of 8"},
        {"llama.rope.dimension_count", 18, "dimension_count is 18, expected 2 to 16"},
        {"llama.rope.dimension_count", 7, "odd number"},
        {"llama.expert_count", 8, "expert_count = 8 is not supported"},
    };
    struct draft d;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        draft_begin(&d);
        keys_of(&d, "llama", NULL);
        u32(&d, numbers[i].name, numbers[i].v);
        struct hparams h;
        struct err e;
        int rc = read_draft(&d, &h, &e);
        assert_true(rc == -ERR_FORMAT || rc == -ERR_UNSUPPORTED);
        if (!strstr(e.msg, numbers[i].part))
            fail_msg("\"%s\" does not say \"%s\"", e.msg, numbers[i].part);
    }
    draft_begin(&d);
    keys_of(&d, "gemma3", NULL);
    f32(&d, "gemma3.final_logit_softcapping", 30);
    refused(&d, ERR_UNSUPPORTED, "final_logit_softcapping = 30");
    draft_begin(&d);
    keys_of(&d, "llama", NULL);
    f32(&d, "llama.rope.freq_base", NAN);
    refused(&d, ERR_FORMAT, "rope.freq_base is not a finite number");
    draft_begin(&d);
    keys_of(&d, "phi3", NULL);
    refused(&d, ERR_UNSUPPORTED, "\"phi3\" are not read; known: llama, qwen2, qwen3, gemma3");
}

static void rope_scaling_is_linear_or_refused(void **state)
{
    (void)state;
    struct draft d;
    struct hparams h;
    struct err e;
    draft_begin(&d);
    keys_of(&d, "llama", NULL);
    str(&d, "llama.rope.scaling.type", "linear");
    f32(&d, "llama.rope.scaling.factor", 4);
    assert_int_equal(read_draft(&d, &h, &e), 0);
    assert_float_equal(h.rope_linear, 4, 0);
    draft_begin(&d);
    keys_of(&d, "llama", NULL);
    str(&d, "llama.rope.scaling.type", "none");
    f32(&d, "llama.rope.scaling.factor", 4);
    assert_int_equal(read_draft(&d, &h, &e), 0);
    assert_float_equal(h.rope_linear, 1, 0);
    draft_begin(&d);
    keys_of(&d, "llama", NULL);
    str(&d, "llama.rope.scaling.type", "yarn");
    refused(&d, ERR_UNSUPPORTED, "RoPE scaling \"yarn\" is not supported");
}

/* ---- tensors ---- */

/* All tensors of the small llama; change one by its name. */
static void tensors_of(struct draft *d, const char *change, int64_t n, int64_t rows,
                       enum kern_type type)
{
    static const struct {
        const char *name;
        int64_t n, rows;
    } layer[] = {{"attn_norm", 64, 1}, {"attn_q", 64, 64},      {"attn_k", 64, 32},
                 {"attn_v", 64, 32},   {"attn_output", 64, 64}, {"ffn_norm", 64, 1},
                 {"ffn_gate", 64, 96}, {"ffn_up", 64, 96},      {"ffn_down", 96, 64}};
    char name[65];
    struct {
        int64_t n, rows;
    } global[2] = {{64, 32}, {64, 1}};
    const char *const global_names[2] = {"token_embd.weight", "output_norm.weight"};
    for (int i = 0; i < 2 + 2 * (int)ARRAY_LEN(layer); i++) {
        int64_t a, b;
        if (i < 2) {
            snprintf(name, sizeof(name), "%s", global_names[i]);
            a = global[i].n;
            b = global[i].rows;
        } else {
            int l = (i - 2) / (int)ARRAY_LEN(layer), j = (i - 2) % (int)ARRAY_LEN(layer);
            snprintf(name, sizeof(name), "blk.%d.%s.weight", l, layer[j].name);
            a = layer[j].n;
            b = layer[j].rows;
        }
        if (!change || strcmp(change, name) != 0)
            tensor_of(d, name, a, b, b > 1 ? KERN_Q8_0 : KERN_F32);
        else if (n > 0)
            tensor_of(d, name, n, rows, type);
    }
}

static int bind_draft(struct draft *d, struct err *e)
{
    struct buf b = finished(d);
    struct gguf g;
    struct hparams h;
    struct weights w;
    *e = (struct err){0};
    if (gguf_parse(&g, (const uint8_t *)b.data, b.len, e) || hparams_read(&h, &g, e))
        fail_msg("%s", e->msg);
    int rc = weights_bind(&w, &h, &g, e);
    if (!rc)
        rc = weights_load(&w, e);
    weights_release(&w);
    gguf_release(&g);
    buf_release(&b);
    return rc;
}

static void tensors_are_checked_and_named(void **state)
{
    (void)state;
    static const struct {
        const char *change;
        int64_t n, rows;
        enum kern_type type;
        int code;
        const char *part;
    } cases[] = {
        {NULL, 0, 0, 0, 0, ""},
        {"blk.1.ffn_up.weight", 0, 0, 0, ERR_FORMAT,
         "the tensor blk.1.ffn_up.weight is missing"},
        {"token_embd.weight", 0, 0, 0, ERR_FORMAT, "token_embd.weight is missing"},
        {"blk.0.attn_k.weight", 64, 64, KERN_Q8_0, ERR_FORMAT,
         "tensor blk.0.attn_k.weight has shape 64 x 64 x 1 x 1, expected 64 x 32"},
        {"blk.0.attn_norm.weight", 64, 1, KERN_Q8_0, ERR_UNSUPPORTED,
         "blk.0.attn_norm.weight has type Q8_0 (8), which is not read here: expected F32, F16 "
         "or BF16"},
        {"blk.0.attn_norm.weight", 64, 1, KERN_BF16, 0, ""},
        {"output_norm.weight", 96, 1, KERN_F32, ERR_FORMAT, "expected 64 x 1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct draft d;
        struct err e;
        draft_begin(&d);
        keys_of(&d, "llama", NULL);
        tensors_of(&d, cases[i].change, cases[i].n, cases[i].rows, cases[i].type);
        int rc = bind_draft(&d, &e);
        if (rc != -cases[i].code || (rc && !strstr(e.msg, cases[i].part)))
            fail_msg("case %zu: got %d \"%s\"", i, rc, e.msg);
    }
}

static void a_tensor_that_has_no_place_is_refused(void **state)
{
    (void)state;
    struct draft d;
    struct err e;
    draft_begin(&d);
    keys_of(&d, "llama", NULL);
    tensors_of(&d, NULL, 0, 0, 0);
    tensor_of(&d, "blk.0.attn_output.bias", 64, 1, KERN_F32);
    assert_int_equal(bind_draft(&d, &e), -ERR_UNSUPPORTED);
    assert_string_equal(
        e.msg, "tensor blk.0.attn_output.bias is no part of a llama model as it is known here");
}

static void a_type_that_is_not_read_is_named(void **state)
{
    (void)state;
    struct draft d;
    struct err e;
    draft_begin(&d);
    keys_of(&d, "llama", NULL);
    tensors_of(&d, "blk.1.ffn_gate.weight", 0, 0, 0);
    add_str(&d.infos, "blk.1.ffn_gate.weight");
    add_u32(&d.infos, 2);
    add_u64(&d.infos, 64);
    add_u64(&d.infos, 96);
    add_u32(&d.infos, 20);
    add_u64(&d.infos, d.data_bytes);
    d.data_bytes += 64 * 96;
    d.n_tensors++;
    assert_int_equal(bind_draft(&d, &e), -ERR_UNSUPPORTED);
    assert_non_null(strstr(
        e.msg,
        "blk.1.ffn_gate.weight has type IQ4_NL (20), which is not read; readable are F32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_llama_gets_the_usual_defaults),
        cmocka_unit_test(architectures_differ_in_what_a_layer_has),
        cmocka_unit_test(gemma_has_windows_on_all_layers_but_every_sixth),
        cmocka_unit_test(a_llama_with_a_window_has_it_on_every_layer),
        cmocka_unit_test(every_key_that_is_needed_is_named_when_missing),
        cmocka_unit_test(numbers_that_make_no_model_are_refused),
        cmocka_unit_test(odd_heads_and_parts_that_are_not_computed_are_refused),
        cmocka_unit_test(rope_scaling_is_linear_or_refused),
        cmocka_unit_test(tensors_are_checked_and_named),
        cmocka_unit_test(a_tensor_that_has_no_place_is_refused),
        cmocka_unit_test(a_type_that_is_not_read_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

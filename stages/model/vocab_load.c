/* Builds a vocabulary from the tokenizer.ggml.* keys of a GGUF file. Nothing in them is believed: arrays have
 * their type and length, texts are UTF-8 of bounded length and differ from each other, merges and ids name
 * tokens that exist, and every byte has a token, so that any text can be encoded. */
#include "stages/base/hash.h"
#include "stages/base/le.h"
#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/model/vocab_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name
enum { TOKENS_MAX = 1 << 24 };

static int format(struct err *e, const char *what)
{
    return err_set(e, REACH_JOB, ERR_FORMAT, "vocabulary: %s", what);
}

static int no_memory(struct err *e)
{
    return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for the vocabulary");
}

/* An array of one item type, with n items unless n is 0. 0, 1 when absent, or -ERR_FORMAT. */
static int find_array(const struct gguf *g, const char *key, enum gguf_type item, uint64_t n,
                      const struct gguf_kv **out, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 1;
    if (kv->type != GGUF_ARRAY || kv->item_type != item)
        return err_set(e, REACH_JOB, ERR_FORMAT, "vocabulary: %s is not an array of %s", key,
                       item == GGUF_STRING ? "strings"
                       : item == GGUF_F32  ? "floats (f32)"
                                           : "integers (i32)");
    if (n && kv->count != n)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "vocabulary: %s has %" PRIu64 " items for %" PRIu64 " tokens", key,
                       kv->count, n);
    *out = kv;
    return 0;
}

/* Finds out the type and, for byte-level BPE, the pre-tokenizer. */
static int choose_kind(const struct gguf *g, enum vocab_type *type,
                       const struct pretok_info **pre, struct err *e)
{
    struct gguf_string model, name = {"default", 7};
    int rc = gguf_str(g, KEY("model"), &model, e);
    if (rc != 0)
        return rc < 0 ? rc : format(e, "the file has no " KEY("model"));
    if (model.len == 5 && memcmp(model.s, "llama", 5) == 0) {
        *type = VOCAB_SPM;
        return 0;
    }
    if (model.len != 4 || memcmp(model.s, "gpt2", 4) != 0)
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                       "vocabulary: kind \"%.*s\" is not read here; known are gpt2 (byte-level "
                       "BPE) and llama "
                       "(SentencePiece BPE)",
                       (int)(model.len < 40 ? model.len : 40), model.s);
    *type = VOCAB_BPE;
    if (gguf_str(g, KEY("pre"), &name, e) < 0)
        return -ERR_FORMAT;
    *pre = pretok_named(name.s, name.len);
    if (*pre)
        return 0;
    char list[200];
    pretok_list(list, sizeof(list));
    return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                   "vocabulary: pre-tokenizer \"%.*s\" is not read here; known are %s",
                   (int)(name.len < 40 ? name.len : 40), name.s, list);
}

/* Names and their index. */
static int load_names(struct vocab **out, const struct gguf_kv *kv, struct err *e)
{
    const uint8_t *p = kv->data;
    size_t bytes = 0;
    if (kv->count < 1 || kv->count > TOKENS_MAX)
        return err_set(e, REACH_JOB, ERR_LIMIT,
                       "vocabulary: %" PRIu64 " tokens, 1 to %d are allowed", kv->count,
                       TOKENS_MAX);
    for (uint64_t i = 0; i < kv->count; i++) {
        struct gguf_string s = gguf_next_string(&p);
        if (s.len > TOKEN_BYTES_MAX)
            return err_set(e, REACH_JOB, ERR_LIMIT,
                           "vocabulary: token %" PRIu64 " has %zu bytes, at most %d", i, s.len,
                           TOKEN_BYTES_MAX);
        if (utf8_valid_prefix(s.s, s.len) != s.len)
            return err_set(e, REACH_JOB, ERR_FORMAT,
                           "vocabulary: token %" PRIu64 " is not UTF-8", i);
        bytes += s.len;
    }
    if (bytes > UINT32_MAX)
        return format(e, "the texts of the tokens together exceed 4 GiB");
    struct vocab *v = *out = vocab_new((int)kv->count, bytes);
    if (!v)
        return no_memory(e);
    p = kv->data;
    for (int i = 0; i < v->names.n; i++) {
        struct gguf_string s = gguf_next_string(&p);
        memcpy(v->names.data + v->names.at[i], s.s, s.len);
        v->names.at[i + 1] = v->names.at[i] + (uint32_t)s.len;
        /* Files pad with empty texts; those are never found. */
        int32_t same = s.len ? text_index_add(&v->by_name, i) : -1;
        if (same >= 0)
            return err_set(e, REACH_JOB, ERR_FORMAT,
                           "vocabulary: tokens %" PRId32 " and %d have the same text", same, i);
    }
    return 0;
}

static bool name_is(const struct vocab *v, int32_t id, const char *text)
{
    size_t n;
    const char *s = vocab_name(v, id, &n);
    return n == strlen(text) && memcmp(s, text, n) == 0;
}

/* "<0x41>": the byte, or -1. */
static int byte_of_name(const struct vocab *v, int32_t id)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n;
    const char *s = vocab_name(v, id, &n);
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    const char *high = memchr(digits, s[3], 16), *low = memchr(digits, s[4], 16);
    return high && low ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

/* Conversations are made of these: some files mark them as user-defined or normal, so that they would be found in
 * the text of a document. */
static bool steers_turns(const struct vocab *v, int32_t id)
{
    static const char *const exact[] = {"<start_of_turn>", "<end_of_turn>",
                                        "<end_of_utterance>", "<bos>", "<eos>"};
    size_t n;
    const char *s = vocab_name(v, id, &n);
    if (n > 4 && memcmp(s, "<|", 2) == 0 && memcmp(s + n - 2, "|>", 2) == 0)
        return v->types[id] == TOKEN_USER_DEFINED || name_is(v, id, "<|endoftext|>") ||
               name_is(v, id, "<|im_start|>") || name_is(v, id, "<|im_end|>") ||
               name_is(v, id, "<|eot_id|>");
    for (size_t i = 0; i < ARRAY_LEN(exact); i++)
        if (name_is(v, id, exact[i]))
            return true;
    return false;
}

static int load_types(struct vocab *v, const struct gguf_kv *kv, struct err *e)
{
    for (int i = 0; i < v->names.n; i++) {
        int32_t type = kv ? (int32_t)le32_get(kv->data + 4 * (size_t)i) : TOKEN_NORMAL;
        if (type < 0 || type >= TOKEN_TYPE_COUNT)
            return err_set(e, REACH_JOB, ERR_FORMAT,
                           "vocabulary: token %d has the unknown type %" PRId32, i, type);
        v->types[i] = (uint8_t)type;
        if (steers_turns(v, i))
            v->types[i] = TOKEN_CONTROL;
        else if (!kv && v->type == VOCAB_SPM && byte_of_name(v, i) >= 0)
            v->types[i] = TOKEN_BYTE;
    }
    return 0;
}

/* Scores become ranks: their bits, in the order of the numbers, upside down. */
static int load_scores(struct vocab *v, const struct gguf_kv *kv, struct err *e)
{
    for (int i = 0; i < v->names.n; i++) {
        uint32_t bits = le32_get(kv->data + 4 * (size_t)i);
        float score;
        memcpy(&score, &bits, sizeof(score));
        if (isnan(score))
            return err_set(e, REACH_JOB, ERR_FORMAT,
                           "vocabulary: the score of token %d is not a number", i);
        if (score == 0.0f)
            bits = 0; /* both zeros are equal */
        v->ranks[i] = bits >> 31 ? bits : ~(bits | UINT32_C(1) << 31);
    }
    return 0;
}

/* One special id; *id stays as it is when the file has none. */
static int load_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t *id,
                   struct err *e)
{
    uint64_t value;
    int rc = gguf_u64(g, key, (uint64_t)v->names.n - 1, &value, e);
    if (rc == 0)
        *id = (int32_t)value;
    return rc < 0 ? rc : 0;
}

static void add_end(struct vocab *v, int32_t id)
{
    if (id >= 0 && !vocab_is_end(v, id) && v->n_ends < ENDS_MAX)
        v->ends[v->n_ends++] = id;
}

static int load_special_ids(struct vocab *v, const struct gguf *g, bool typed, struct err *e)
{
    static const char *const ends[] = {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<EOT>",
        "[EOT]",
        "<end_of_utterance>",
        "<eos>",
        "</s>",
        /* the literal is cut so that "e" does not read as a hexadecimal digit */
        ("<\xef\xbd\x9c"
         "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
    };
    int32_t eot = -1, eom = -1, unknown = -1;
    if (v->type == VOCAB_SPM &&
        v->names.n > 2) { /* what SentencePiece numbers them unless told otherwise */
        unknown = 0;
        v->bos = 1;
        v->eos = 2;
    }
    if (load_id(v, g, KEY("bos_token_id"), &v->bos, e) != 0 ||
        load_id(v, g, KEY("eos_token_id"), &v->eos, e) != 0 ||
        load_id(v, g, KEY("eot_token_id"), &eot, e) != 0 ||
        load_id(v, g, KEY("eom_token_id"), &eom, e) != 0 ||
        load_id(v, g, KEY("unknown_token_id"), &unknown, e) != 0)
        return -ERR_FORMAT;
    int32_t own[] = {v->bos, v->eos, eot, eom, unknown};
    for (size_t i = 0; i < ARRAY_LEN(own) && !typed; i++)
        if (own[i] >= 0 && v->types[own[i]] == TOKEN_NORMAL)
            v->types[own[i]] = TOKEN_CONTROL;
    add_end(v, v->eos);
    add_end(v, eot);
    add_end(v, eom);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        int32_t id = vocab_find(v, ends[i]);
        if (id >= 0 && v->types[id] == TOKEN_CONTROL)
            add_end(v, id);
    }
    return 0;
}

static int load_switches(struct vocab *v, const struct gguf *g, const struct pretok_info *pre,
                         struct err *e)
{
    v->adds_space = v->type == VOCAB_SPM;
    v->adds_bos = (v->type == VOCAB_SPM || (pre && pre->adds_bos)) && v->bos >= 0;
    bool space = v->adds_space;
    if (gguf_bool(g, KEY("add_bos_token"), &v->adds_bos, e) < 0 ||
        gguf_bool(g, KEY("add_space_prefix"), &space, e) < 0)
        return -ERR_FORMAT;
    v->adds_space = v->adds_space && space;
    if (v->adds_bos && v->bos < 0)
        return format(e, KEY("add_bos_token") " is set, but there is no " KEY("bos_token_id"));
    return 0;
}

/* Into the tree of those that are cut out of the text whole, spelt as the text is when it is searched. */
static bool add_whole(struct vocab *v, int32_t id, bool control)
{
    char text[TOKEN_BYTES_MAX];
    size_t len;
    const char *name = vocab_name(v, id, &len);
    if (v->type == VOCAB_SPM)
        len = spm_unmark(name, len, text);
    else
        memcpy(text, name, len);
    return special_tree_add(&v->special, text, len, id, control);
}

/* What each token stands for, which of them merging can make, and the tree of those that are cut out whole. */
static int build_pieces(struct vocab *v, struct err *e)
{
    for (int i = 0; i < v->names.n; i++) {
        size_t len;
        const char *name = vocab_name(v, i, &len);
        char *piece = v->pieces.data + v->pieces.at[i];
        bool control = vocab_is_special(v, i);
        int n = 0, byte;
        bool merges = false;
        if (v->types[i] == TOKEN_BYTE && v->type == VOCAB_SPM) {
            if ((byte = byte_of_name(v, i)) < 0)
                return err_set(e, REACH_JOB, ERR_FORMAT,
                               "vocabulary: byte token %d is not spelt <0x00> to <0xFF>", i);
            piece[n++] = (char)byte;
            v->byte_ids[byte] = i;
        } else if (!control && vocab_is_mergeable(v, i)) {
            n = v->type == VOCAB_BPE ? bpe_piece(name, len, piece)
                                     : spm_piece(name, len, piece);
            merges = n > 0;
        }
        if (!control && n <= 0) { /* stands for its own name */
            memcpy(piece, name, len);
            n = (int)len;
        }
        v->pieces.at[i + 1] = v->pieces.at[i] + (uint32_t)n;
        if (merges) {
            text_index_add(&v->by_piece, i);
            v->longest = (size_t)n > v->longest ? (size_t)n : v->longest;
        }
        for (int j = 1; merges && j < n; j++)
            if (piece[j] == ' ' && piece[j - 1] != ' ')
                v->joins[(unsigned char)piece[j - 1]] = true;
        if (len > 0 && (control || v->types[i] == TOKEN_USER_DEFINED) &&
            !add_whole(v, i, control))
            return no_memory(e);
    }
    return 0;
}

/* Some vocabularies of byte-level BPE lack a few control characters and bytes that are rare in UTF-8 (SmolLM2
 * lacks 21); those bytes are left out of the tokens, as everywhere else. Without the printable ones the file is
 * no vocabulary. */
static int check_bytes(struct vocab *v, struct err *e)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[4];
        if (v->type == VOCAB_BPE)
            v->byte_ids[b] = text_index_find(&v->by_name, name, (size_t)bpe_byte_name(b, name));
        bool needed = v->type == VOCAB_SPM || (b >= ' ' && b <= '~') || b == '\n';
        if (v->byte_ids[b] < 0 && needed)
            return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                           "vocabulary: byte 0x%02x has no token", b);
    }
    return 0;
}

/* The token whose name is s, or -1 with e set. */
static int32_t merge_part(const struct vocab *v, const char *s, size_t len, uint64_t i,
                          struct err *e)
{
    int32_t id = text_index_find(&v->by_name, s, len);
    if (id < 0)
        err_set(e, REACH_JOB, ERR_FORMAT,
                "vocabulary: merge %" PRIu64 " names \"%.*s\", which is no token", i,
                (int)(len < 80 ? len : 80), s);
    return id;
}

static int load_merges(struct vocab *v, const struct gguf_kv *kv, struct err *e)
{
    const uint8_t *p = kv->data;
    if (kv->count > TOKENS_MAX)
        return format(e, "too many merges");
    if (!pair_index_init(&v->merges, (size_t)kv->count))
        return no_memory(e);
    for (uint64_t i = 0; i < kv->count; i++) {
        struct gguf_string s = gguf_next_string(&p);
        char both[2 * TOKEN_BYTES_MAX];
        const char *space = s.len > 2 ? memchr(s.s + 1, ' ', s.len - 1) : NULL;
        if (!space || s.len > sizeof(both))
            return err_set(e, REACH_JOB, ERR_FORMAT,
                           "vocabulary: merge %" PRIu64 " is not \"LEFT RIGHT\"", i);
        size_t l = (size_t)(space - s.s), r = s.len - l - 1;
        memcpy(both, s.s, l);
        memcpy(both + l, space + 1, r);
        int32_t left = merge_part(v, both, l, i, e), right = merge_part(v, both + l, r, i, e);
        int32_t id = merge_part(v, both, l + r, i, e);
        if (left < 0 || right < 0 || id < 0)
            return -ERR_FORMAT;
        if (vocab_is_mergeable(v, id)) /* text never becomes a control token by itself */
            pair_index_add(&v->merges, left, right, (uint32_t)i, id);
    }
    return 0;
}

/* The arrays as the file holds them, and the choices made here. */
static void digest(struct vocab *v, const struct gguf *g)
{
    static const char *const keys[] = {KEY("tokens"), KEY("token_type"), KEY("scores"),
                                       KEY("merges")};
    struct hash h;
    hash_init(&h);
    hash_field(&h, "kind", v->kind, strlen(v->kind));
    hash_field_u64(&h, "space", v->adds_space);
    hash_field_u64(&h, "ignore_merges", v->ignore_merges);
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        const struct gguf_kv *kv = gguf_find(g, keys[k]);
        if (!kv || kv->type != GGUF_ARRAY)
            continue;
        const uint8_t *end = kv->data;
        if (kv->item_type == GGUF_STRING)
            for (uint64_t i = 0; i < kv->count; i++)
                (void)gguf_next_string(&end);
        else
            end += 4 * kv->count; /* both other arrays were checked to be of 4-byte items */
        hash_field(&h, keys[k], kv->data, (size_t)(end - kv->data));
    }
    hash_end(&h, v->digest);
}

static int build(struct vocab **out, const struct gguf *g, struct err *e)
{
    enum vocab_type type;
    const struct pretok_info *pre = NULL;
    const struct gguf_kv *tokens = NULL, *types = NULL, *scores = NULL, *merges = NULL;
    if (choose_kind(g, &type, &pre, e) != 0 ||
        find_array(g, KEY("tokens"), GGUF_STRING, 0, &tokens, e) < 0)
        return -(int)e->code;
    if (!tokens)
        return format(e, "the file has no " KEY("tokens"));
    if (find_array(g, KEY("token_type"), GGUF_I32, tokens->count, &types, e) < 0 ||
        find_array(g, KEY("scores"), GGUF_F32, tokens->count, &scores, e) < 0 ||
        find_array(g, KEY("merges"), GGUF_STRING, 0, &merges, e) < 0)
        return -(int)e->code;
    if (type == VOCAB_SPM && !scores)
        return format(e, "a SentencePiece vocabulary without " KEY("scores"));
    if (type == VOCAB_BPE && !merges)
        return format(e, "a byte-level BPE vocabulary without " KEY("merges"));
    if (load_names(out, tokens, e) != 0)
        return -(int)e->code;
    struct vocab *v = *out;
    v->type = type;
    v->pre = pre ? pre->kind : PRETOK_DEFAULT;
    v->ignore_merges = pre && pre->ignore_merges;
    snprintf(v->kind, sizeof(v->kind), "%s%s", pre ? "bpe " : "spm", pre ? pre->name : "");
    if (load_types(v, types, e) != 0 || (scores && load_scores(v, scores, e) != 0) ||
        load_special_ids(v, g, types != NULL, e) != 0 || load_switches(v, g, pre, e) != 0 ||
        build_pieces(v, e) != 0 || check_bytes(v, e) != 0 ||
        (type == VOCAB_BPE && load_merges(v, merges, e) != 0))
        return -(int)e->code;
    digest(v, g);
    return 0;
}

int vocab_open(struct vocab **out, const struct gguf *g, struct err *e)
{
    struct vocab *v = NULL;
    int rc = build(&v, g, e);
    if (rc != 0)
        vocab_free(v);
    *out = rc == 0 ? v : NULL;
    return rc;
}

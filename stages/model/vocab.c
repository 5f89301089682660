/* A vocabulary seen from outside, and the first step of encoding: special tokens are cut out of the text from
 * left to right, the longest at each place; what is between them goes to the kind's own encoder. */
#include "stages/model/vocab.h"

#include "stages/base/mem.h"
#include "stages/model/vocab_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void token_list_release(struct token_list *t)
{
    free(t->ids);
    *t = (struct token_list){0};
}

int token_list_add(struct token_list *t, int32_t id, struct err *e)
{
    if (t->n == t->cap) {
        if (t->cap == INT32_MAX)
            return err_set(e, REACH_DOC, ERR_LIMIT, "more than %d tokens", INT32_MAX);
        int cap = t->cap < 256 ? 256 : t->cap > INT32_MAX / 2 ? INT32_MAX : t->cap * 2;
        int32_t *ids = mem_resize(t->ids, (size_t)cap * sizeof(*ids));
        if (!ids)
            return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %d tokens", cap);
        t->ids = ids;
        t->cap = cap;
    }
    t->ids[t->n++] = id;
    return 0;
}

struct vocab *vocab_new(int n, size_t bytes)
{
    struct vocab *v = mem_need(sizeof(*v));
    size_t offsets = ((size_t)n + 1) * sizeof(uint32_t);
    v->bos = v->eos = -1;
    special_tree_init(&v->special);
    memset(v->byte_ids, 0xff, sizeof(v->byte_ids));
    v->names = (struct strings){mem_alloc(bytes), mem_alloc(offsets), n};
    v->pieces = (struct strings){mem_alloc(bytes), mem_alloc(offsets), n};
    v->types = mem_alloc((size_t)n);
    v->ranks = mem_alloc((size_t)n * sizeof(*v->ranks));
    if (v->names.data && v->names.at && v->pieces.data && v->pieces.at && v->types &&
        v->ranks && text_index_init(&v->by_name, &v->names, (size_t)n) &&
        text_index_init(&v->by_piece, &v->pieces, (size_t)n))
        return v;
    vocab_free(v);
    return NULL;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    free(v->names.data);
    free(v->names.at);
    free(v->pieces.data);
    free(v->pieces.at);
    free(v->types);
    free(v->ranks);
    text_index_release(&v->by_name);
    text_index_release(&v->by_piece);
    pair_index_release(&v->merges);
    special_tree_release(&v->special);
    free(v);
}

bool vocab_is_mergeable(const struct vocab *v, int32_t id)
{
    return v->types[id] == TOKEN_NORMAL || v->types[id] == TOKEN_UNUSED ||
           v->types[id] == TOKEN_UNDEFINED;
}

int encoder_emit(struct encoder *c, int32_t id)
{
    c->n++;
    return c->out ? token_list_add(c->out, id, c->e) : 0;
}

int encoder_merge(struct encoder *c, const char *text, merge_find_fn *find)
{
    struct merger *m = &c->merger;
    int rc = 0;
    merger_run(m, c->v, text, find);
    for (int32_t i = m->n > 0 ? 0 : -1; i >= 0 && rc == 0; i = m->symbols[i].next) {
        const struct symbol *s = &m->symbols[i];
        if (s->id >= 0)
            rc = encoder_emit(c, s->id);
        for (uint32_t j = 0; s->id < 0 && j < s->len && rc == 0; j++)
            rc = encoder_emit(c, c->v->byte_ids[(unsigned char)text[s->at + j]]);
    }
    return rc;
}

static int encode_plain(struct encoder *c, const char *text, size_t len, bool prefix)
{
    int rc = 0;
    if (len == 0)
        return 0;
    if (len >= INT32_MAX)
        return err_set(c->e, REACH_DOC, ERR_LIMIT,
                       "a text of %zu bytes is too long for the tokenizer", len);
    if (c->v->type == VOCAB_BPE)
        return bpe_encode(c, text, len);
    if (c->v->type == VOCAB_SPM)
        return spm_encode(c, text, len, prefix && c->v->adds_space);
    for (size_t i = 0; i < len && rc == 0; i++)
        rc = encoder_emit(c, (unsigned char)text[i]);
    return rc;
}

static int encode(struct encoder *c, const char *text, size_t len, unsigned flags)
{
    const struct special_tree *tree = &c->v->special;
    bool control = (flags & VOCAB_SPECIAL) != 0;
    bool prefix = (flags & VOCAB_NO_PREFIX) == 0;
    size_t start = 0, at = 0, n = 0;
    while ((control || tree->has_plain) && at < len) {
        int32_t id = special_tree_match(tree, text + at, len - at, control, &n);
        if (id < 0) {
            at++;
            continue;
        }
        int rc = encode_plain(c, text + start, at - start, prefix);
        if (rc == 0)
            rc = encoder_emit(c, id);
        if (rc != 0)
            return rc;
        at += n;
        start = at;
        prefix = (flags & VOCAB_NO_PREFIX) == 0; /* text after a special token starts anew */
    }
    return encode_plain(c, text + start, len - start, prefix);
}

static int run_encoder(struct encoder *c, const char *text, size_t len, unsigned flags)
{
    int rc = 0;
    if (c->v->type == VOCAB_SPM)
        rc = spm_prepare(c, text, len, &text, &len);
    if (rc == 0)
        rc = encode(c, text, len, flags);
    merger_release(&c->merger);
    free(c->copy);
    return rc;
}

int vocab_encode(const struct vocab *v, const char *text, size_t len, unsigned flags,
                 struct token_list *out, struct err *e)
{
    struct encoder c = {.v = v, .out = out, .e = e};
    int before = out->n;
    int rc = run_encoder(&c, text, len, flags);
    if (rc != 0)
        out->n = before;
    return rc;
}

int64_t vocab_count(const struct vocab *v, const char *text, size_t len)
{
    struct err e = {0};
    struct encoder c = {.v = v, .e = &e};
    return run_encoder(&c, text, len, 0) == 0 ? c.n : -1;
}

const char *vocab_piece(const struct vocab *v, int32_t id, size_t *len)
{
    assert(id >= 0 && id < v->pieces.n);
    return strings_get(&v->pieces, id, len);
}

const char *vocab_name(const struct vocab *v, int32_t id, size_t *len)
{
    assert(id >= 0 && id < v->names.n);
    return strings_get(&v->names, id, len);
}

int32_t vocab_find(const struct vocab *v, const char *s)
{
    return text_index_find(&v->by_name, s, strlen(s));
}

int vocab_size(const struct vocab *v)
{
    return v->names.n;
}

int32_t vocab_bos(const struct vocab *v)
{
    return v->bos;
}

int32_t vocab_eos(const struct vocab *v)
{
    return v->eos;
}

bool vocab_adds_bos(const struct vocab *v)
{
    return v->adds_bos;
}

bool vocab_adds_space(const struct vocab *v)
{
    return v->adds_space;
}

bool vocab_is_end(const struct vocab *v, int32_t id)
{
    for (int i = 0; i < v->n_ends; i++)
        if (v->ends[i] == id)
            return true;
    return false;
}

bool vocab_is_special(const struct vocab *v, int32_t id)
{
    return v->types[id] == TOKEN_CONTROL || v->types[id] == TOKEN_UNKNOWN;
}

const char *vocab_kind(const struct vocab *v)
{
    return v->kind;
}

void vocab_digest(const struct vocab *v, uint8_t out[32])
{
    memcpy(out, v->digest, sizeof(v->digest));
}

#include "stages/model/model.h"

#include "stages/base/clock.h"
#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/model/forward.h"
#include "stages/model/identity.h"
#include "stages/model/null_model.h"
#include "stages/model/packed_cache.h"
#include "stages/model/weights.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Part of every KV key: raise one when the same model would give other bytes in a page. */
enum { ARITHMETIC_VERSION = 2, PAGE_LAYOUT_VERSION = 1 };
enum { DEFAULT_CONTEXT = 8192 };

struct model {
    bool null;
    int context;
    struct forward_limits limits; /* of a pass, once loaded */
    struct file_map map;
    struct gguf gguf;
    struct hparams hparams;
    struct vocab *vocab;
    struct weights weights;
    struct kernels kernels;
    struct forward *forward; /* NULL until loaded */

    char *packed_folder; /* NULL: packed weights are not kept */
    uint64_t packed_limit;
    struct packed_map *packed; /* of an earlier run; NULL: none */
    struct packed_writer *writer;

    char *path; /* of the file */
    bool verify;
    struct identity *identity; /* NULL until asked for */
    struct model_digests null_digests;
};

static int open_gguf(struct model *m, const struct model_config *c, struct err *e)
{
    if (!c->file)
        return err_set(e, REACH_JOB, ERR_CONFIG, "model.file is not set");
    m->path = mem_strdup(c->file);
    m->verify = c->verify;
    int rc = file_map_open(&m->map, c->file, e);
    if (rc)
        return rc;
    rc = gguf_parse(&m->gguf, m->map.data, m->map.len, e);
    rc = rc ? rc : hparams_read(&m->hparams, &m->gguf, e);
    rc = rc ? rc : weights_bind(&m->weights, &m->hparams, &m->gguf, e);
    rc = rc ? rc : vocab_open(&m->vocab, &m->gguf, e);
    if (!rc && vocab_size(m->vocab) != m->hparams.n_vocab)
        rc = err_set(e, REACH_JOB, ERR_FORMAT, "a vocabulary of %d tokens for a model of %d",
                     vocab_size(m->vocab), m->hparams.n_vocab);
    return rc ? err_wrap(e, "%s", c->file) : 0;
}

int model_open(struct model **out, const struct model_config *c, struct err *e)
{
    struct model *m = mem_need(sizeof(*m));
    m->null = c->kind == MODEL_NULL;
    if (m->null) {
        null_model_hparams(&m->hparams);
        hash_bytes("null model", 10, m->null_digests.file);
        hash_bytes("null model", 10, m->null_digests.weights);
        m->vocab = vocab_bytes();
    } else {
        int rc = open_gguf(m, c, e);
        if (rc) {
            model_free(m);
            return rc;
        }
    }
    int trained = m->hparams.context_train;
    m->context = c->context                  ? c->context
                 : trained < DEFAULT_CONTEXT ? trained
                                             : DEFAULT_CONTEXT;
    *out = m;
    return 0;
}

static struct forward_limits limits_of(const struct model *m, int max_rows, int max_logits)
{
    return (struct forward_limits){
        .rows = max_rows, .logits = max_logits, .context = m->context};
}

struct kv_shape model_kv_shape(const struct model *m)
{
    const struct hparams *h = &m->hparams;
    struct kv_shape shape = {.n_layer = h->n_layer, .slice_bytes = NULL_MODEL_SLICE_BYTES};
    if (!m->null) {
        shape.n_kv_head = h->n_kv_head;
        shape.head_dim = h->head_dim;
        shape.slice_bytes = kern_page_slice_bytes(h->n_kv_head, h->head_dim);
    }
    shape.slice_bytes = (shape.slice_bytes + 63) & ~(size_t)63;
    return shape;
}

void model_plan(const struct model *m, int max_rows, int max_logits, struct model_sizes *out)
{
    const struct hparams *h = &m->hparams;
    struct kv_shape shape = model_kv_shape(m);
    *out = (struct model_sizes){.n_layer = shape.n_layer, .slice_bytes = shape.slice_bytes};
    if (!m->null) {
        out->weights = m->weights.bytes;
        out->shared = m->packed != NULL;
        out->mapped = forward_mapped_bytes(limits_of(m, max_rows, max_logits));
        if (out->mapped > m->weights.embd->bytes)
            out->mapped = m->weights.embd->bytes;
        out->scratch = forward_bytes(h, limits_of(m, max_rows, max_logits));
    }
    out->page_bytes = (uint64_t)shape.n_layer * shape.slice_bytes;
}

/* Found in the cache, or computed beside the packing. */
static void start_identity(struct model *m)
{
    if (!m->null && !m->identity)
        m->identity = identity_start(m->path, &m->map, &m->gguf, m->verify);
}

static const struct model_digests *digests(struct model *m)
{
    start_identity(m);
    return m->null ? &m->null_digests : identity_wait(m->identity);
}

/* What the weights are, and how they are packed. */
static void packed_key(const struct model *m, const uint8_t weights[HASH_BYTES],
                       uint8_t out[HASH_BYTES])
{
    uint8_t layout[HASH_BYTES];
    struct hash h;
    weights_layout(&m->weights, layout);
    hash_init(&h);
    hash_field(&h, "weights", weights, HASH_BYTES);
    hash_field(&h, "layout", layout, HASH_BYTES);
    hash_end(&h, out);
}

static void find_packed(struct model *m, const uint8_t weights[HASH_BYTES])
{
    uint8_t key[HASH_BYTES];
    const char *why;
    packed_key(m, weights, key);
    m->packed = packed_open(m->packed_folder, key, m->weights.bytes, m->verify, &why);
    if (why)
        log_warn("model", "packed weights of an earlier run are not used: %s", why);
}

/* Only a digest that is remembered is worth asking: to compute one takes longer than to pack. */
void model_use_packed(struct model *m, const char *folder, uint64_t limit)
{
    struct model_digests d;
    if (m->null)
        return;
    assert(!m->packed_folder && !m->forward);
    m->packed_folder = mem_strdup(folder);
    m->packed_limit = limit;
    if (!m->verify && digest_cache_find(m->path, &m->map.id, &d))
        find_packed(m, d.weights);
}

uint64_t model_packed_bytes(const struct model *m)
{
    return m->null ? 0 : m->weights.bytes;
}

static void leave_packed(struct model *m)
{
    uint8_t key[HASH_BYTES];
    const char *why;
    packed_key(m, digests(m)->weights, key);
    m->writer = packed_write(m->packed_folder, m->packed_limit, key, m->weights.packed,
                             m->weights.bytes, &why);
    if (!m->writer)
        log_debug("model", "packed weights are not kept: %s", why);
}

static int load_weights(struct model *m, struct err *e)
{
    int64_t start = clock_us();
    struct err damage = {0};
    if (m->packed_folder && m->verify)
        find_packed(m, digests(m)->weights);
    if (m->packed && weights_use(&m->weights, packed_data(m->packed), &damage) != 0) {
        packed_condemn(m->packed);
        m->packed = NULL;
    }
    int rc = m->packed ? 0 : weights_load(&m->weights, e);
    if (rc)
        return rc;
    if (m->packed)
        packed_read_ahead(m->packed);
    log_info("model", "weights %s bytes=%zu s=%.2f",
             m->packed ? "mapped as an earlier run has packed them" : "packed",
             m->weights.bytes, (double)(clock_us() - start) / 1e6);
    if (m->packed_folder && !m->packed)
        leave_packed(m);
    return 0;
}

int model_load(struct model *m, const struct kernels *k, int max_rows, int max_logits,
               struct err *e)
{
    assert(!m->forward && max_rows > 0 && max_logits > 0);
    m->kernels = *k;
    m->limits = limits_of(m, max_rows, max_logits);
    if (m->null)
        return 0;
    start_identity(m);
    int rc = load_weights(m, e);
    return rc ? rc
              : forward_new(&m->forward, &m->hparams, &m->weights, &m->kernels, m->limits, e);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    identity_free(m->identity);
    forward_free(m->forward);
    (void)packed_write_end(m->writer);
    weights_release(&m->weights);
    packed_close(m->packed);
    free(m->packed_folder);
    vocab_free(m->vocab);
    gguf_release(&m->gguf);
    file_map_close(&m->map);
    free(m->path);
    free(m);
}

const struct hparams *model_hparams(const struct model *m)
{
    return &m->hparams;
}

const struct vocab *model_vocab(const struct model *m)
{
    return m->vocab;
}

const struct gguf *model_gguf(const struct model *m)
{
    return m->null ? NULL : &m->gguf;
}

int model_digest(struct model *m, char out[HASH_HEX], struct err *e)
{
    (void)e;
    hash_hex(digests(m)->file, out);
    return 0;
}

int model_arithmetic_version(void)
{
    return ARITHMETIC_VERSION;
}

int model_context_digest(struct model *m, const struct page_use *use, uint8_t out[HASH_BYTES],
                         struct err *e)
{
    (void)e;
    bool exact = strcmp(use->codec, "exact") == 0;
    uint8_t hparams[HASH_BYTES], vocab[HASH_BYTES];
    hparams_digest(&m->hparams, hparams);
    vocab_digest(m->vocab, vocab);
    struct hash h;
    hash_init(&h);
    hash_field(&h, "weights", digests(m)->weights, HASH_BYTES);
    hash_field(&h, "vocabulary", vocab, sizeof(vocab));
    hash_field(&h, "hyperparameters", hparams, sizeof(hparams));
    hash_field(&h, "attention", use->attention, strlen(use->attention));
    hash_field(&h, "kv type", use->q8 ? "q8" : "f16", use->q8 ? 2 : 3);
    hash_field(&h, "codec", use->codec, strlen(use->codec));
    /* Rows see the positions of their own pass before a lossy codec has rounded them. Exact pages are the
     * same for every grid (rule 1). */
    hash_field_u64(&h, "grid", exact ? 0 : (uint64_t)use->grid);
    hash_field_u64(&h, "page tokens", PAGE_TOKENS);
    hash_field_u64(&h, "page layout", PAGE_LAYOUT_VERSION);
    hash_field_u64(&h, "arithmetic", ARITHMETIC_VERSION);
    hash_field(&h, "kernels", "exact", 5); /* all tables give the same bytes */
    hash_end(&h, out);
    return 0;
}

/* The limits hold for the null model too: a scheduler that breaks them is seen without a model. */
static int check_limits(const struct model *m, const struct forward_rows *seqs, int n_seqs,
                        struct err *e)
{
    int64_t rows = 0, logits = 0;
    for (int s = 0; s < n_seqs; s++) {
        const struct forward_rows *q = &seqs[s];
        assert(q->n > 0 && q->pos >= 0 && q->pos + q->n <= q->table->n_pages * PAGE_TOKENS);
        int most_pages = (m->limits.context + PAGE_TOKENS - 1) / PAGE_TOKENS;
        if (q->pos > m->limits.context - q->n || q->table->n_pages > most_pages)
            return err_set(e, REACH_DOC, ERR_LIMIT,
                           "position %d is past the context of %d tokens", q->pos + q->n - 1,
                           m->limits.context);
        for (int i = q->pos; i < q->pos + q->n; i++) {
            if (q->tokens[i] < 0 || q->tokens[i] >= m->hparams.n_vocab)
                return err_set(e, REACH_DOC, ERR_LIMIT,
                               "token %d is outside the vocabulary of %d", q->tokens[i],
                               m->hparams.n_vocab);
        }
        rows += q->n;
        logits += q->want_logits;
    }
    if (rows > m->limits.rows || logits > m->limits.logits)
        return err_set(e, REACH_JOB, ERR_LIMIT,
                       "a pass of %lld rows and %lld logits; planned were %d and %d",
                       (long long)rows, (long long)logits, m->limits.rows, m->limits.logits);
    return 0;
}

int model_forward(struct model *m, struct forward_rows *seqs, int n_seqs, struct err *e)
{
    int rc = check_limits(m, seqs, n_seqs, e);
    if (!rc && m->packed && packed_damaged(m->packed))
        rc = err_set(e, REACH_JOB, ERR_CORRUPT,
                     "the packed weights of an earlier run were damaged; they are removed: "
                     "start again");
    if (rc)
        return rc;
    if (!m->null)
        return forward_run(m->forward, seqs, n_seqs, e);
    for (int s = 0; s < n_seqs; s++)
        null_model_forward(&seqs[s]);
    return 0;
}

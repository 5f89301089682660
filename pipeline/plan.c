#include "pipeline/plan.h"

#include "stages/kv/store.h"

#include "stages/ingest/keeper.h"
#include "stages/ingest/text_out.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_CONTEXT = 8192,
    MOST_BATCH = 256,      /* the range of decode.batch */
    BASE_BYTES = 24 << 20, /* program, libraries, stacks of the threads, small tables */
    VOCAB_BYTES = 128,     /* per token: text, hash and merge tables */
    DOCUMENTS = 3,         /* of ingest.max_document: one that came, one cut, one answered */
    MAKING = 1,            /* copy more while its text is made in this process */
    TABLES = 3,            /* of blocks: made, cut, answered */
    READERS = 12 << 20,    /* keeper and reader, beside what reading takes */
    TREE_BYTES = 8 << 20,  /* a segment of Markdown, or the buffers of an archive */
    TEAMS = 2,
    THREAD_BYTES = 64 << 10, /* stack that a thread of the team touches, and its descriptor */
    KERNEL_PAGE = 4096,
};

int plan_context(const struct job *j, int trained)
{
    if (j->model.context)
        return j->model.context;
    return trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
}

int plan_threads(const struct job *j, const struct machine *k)
{
    return j->limits.threads ? j->limits.threads : k->cpus;
}

static void add(struct plan *p, enum plan_group group, const char *what, uint64_t bytes,
                const char *fmt, ...) PRINTF_LIKE(5, 6);
static void add(struct plan *p, enum plan_group group, const char *what, uint64_t bytes,
                const char *fmt, ...)
{
    struct plan_line *l = &p->lines[p->n_lines++];
    l->group = group;
    l->bytes = bytes;
    snprintf(l->what, sizeof(l->what), "%s", what);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l->formula, sizeof(l->formula), fmt, ap);
    va_end(ap);
    p->groups[group] += bytes;
    p->total += bytes;
}

static void find_limit(struct plan *p, const struct job *j, const struct machine *k)
{
    p->limit = k->available;
    p->limit_name = "free memory (MemAvailable)";
    if (k->group < p->limit) {
        p->limit = k->group;
        p->limit_name = k->group_name;
    }
    if (j->limits.memory && j->limits.memory < p->limit) {
        p->limit = j->limits.memory;
        p->limit_name = "limits.memory";
    }
}

/* What the pool counts in, and how many of them a sequence of full context takes. */
static void find_units(struct plan *p, const struct job *j, const struct model *m)
{
    struct kv_shape shape = model_kv_shape(m);
    enum codec_kind codec = (enum codec_kind)j->kv.codec;
    p->pages_per_sequence = (p->context + PAGE_TOKENS - 1) / PAGE_TOKENS;
    p->page_bytes = p->sizes.page_bytes;
    if (!codec_shrinks(&shape, codec))
        return;
    /* The end of the prompt and the answer stay in full. */
    int full = (j->decode.max_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS + 1;
    p->pages_per_sequence += full < p->pages_per_sequence ? full : p->pages_per_sequence;
    p->small_slice = codec_slice_bytes(&shape, codec);
    /* The end of a small page shares a page of the kernel with what was given up, its beginning with another one,
     * unless pages begin where the kernel's do. */
    p->page_bytes =
        (codec_page_bytes(&shape, codec) + KERNEL_PAGE - 1) / KERNEL_PAGE * KERNEL_PAGE;
    if (p->sizes.page_bytes % KERNEL_PAGE)
        p->page_bytes += KERNEL_PAGE;
}

/* The pool: what kv.memory holds, or full context for every sequence of the batch, as long as that is no
 * more than half of the limit. */
static int plan_pages(struct plan *p, const struct job *j, struct err *e)
{
    uint64_t page = p->page_bytes, one = (uint64_t)p->pages_per_sequence * page, pages;
    char need[40];
    uint64_t round = one < 16 << 20 ? 1 << 10 : 1 << 20;
    const char *lower = p->small_slice ? "model.context or decode.max_tokens" : "model.context";
    opt_format_bytes((one + round - 1) / round * round, need, sizeof(need));
    if (j->kv.memory) {
        pages = j->kv.memory / page;
        if (pages < (uint64_t)p->pages_per_sequence)
            return err_set(e, REACH_JOB, ERR_CONFIG,
                           "kv.memory is too small: one sequence of %d tokens needs %s; raise "
                           "it, or lower %s",
                           p->context, need, lower);
    } else {
        pages = (uint64_t)p->batch * (uint64_t)p->pages_per_sequence;
        if (pages > p->limit / 2 / page)
            pages = p->limit / 2 / page;
        if (pages < (uint64_t)p->pages_per_sequence)
            return err_set(
                e, REACH_JOB, ERR_CONFIG,
                "one sequence of %d tokens needs %s of KV memory, more than half of %s: lower "
                "%s, or set kv.memory to at least %s",
                p->context, need, p->limit_name, lower, need);
    }
    p->n_pages = pages > INT32_MAX ? INT32_MAX : (int)pages;
    return 0;
}

/* What would fit if everything else stayed: the pool takes what the rest leaves. */
static void find_most(struct plan *p, int trained, uint64_t per_sequence)
{
    uint64_t rest = p->total - p->groups[PLAN_KV];
    uint64_t room = p->limit > rest ? p->limit - rest : 0, page = p->page_bytes;
    uint64_t own = (uint64_t)(p->pages_per_sequence -
                              (p->context + PAGE_TOKENS - 1) / PAGE_TOKENS),
             pages = room / page / (uint64_t)p->batch;
    uint64_t context = (pages > own ? pages - own : 0) * PAGE_TOKENS;
    p->most_context = context > (uint64_t)trained ? trained : (int)context;
    /* Each sequence has logits of its own beside its pages. */
    uint64_t shared = (uint64_t)p->batch * per_sequence;
    uint64_t batch = (room + shared) / ((uint64_t)p->pages_per_sequence * page + per_sequence);
    p->most_batch = batch > MOST_BATCH ? MOST_BATCH : (int)batch;
}

/* Documents here, and the process that reads them. */
static void add_documents(struct plan *p, const struct ingest_config *cfg, uint64_t table)
{
    bool apart = cfg->isolation != ISOLATION_NO;
    int copies = DOCUMENTS + (apart ? 0 : MAKING);
    uint64_t tree = apart ? 0 : TREE_BYTES;
    add(p, PLAN_RUN, "documents", (uint64_t)copies * cfg->max_document,
        "%d x ingest.max_document: %scame, cut, answered", copies, apart ? "" : "made text, ");
    add(p, PLAN_RUN, "blocks", TABLES * table + tree, "%d tables of %.1f MiB%s", TABLES,
        (double)table / (1 << 20), apart ? "" : ", and what it takes to make them");
    if (apart)
        add(p, PLAN_RUN, "reader", keeper_memory(cfg) + READERS,
            "%s for what is read, %d MiB for its process and the one that starts it",
            cfg->memory ? "ingest.memory" : "at most (ingest.memory)", READERS >> 20);
}

int plan_make(struct plan *p, const struct job *j, const struct model *m,
              const struct machine *k, struct err *e)
{
    const struct hparams *h = model_hparams(m);
    *p = (struct plan){.batch = j->decode.batch, .context = plan_context(j, h->context_train)};
    if (p->context > h->context_train)
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "model.context: %d is more than the %d tokens that %s was trained for",
                       p->context, h->context_train, h->name);
    if (j->decode.max_tokens >= p->context)
        return err_set(
            e, REACH_JOB, ERR_CONFIG,
            "decode.max_tokens: %d leaves no room for a prompt in a context of %d tokens",
            j->decode.max_tokens, p->context);
    int prefill = (j->prefill.batch + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS;
    p->rows = prefill > p->batch ? prefill : p->batch;
    p->logits = p->batch;
    p->threads = plan_threads(j, k);
    model_plan(m, p->rows, p->logits, &p->sizes);
    find_units(p, j, m);
    find_limit(p, j, k);
    if (plan_pages(p, j, e))
        return -(int)e->code;

    const struct model_sizes *s = &p->sizes;
    uint64_t page = s->page_bytes, vocab = (uint64_t)h->n_vocab,
             waiting = (uint64_t)(p->batch + j->limits.queue + 1),
             table = text_blocks_bytes((size_t)j->ingest.max_document),
             one = j->ingest.max_document + table;
    add(p, PLAN_WEIGHTS, "packed", s->weights, "%s",
        s->shared ? "mapped from model.packed_cache: shared by processes, can be read again"
                  : "all matrices, in the layout of the kernels");
    add(p, PLAN_WEIGHTS, "mapped", s->mapped, "rows of the file that stay in use: embeddings");
    if (p->small_slice)
        add(p, PLAN_KV, "pages", (uint64_t)p->n_pages * p->page_bytes,
            "%d pages of %d tokens in 8 bits, of an answer twice that; %d layers x %zu bytes, "
            "in whole 4 KiB",
            p->n_pages, PAGE_TOKENS, s->n_layer, p->small_slice);
    else
        add(p, PLAN_KV, "pages", (uint64_t)p->n_pages * page,
            "%d pages of %d tokens, %d layers x %zu bytes", p->n_pages, PAGE_TOKENS, s->n_layer,
            s->slice_bytes);
    add(p, PLAN_RUN, "scratch", s->scratch,
        "activations of %d rows (prefill.batch), %d threads", p->rows, p->threads);
    add(p, PLAN_RUN, "logits", waiting * vocab * 4,
        "(decode.batch %d + limits.queue %d + 1) x %d tokens x 4", p->batch, j->limits.queue,
        h->n_vocab);
    if (j->kv.disk)
        add(p, PLAN_RUN, "kv disk",
            STORE_BUFFERS * (page + vocab * 4) + (uint64_t)j->kv.ahead * 2 * vocab * 4,
            "%d pages with logits on their way, 2 x kv.ahead x %d tokens x 4", STORE_BUFFERS,
            h->n_vocab);
    add(p, PLAN_RUN, "queues", j->limits.queue_bytes > one ? j->limits.queue_bytes : one, "%s",
        j->limits.queue_bytes > one ? "limits.queue_bytes"
                                    : "one document, which is let through");
    add_documents(p, &j->ingest, table);
    add(p, PLAN_RUN, "threads", TEAMS * (uint64_t)p->threads * THREAD_BYTES,
        "%d teams (load, compute) of %d threads x %d KiB", TEAMS, p->threads,
        THREAD_BYTES >> 10);
    add(p, PLAN_RUN, "base", BASE_BYTES + vocab * VOCAB_BYTES,
        "%d MiB + %d tokens of vocabulary x %d", BASE_BYTES >> 20, h->n_vocab, VOCAB_BYTES);
    find_most(p, h->context_train, vocab * 4);
    return 0;
}

int plan_fits(const struct plan *p, struct err *e)
{
    if (p->total <= p->limit)
        return 0;
    char need[40], have[40], rest[40];
    opt_format_bytes((p->total + (1 << 20) - 1) >> 20 << 20, need, sizeof(need));
    opt_format_bytes(p->limit >> 20 << 20, have, sizeof(have));
    if (p->most_context >= PAGE_TOKENS)
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "the plan needs %s, but %s allows %s: set model.context to at most %d, "
                       "or decode.batch to at "
                       "most %d, or lower kv.memory",
                       need, p->limit_name, have, p->most_context, p->most_batch);
    opt_format_bytes((p->total - p->groups[PLAN_KV] + (1 << 20) - 1) >> 20 << 20, rest,
                     sizeof(rest));
    return err_set(e, REACH_JOB, ERR_CONFIG,
                   "the plan needs %s, but %s allows %s, and %s of it is not KV pages: lower "
                   "ingest.memory, ingest.max_document, "
                   "limits.queue_bytes or prefill.batch, or take a smaller model",
                   need, p->limit_name, have, rest);
}

/* ---- the table ---- */

static int print_line(struct buf *out, const char *indent, const char *what, uint64_t bytes,
                      const char *formula, struct err *e)
{
    char left[48];
    snprintf(left, sizeof(left), "%s%s", indent, what);
    return buf_addf(out, e, "%-16s %10.1f MiB%s%s\n", left, (double)bytes / (1 << 20),
                    *formula ? "   " : "", formula);
}

int plan_print(const struct plan *p, struct buf *out, struct err *e)
{
    static const char *const names[PLAN_GROUPS] = {"weights", "KV cache", "run time"};
    int rc = buf_addf(out, e, "context %d tokens, batch %d, %d rows per pass, %d thread%s\n\n",
                      p->context, p->batch, p->rows, p->threads, p->threads == 1 ? "" : "s");
    for (int g = 0; !rc && g < PLAN_GROUPS; g++) {
        rc = print_line(out, "", names[g], p->groups[g], "", e);
        for (int i = 0; !rc && i < p->n_lines; i++)
            if ((int)p->lines[i].group == g)
                rc = print_line(out, "  ", p->lines[i].what, p->lines[i].bytes,
                                p->lines[i].formula, e);
    }
    if (!rc)
        rc = print_line(out, "", "total", p->total, "", e);
    if (!rc && p->limit == UINT64_MAX)
        rc = buf_adds(out, "limit            unknown\n", e);
    else if (!rc)
        rc = print_line(out, "", "limit", p->limit, p->limit_name, e);
    if (!rc)
        rc = buf_addf(out, e,
                      "\nThe pool holds %d sequence%s of full context (%d pages each).\n"
                      "Most that fits: context %d at batch %d; batch %d at context %d.\n",
                      p->n_pages / p->pages_per_sequence,
                      p->n_pages / p->pages_per_sequence == 1 ? "" : "s", p->pages_per_sequence,
                      p->most_context, p->batch, p->most_batch, p->context);
    return rc;
}

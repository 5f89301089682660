#include "pipeline/setup.h"

#include "pipeline/generation.h"
#include "pipeline/machine.h"
#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/kv/trace_read.h"
#include "stages/task.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING_EVENTS = 1 << 16, RING_SHARE = 64 /* of kv.disk_limit, at most */ };

int setup_kernels(struct kernels *k, int choice, struct err *e)
{
    static const struct {
        const char *name;
        unsigned flags;
    } wanted[] = {[KERNELS_REF] = {"ref", 0},
                  [KERNELS_AVX2] = {"avx2", KERN_CPU_AVX2},
                  [KERNELS_AVX512] = {"avx512", KERN_CPU_AVX2 | KERN_CPU_AVX512},
                  [KERNELS_NEON] = {"neon", KERN_CPU_NEON},
                  [KERNELS_DOTPROD] = {"dotprod", KERN_CPU_NEON | KERN_CPU_DOTPROD}};
    unsigned flags = kern_cpu_flags();
    if (choice != KERNELS_AUTO) {
        if ((wanted[choice].flags & flags) != wanted[choice].flags)
            return err_set(
                e, REACH_JOB, ERR_CONFIG,
                "model.kernels: this CPU has no %s; auto takes the fastest that it has",
                wanted[choice].name);
        flags = wanted[choice].flags;
    }
    kernels_init(k, flags);
    return 0;
}

static int open_prompts(struct setup *s, const struct job *job, struct err *e)
{
    const struct vocab *v = model_vocab(s->model);
    int rc = 0;
    if (job->model.kind == MODEL_NULL) {
        s->chat = chat_null(v);
    } else {
        struct prompt_config prompt = job->prompt;
        char none[] = "none";
        if (job->task.kind == TASK_COMPLETE)
            prompt.template =
                none; /* documents are the prompts: no template is needed, or proven */
        char *base = file_parent(job->path);
        rc = chat_open(&s->chat, v, model_gguf(s->model), &prompt, base, e);
        free(base);
    }
    return rc ? rc : prompts_open(&s->prompts, &job->prompt, job->task.kind, s->chat, v, e);
}

/* Events that the ring holds: a power of two, as kv_ring_open() makes it. */
static int ring_events(uint64_t limit)
{
    int n = RING_EVENTS;
    while (limit && n > 2 && (uint64_t)n * TRACE_SLOT_BYTES > limit / RING_SHARE)
        n /= 2;
    return n;
}

/* The folder and its ring of events. What is wrong with the ring costs the trace only. */
static int open_disk(struct setup *s, const struct kv_config *kv, struct err *e)
{
    struct disk_options o = {.folder = kv->disk, .limit = kv->disk_limit};
    struct err none = {0};
    int rc = disk_open(&s->disk, &o, e);
    if (rc)
        return err_wrap(e, "kv.disk");
    char *path = file_join(kv->disk, KV_RING_FILE);
    if (kv_ring_open(&s->ring, path, ring_events(kv->disk_limit), &none) != 0)
        log_warn("kv", "no events are kept: %s", none.msg);
    free(path);
    return 0;
}

static int open_pages(struct setup *s, const struct job *job, struct run_stats *stats,
                      struct err *e)
{
    const struct model_sizes *sizes = &s->plan.sizes;
    enum codec_kind codec = (enum codec_kind)job->kv.codec;
    bool lossy = codec_is_lossy(codec);
    struct page_use use = {.codec = lossy ? codec_name(codec) : "exact",
                           .q8 = s->plan.small_slice > 0,
                           .attention = "full",
                           .grid = lossy ? PAGE_TOKENS : 0};
    struct store_options o = {
        .shape = model_kv_shape(s->model),
        .reuse = job->kv.reuse,
        .codec = codec,
        .keep = (enum keep)job->kv.keep,
        .n_vocab = model_hparams(s->model)->n_vocab,
        .counters = &stats->kv,
        .stability = &stats->stability,
    };
    stats->stability.expect_reuse = job->task.kind == TASK_ASK;
    int rc = model_context_digest(s->model, &use, o.context, e);
    if (!rc)
        rc = page_pool_new(&s->pages, s->plan.n_pages, sizes->n_layer, sizes->slice_bytes, e);
    if (!rc && s->plan.small_slice)
        page_pool_use_small(s->pages, s->plan.small_slice);
    if (!rc && job->kv.disk && job->kv.reuse)
        rc = open_disk(s, &job->kv, e);
    o.pool = s->pages;
    o.disk = s->disk;
    o.ring = s->ring;
    return rc ? rc : store_open(&s->store, &o, e);
}

static int find_facts(struct setup *s, const struct job *job, struct err *e)
{
    snprintf(s->facts.model_name, sizeof(s->facts.model_name), "%s",
             model_hparams(s->model)->name);
    int rc = model_digest(s->model, s->facts.model_digest, e);
    if (!rc)
        rc = generation_settings(&s->settings, s, job, e);
    generation_digest(&s->settings, s->facts.prompt_digest);
    return rc;
}

/* Weights that are packed in a moment are not worth their room on the disk. */
enum { PACKED_WORTH = 256 << 20 };

static void use_packed(struct setup *s, const struct job *job)
{
    const char *where = job->model.packed_cache;
    if (strcmp(where, "no") == 0)
        return;
    if (strcmp(where, "auto") != 0) {
        model_use_packed(s->model, where, job->model.packed_limit);
        return;
    }
    char *base = job->kv.disk ? mem_strdup(job->kv.disk) : file_cache_folder();
    if (base && model_packed_bytes(s->model) >= PACKED_WORTH) {
        char *folder = file_join(base, "packed");
        model_use_packed(s->model, folder, job->model.packed_limit);
        free(folder);
    }
    free(base);
}

int setup_read(struct setup *s, const struct job *job, struct err *e)
{
    struct machine machine;
    machine_read(&machine, "");
    int rc = setup_kernels(&s->kernels, job->model.kernels, e);
    omp_set_num_threads(
        plan_threads(job, &machine)); /* the plan counts their scratch; loading uses them */
    if (!rc && model_open(&s->model, &job->model, e))
        rc = err_wrap(e, "model.file");
    if (!rc)
        use_packed(s, job);
    if (!rc)
        rc = open_prompts(s, job, e);
    if (!rc)
        rc = plan_make(&s->plan, job, s->model, &machine, e);
    return rc;
}

int setup_open(struct setup *s, const struct job *job, struct run_stats *stats, struct err *e)
{
    int rc = setup_read(s, job, e);
    if (!rc)
        rc = plan_fits(&s->plan, e);
    if (rc)
        return rc;
    rc = model_load(s->model, &s->kernels, s->plan.rows, s->plan.logits, e);
    if (!rc)
        rc = open_pages(s, job, stats, e);
    return rc ? rc : find_facts(s, job, e);
}

void setup_close(struct setup *s)
{
    store_close(s->store);
    disk_close(s->disk);
    kv_ring_close(s->ring);
    page_pool_free(s->pages);
    prompts_free(s->prompts);
    chat_free(s->chat);
    model_free(s->model);
    ledger_settings_release(&s->settings);
    *s = (struct setup){0};
}

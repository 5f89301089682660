/* pipeline/plan.h - how much memory a job takes, before anything of size is opened.
 *
 * What:   from the job, the model's shapes and the machine: context, rows, pages, threads, and a table
 *         of every large use of memory with its formula.
 * Rules:  1. plan_make() allocates nothing and reads no document. 2. A run uses the numbers of its plan.
 *         3. The limit is the smallest of limits.memory, the control group's and MemAvailable.
 * Thread: pure.
 */
#ifndef QUIRE_PIPELINE_PLAN_H
#define QUIRE_PIPELINE_PLAN_H

#include "pipeline/job.h"
#include "pipeline/machine.h"
#include "stages/model/model.h"

enum plan_group { PLAN_WEIGHTS, PLAN_KV, PLAN_RUN, PLAN_GROUPS };
enum { PLAN_LINES = 16 };

struct plan_line {
    enum plan_group group;
    uint64_t bytes;
    char what[32];
    char formula[128];
};

struct plan {
    int context;            /* tokens of prompt and answer together */
    int rows;               /* of one forward pass: for model_load() */
    int logits;             /* rows that want logits: for model_load() */
    int batch;              /* decode.batch */
    int threads;            /* of the compute team */
    int pages_per_sequence; /* of full context; units, where pages can be small (page.h) */
    int n_pages;            /* of the pool, likewise: for page_pool_new() */
    size_t small_slice;     /* for page_pool_use_small(); 0: pages are never small */
    uint64_t page_bytes;    /* of a page or unit of the pool */
    struct model_sizes sizes;
    struct plan_line lines[PLAN_LINES];
    int n_lines;
    uint64_t groups[PLAN_GROUPS], total, limit;
    const char *limit_name;
    int most_context; /* that fits at this batch; 0: none */
    int most_batch;   /* that fits at this context; 0: none */
};

/* Returns 0 even when the total is over the limit (plan_fits). -ERR_CONFIG, reach JOB: a context over what
 * the model was trained for, a kv.memory that holds no sequence, or no memory for a single one. */
int plan_make(struct plan *p, const struct job *j, const struct model *m,
              const struct machine *k, struct err *e) MUST_CHECK;

/* 0, or -ERR_CONFIG with what to change. */
int plan_fits(const struct plan *p, struct err *e) MUST_CHECK;

/* The table, with the limit and what would fit. */
int plan_print(const struct plan *p, struct buf *out, struct err *e) MUST_CHECK;

/* Threads of the compute team. The scratch of a pass is planned for the team of the calling thread: set it first. */
int plan_threads(const struct job *j, const struct machine *k);

/* Context of a job: its own, or 8192, or less when the model was trained for less. */
int plan_context(const struct job *j, int trained);

#endif

/* pipeline/setup.h - what a run opens before its stages: kernels, model, template, plan, page pool.
 *
 * Rules:  1. In the order of cost: what can be refused is refused before weights are loaded.
 *         2. setup_close() is safe on a zeroed struct and after a failed setup_open().
 */
#ifndef QUIRE_PIPELINE_SETUP_H
#define QUIRE_PIPELINE_SETUP_H

#include "kernels/kernels.h"
#include "pipeline/job.h"
#include "pipeline/plan.h"
#include "stages/kv/store.h"
#include "stages/ledger/ledger.h"
#include "stages/model/chat.h"
#include "stages/model/prompt.h"
#include "stages/stage.h"

struct setup {
    struct kernels kernels;
    struct model *model;
    struct chat *chat;
    struct prompts *prompts;
    struct plan plan;
    struct page_pool *pages;
    struct disk *disk; /* NULL without kv.disk */
    struct kv_ring *ring;
    struct store *store;
    struct run_facts facts;
    struct ledger_settings settings; /* that records depend on */
};

/* The table that a choice (enum kernel_choice) gives on this CPU. -ERR_CONFIG when it has not what it takes. */
int setup_kernels(struct kernels *k, int choice, struct err *e) MUST_CHECK;
/* Kernels, the model's metadata, template, prompts and plan: all that `quire check` looks at. Loads no weights and
 * does not ask whether the plan fits. */
int setup_read(struct setup *s, const struct job *job, struct err *e) MUST_CHECK;
/* setup_read(), and everything a run needs besides. stats must outlive it. */
int setup_open(struct setup *s, const struct job *job, struct run_stats *stats,
               struct err *e) MUST_CHECK;
void setup_close(struct setup *s);

#endif

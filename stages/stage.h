/* stages/stage.h - what a stage is.
 *
 * What:   six stages have this one face; only pipeline/stage_table.c knows their order. A stage
 *         sees records (rec.h), its environment, and an emit function; never another stage.
 * Rules:  1. push takes the record. It may emit any number of records, at once or from step().
 *         2. want() says whether push would be accepted now; the runner never pushes without asking.
 *         3. step() does a bounded amount of work (one chunk of prefill, one decode step) and returns
 *            ST_MORE while there is more; it is called only while the output has room. A stage that
 *            works inside push leaves want and step NULL. ST_WAIT: the stage holds records that wait
 *            for something (KV pages that decode will free, or that are loaded); call step() again
 *            after another stage has moved, or wake() was called, and do not finish() yet.
 *         4. finish() is called once, after the last push and when step() has nothing left: it emits
 *            what is held back. source() replaces push for the first stage: it emits until done.
 *         5. A document's failure travels as a record with `fail` set. A returned error (REACH_JOB)
 *            stops the run cleanly.
 *         6. Records for which rec_passes() says so pass through: emit them as they are. So do answers
 *            (REC_ANSWER) that tokenize found in the ledger, in the stages before write.
 *         7. A request with use ANSWER_REDUCE comes back to tokenize from decode in any case, answered
 *            or with `fail` set; no stage in between may drop it. What tokenize emits with `fail` set
 *            goes to write. A failed FINAL request with its info is one of the answers
 *            that write waits for; any other failure is the document's record at once. Write drops what
 *            comes later for the same document.
 *         8. The last stage emits a record of each document that it has finished, in order: this frees
 *            its place in the window of documents in flight.
 * Thread: open comes before and close after the threads of the run; all other calls of one stage come
 *         from one thread. emit blocks while the next queue is full and returns -ERR_CANCELLED once the
 *         run is being torn down: return it at once.
 */
#ifndef QUIRE_STAGE_H
#define QUIRE_STAGE_H

#include "stages/base/err.h"
#include "stages/kv/page.h"
#include "stages/rec.h"
#include "stages/stats.h"

enum { ST_IDLE = 0, ST_MORE = 1, ST_WAIT = 2 };

struct job;   /* pipeline/job.h holds the config structs; stages get theirs through stage_env */
struct model; /* stages/model/model.h */
struct chat;  /* stages/model/chat.h */
struct prompts; /* stages/model/prompt.h */
struct store;   /* stages/kv/store.h */
struct keeper;  /* stages/ingest/keeper.h: processes that read documents */
struct ledger;  /* stages/ledger/ledger.h: what earlier runs have finished */
struct output;  /* stages/write/output.h: the output folder of this run */

/* What made the answers; printed in every record. */
struct run_facts {
    char model_name[128];
    char model_digest[65]; /* of the model file, hex */
    char prompt_digest
        [65]; /* of the prompt texts, the template and the settings that change an answer */
};

/* Configuration and shared services, read-only for stages unless said otherwise. */
struct stage_env {
    const struct ingest_config *ingest;
    const struct chunk_config *chunk;
    const struct prompt_config *prompt;
    const struct task_config *task;
    const struct prefill_config *prefill;
    const struct decode_config *decode;
    const struct kv_config *kv;
    const struct write_config *write;
    const char *job_name;
    const char *resolved_job; /* text of `quire show`, written to the output folder */
    struct model *model; /* used by the thread of prefill and decode; its vocab is immutable */
    const struct chat *chat;
    const struct prompts *prompts; /* opened before the stages, from the job's texts and chat */
    int context;             /* tokens of prompt and answer together: model.context, resolved */
    int64_t document_us;     /* limits.per_document; 0: none */
    struct page_pool *pages; /* prefill and decode only */
    struct store *store;     /* stages/kv/store.h; prefill and decode only */
    struct keeper *keeper;   /* ingest only; NULL: it reads in its own thread */
    struct ledger *ledger;   /* safe for all; NULL: nothing is kept */
    struct output *output;   /* write only, as is */
    struct tally *tally;     /* stages/write/tally.h */
    const struct run_facts *facts;
    struct run_stats *stats;   /* atomic counters for progress and run.json: stages/stats.h */
    const atomic_bool *cancel; /* set: take no new documents, finish what is in flight */
};

/* Gives a record to the runner, which queues it for the next stage (or, for a record with
 * use ANSWER_REDUCE that decode emits, for tokenize). Takes the record also on failure. */
typedef int stage_emit_fn(void *runner, struct rec *r);

struct stage {
    const struct stage_ops *ops;
    const struct stage_env *env;
    stage_emit_fn *emit;
    /* From any thread: there may be something to do for step(). NULL: nobody sleeps. */
    void (*wake)(void *runner);
    /* Work on a request is about to begin. False: its document is given up; emit it. NULL: always true. */
    bool (*begin)(void *runner, const struct rec *r);
    void *runner;
    void *state; /* the stage's own */
};

struct stage_ops {
    const char *name;
    int (*open)(struct stage *s, struct err *e);
    int (*source)(struct stage *s, struct err *e);
    bool (*want)(const struct stage *s);
    int (*push)(struct stage *s, struct rec *r, struct err *e);
    int (*step)(struct stage *s, struct err *e);
    int (*finish)(struct stage *s, struct err *e);
    void (*close)(struct stage *s); /* also after a failed open; frees what is held */
};

static inline int stage_emit(struct stage *s, struct rec *r)
{
    return s->emit(s->runner, r);
}

static inline bool stage_begin(struct stage *s, const struct rec *r)
{
    return !s->begin || s->begin(s->runner, r);
}

/* True when the document of r has taken longer than it may; r->fail is set then. */
bool stage_overdue(const struct stage *s, struct rec *r);

/* Bring the counters of KV pages up to date, after pages were taken or given back. */
static inline void stage_count_pages(const struct stage_env *env)
{
    struct page_stats p;
    page_pool_stats(env->pages, &p);
    atomic_store(&env->stats->kv_pages_used, p.used);
    atomic_store(&env->stats->kv_pages_peak, p.peak_used);
}

extern const struct stage_ops ingest_stage, chunk_stage, tokenize_stage, prefill_stage,
    decode_stage, write_stage;

#endif

/* stages/kv/mover.h - the threads that move KV pages between memory and disk.
 *
 * What:   two lanes: spills (encode, append) with one thread, and loads (read, decode, check) with two. Jobs of a
 *         lane are begun in order; finished ones wait to be collected by the owner of the pool.
 * Not:    decides nothing: what to move, and when, the store says (store.h).
 * Rules:  1. The memory of a job's page belongs to its lane until the job is collected: of a spill it is only read
 *            (a SEALED page with a reference), of a load only written (an OPEN page).
 *         2. What was loaded is right or the result says no: token ids, parent, context, class of the codec and the
 *            checksum of the decoded bytes are compared before a load succeeds.
 * Thread: submit, collect and close by the owner; wake is called from the lanes.
 */
#ifndef QUIRE_KV_MOVER_H
#define QUIRE_KV_MOVER_H

#include "stages/kv/disk.h"

struct mover;

enum move { MOVE_SPILL, MOVE_LOAD, MOVE_COUNT };

struct move_job {
    struct move_job *next;
    enum move move;
    struct record_info
        info;      /* load: what is wanted (kind, key, parent, context, tokens, logits) */
    page_id page;  /* for the owner; PAGE_NONE: a tail of no tokens */
    void *bytes;   /* of the page */
    float *logits; /* [info.n_logits]; spill: owned by the job; load: the caller's */
    uint8_t *body; /* spill: encoded already, n_body bytes, owned; NULL: to be encoded */
    size_t n_body;
    void *owner; /* for the owner, as is index */
    int index;
    /* When it is done: 1: moved. 0: not there (load), there already or not stored (spill). -ERR_x: load failed. */
    int result;
    int64_t stored_bytes, us;
};

/* disk and ring must outlive it. node_cpus: pin the threads to these CPUs' NUMA node; see numa.h. */
int mover_open(struct mover **out, struct disk *disk, const struct kv_shape *shape,
               int max_logits, struct err *e) MUST_CHECK;
/* finish: do the spills that wait; otherwise they are dropped. What was not collected is released, but for pages:
 * collect first. NULL is fine. */
void mover_close(struct mover *m);

/* A zeroed job; mover_free() releases it and what it owns. */
struct move_job *move_job_new(enum move move);
void move_job_free(struct move_job *j);

/* Takes the job. */
void mover_submit(struct mover *m, struct move_job *j);
/* Done jobs, oldest first, linked by next; NULL: none. */
struct move_job *mover_collect(struct mover *m);
/* Jobs that were submitted and not collected. */
int mover_pending(const struct mover *m, enum move move);
/* Wait until a job is done that was not collected; at once if there is one, or none pending. */
void mover_wait(struct mover *m);
/* From now on spills that wait are given back undone (result 0), in order. */
void mover_drop_spills(struct mover *m);
/* Called from the lanes when a job is done. NULL: none. */
void mover_on_done(struct mover *m, void (*wake)(void *ctx), void *ctx);

#endif

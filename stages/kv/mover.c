#include "stages/kv/mover.h"

#include "stages/base/clock.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/kv/numa.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* An fdatasync takes milliseconds, and spills wait for it: one for so many bytes, or for so much time. What it
 * comes too late for costs computing again. */
enum { SYNC_BYTES = 32 << 20, SYNC_US = 1000000 };

/* Jobs of a lane that wait. */
struct waiting {
    pthread_cond_t some; /* a job, or the end */
    struct move_job *first, **last;
};

/* A thread of a lane. Who loads waits for it, and half of the time goes into fresh memory: two of them. */
enum { SPILLERS = 1, LOADERS = 2, WORKERS = SPILLERS + LOADERS };
struct worker {
    struct mover *mover;
    enum move move;
    pthread_t thread;
    bool started;
    struct codec *codec;
    uint8_t *body; /* [body_cap] */
    void *scratch; /* a page */
};

struct mover {
    struct disk *disk;
    struct kv_shape shape;
    size_t body_cap;
    pthread_mutex_t lock;     /* of all that follows */
    pthread_cond_t done_some; /* a job became done */
    struct waiting lanes[MOVE_COUNT];
    struct worker workers[WORKERS];
    struct move_job *done, **done_last;
    int n_done, pending[MOVE_COUNT];
    bool ending, dropping;
    atomic_bool said_bad; /* a record could not be read, and the log has it */
    void (*wake)(void *ctx);
    void *wake_ctx;
};

struct move_job *move_job_new(enum move move)
{
    struct move_job *j = mem_need(sizeof(*j));
    j->move = move;
    j->page = PAGE_NONE;
    return j;
}

void move_job_free(struct move_job *j)
{
    if (!j)
        return;
    if (j->move == MOVE_SPILL) {
        free(j->logits);
        free(j->body);
    }
    free(j);
}

/* ---- spill ---- */

/* Bytes in memory of the page that a record holds; none: a tail of no tokens. */
static size_t bytes_of(const struct worker *w, const struct move_job *j, enum codec_kind codec)
{
    return j->page == PAGE_NONE ? 0 : codec_page_bytes(&w->mover->shape, codec);
}

/* The page, then the logits. What is stored of a tail is its positions alone, so its checksum is taken of what decoding
 * gives, not of a page with other bytes behind them. */
static size_t encode(struct worker *w, struct move_job *j)
{
    size_t n = 0;
    const void *decoded = j->bytes;
    if (j->page != PAGE_NONE) {
        n = codec_encode(w->codec, j->info.codec, j->bytes, j->info.n_tokens, w->body);
        if (j->info.n_tokens < PAGE_TOKENS) {
            struct err e = {0};
            int rc = codec_decode(w->codec, j->info.codec, w->body, n, w->scratch,
                                  j->info.n_tokens, &e);
            assert(rc == 0);
            (void)rc;
            decoded = w->scratch;
        }
    }
    if (j->info.n_logits)
        memcpy(w->body + n, j->logits, (size_t)j->info.n_logits * sizeof(float));
    j->info.page_hash =
        disk_page_hash(decoded, bytes_of(w, j, j->info.codec), j->logits, j->info.n_logits);
    return n + (size_t)j->info.n_logits * sizeof(float);
}

static void spill(struct worker *w, struct move_job *j)
{
    const uint8_t *body = j->body;
    size_t n = j->n_body;
    if (disk_has(w->mover->disk, j->info.key)) {
        if (!j->info.ephemeral)
            disk_keep(w->mover->disk, j->info.key);
        return;
    }
    if (!body) {
        n = encode(w, j);
        body = w->body;
    }
    j->result = disk_write(w->mover->disk, &j->info, body, n) == 0;
    j->stored_bytes = (int64_t)n;
}

/* ---- load ---- */

static bool is_wanted(const struct record_info *want, const struct record_info *got)
{
    return got->kind == want->kind && got->n_tokens == want->n_tokens &&
           got->n_logits == want->n_logits &&
           memcmp(got->parent, want->parent, HASH_BYTES) == 0 &&
           memcmp(got->context, want->context, HASH_BYTES) == 0 &&
           (got->codec == want->codec ||
            (!codec_is_lossy(got->codec) && !codec_is_lossy(want->codec)));
}

static int unpack(struct worker *w, struct move_job *j, const struct record_info *got, size_t n,
                  struct err *e)
{
    size_t logits = (size_t)got->n_logits * sizeof(float);
    if (n < logits)
        return err_set(e, REACH_DOC, ERR_CORRUPT, "a record is too short for its logits");
    if (j->page != PAGE_NONE) {
        int rc =
            codec_decode(w->codec, got->codec, w->body, n - logits, j->bytes, got->n_tokens, e);
        if (rc)
            return rc;
    }
    if (logits)
        memcpy(j->logits, w->body + n - logits, logits);
    if (disk_page_hash(j->bytes, bytes_of(w, j, got->codec), j->logits, got->n_logits) !=
        got->page_hash)
        return err_set(e, REACH_DOC, ERR_CORRUPT, "a page does not decode to what was stored");
    return 1;
}

/* One line in the log for all of them; the report counts them. */
static void say_bad(struct mover *m, const struct err *e)
{
    if (atomic_exchange(&m->said_bad, true))
        log_debug("kv", "%s", e->msg);
    else
        log_warn("kv", "%s; more of the kind are counted only", e->msg);
}

static void load(struct worker *w, struct move_job *j)
{
    struct record_info got;
    struct err e = {0};
    size_t n = 0;
    j->result = disk_read(w->mover->disk, j->info.key, j->info.tokens, j->info.n_tokens, &got,
                          w->body, w->mover->body_cap, &n, &e);
    if (j->result < 0)
        say_bad(w->mover, &e);
    if (j->result != 1)
        return;
    j->stored_bytes = (int64_t)n;
    if (!is_wanted(&j->info, &got)) {
        j->result = 0;
        return;
    }
    j->result = unpack(w, j, &got, n, &e);
    if (j->result < 0) {
        say_bad(w->mover, &e);
        disk_condemn(w->mover->disk, j->info.key);
    }
}

/* ---- lanes ---- */

static void hand_back(struct mover *m, struct move_job *j)
{
    pthread_mutex_lock(&m->lock);
    j->next = NULL;
    *m->done_last = j;
    m->done_last = &j->next;
    m->n_done++;
    pthread_cond_signal(&m->done_some);
    /* Under the lock, so that nobody is called after mover_on_done(NULL). */
    if (m->wake)
        m->wake(m->wake_ctx);
    pthread_mutex_unlock(&m->lock);
}

static struct move_job *next_job(struct worker *w, bool *undone)
{
    struct mover *m = w->mover;
    struct waiting *lane = &m->lanes[w->move];
    pthread_mutex_lock(&m->lock);
    while (!lane->first && !m->ending)
        pthread_cond_wait(&lane->some, &m->lock);
    struct move_job *j = lane->first;
    if (j && !(lane->first = j->next))
        lane->last = &lane->first;
    *undone = m->dropping && w->move == MOVE_SPILL;
    pthread_mutex_unlock(&m->lock);
    return j;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct move_job *j;
    int64_t unsynced = 0, synced_us = clock_us();
    bool undone;
    prctl(PR_SET_NAME, w->move == MOVE_SPILL ? "kv spill" : "kv load", 0, 0, 0);
    numa_stay_near(w->scratch);
    while ((j = next_job(w, &undone)) != NULL) {
        int64_t begin = clock_us();
        if (w->move == MOVE_LOAD)
            load(w, j);
        else if (!undone)
            spill(w, j);
        j->us = clock_us() - begin;
        bool kept = w->move == MOVE_SPILL && j->result == 1 && !j->info.ephemeral;
        unsynced += kept ? j->stored_bytes : 0;
        int64_t now = clock_us();
        hand_back(w->mover, j);
        if (unsynced >= SYNC_BYTES || (unsynced > 0 && now - synced_us >= SYNC_US)) {
            disk_sync(w->mover->disk);
            unsynced = 0;
            synced_us = clock_us();
        }
    }
    if (w->move == MOVE_SPILL)
        disk_sync(w->mover->disk);
    return NULL;
}

static int open_worker(struct mover *m, struct worker *w, enum move move,
                       const struct kv_shape *shape, struct err *e)
{
    w->mover = m;
    w->move = move;
    w->codec = codec_new(shape);
    w->body = mem_alloc(m->body_cap);
    w->scratch = mem_aligned(codec_page_bytes(shape, CODEC_RAW));
    if (!w->body || !w->scratch)
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory to move KV pages (%zu bytes each)",
                       m->body_cap);
    int no = pthread_create(&w->thread, NULL, work, w);
    if (no)
        return err_set(e, REACH_JOB, ERR_NOMEM, "cannot start a thread: %s", strerror(no));
    w->started = true;
    return 0;
}

int mover_open(struct mover **out, struct disk *disk, const struct kv_shape *shape,
               int max_logits, struct err *e)
{
    struct mover *m = mem_need(sizeof(*m));
    m->disk = disk;
    m->shape = *shape;
    m->body_cap = codec_bound(shape) + (size_t)max_logits * sizeof(float);
    m->done_last = &m->done;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->done_some, NULL);
    for (int i = 0; i < MOVE_COUNT; i++) {
        m->lanes[i].last = &m->lanes[i].first;
        pthread_cond_init(&m->lanes[i].some, NULL);
    }
    int rc = 0;
    for (int i = 0; i < WORKERS && !rc; i++)
        rc = open_worker(m, &m->workers[i], i < SPILLERS ? MOVE_SPILL : MOVE_LOAD, shape, e);
    if (rc)
        mover_close(m);
    else
        *out = m;
    return rc;
}

void mover_close(struct mover *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->ending = true;
    for (int i = 0; i < MOVE_COUNT; i++)
        pthread_cond_broadcast(&m->lanes[i].some);
    pthread_mutex_unlock(&m->lock);
    for (int i = 0; i < WORKERS; i++) {
        struct worker *w = &m->workers[i];
        if (w->started)
            pthread_join(w->thread, NULL);
        codec_free(w->codec);
        free(w->body);
        free(w->scratch);
    }
    for (int i = 0; i < MOVE_COUNT; i++)
        pthread_cond_destroy(&m->lanes[i].some);
    for (struct move_job *j = m->done, *next; j; j = next) {
        next = j->next;
        move_job_free(j);
    }
    pthread_cond_destroy(&m->done_some);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- the owner's side ---- */

void mover_submit(struct mover *m, struct move_job *j)
{
    struct waiting *lane = &m->lanes[j->move];
    j->next = NULL;
    pthread_mutex_lock(&m->lock);
    *lane->last = j;
    lane->last = &j->next;
    m->pending[j->move]++;
    pthread_cond_signal(&lane->some);
    pthread_mutex_unlock(&m->lock);
}

struct move_job *mover_collect(struct mover *m)
{
    pthread_mutex_lock(&m->lock);
    struct move_job *done = m->done;
    for (struct move_job *j = done; j; j = j->next)
        m->pending[j->move]--;
    m->done = NULL;
    m->done_last = &m->done;
    m->n_done = 0;
    pthread_mutex_unlock(&m->lock);
    return done;
}

int mover_pending(const struct mover *m, enum move move)
{
    return m->pending[move]; /* changed by the owner alone */
}

void mover_wait(struct mover *m)
{
    pthread_mutex_lock(&m->lock);
    while (m->n_done == 0 && m->pending[MOVE_SPILL] + m->pending[MOVE_LOAD] > 0)
        pthread_cond_wait(&m->done_some, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

void mover_drop_spills(struct mover *m)
{
    pthread_mutex_lock(&m->lock);
    m->dropping = true;
    pthread_mutex_unlock(&m->lock);
}

void mover_on_done(struct mover *m, void (*wake)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&m->lock);
    m->wake = wake;
    m->wake_ctx = ctx;
    pthread_mutex_unlock(&m->lock);
}

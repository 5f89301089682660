/* The ingest stage: walks `ingest.from` and emits one record for every document found. */
#include "stages/ingest/charset.h"
#include "stages/ingest/keep.h"
#include "stages/ingest/libraries.h"
#include "stages/ingest/names.h"
#include "stages/kv/kv_opts.h"
#include "stages/stage.h"
#include "stages/write/write_opts.h"

#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int check_encoding(const char *option, const char *label, struct err *e)
{
    if (!label || charset_find(label, strlen(label)))
        return 0;
    return err_set(e, REACH_JOB, ERR_CONFIG, "ingest.%s: the encoding \"%s\" is not known",
                   option, label);
}

static int plan_file(void *to, const struct walk_file *f)
{
    struct run_stats *stats = to;
    if (stats)
        atomic_fetch_add(&stats->bytes_planned, (long long)f->size);
    return 0;
}

/* Find the files of the job, but for what it writes itself. */
static int walk_files(const struct stage *s, walk_fn *fn, void *to, struct err *e)
{
    const struct stage_env *env = s->env;
    const char *own[WALK_SKIPS] = {env->write ? env->write->to : NULL,
                                   env->kv ? env->kv->disk : NULL};
    return walk(&env->ingest->from, own, fn, to, e);
}

/* Finds the files once before anything is read: a wrong path stops the job here, and the sum of
 * sizes lets progress say how much is left. */
static int ingest_open(struct stage *s, struct err *e)
{
    const struct ingest_config *cfg = s->env->ingest;
    libraries_open();
    int rc = check_encoding("encoding", cfg->encoding, e);
    if (rc == 0)
        rc = check_encoding("name_encoding", cfg->name_encoding, e);
    return rc == 0 ? walk_files(s, plan_file, s->env->stats, e) : rc;
}

/* ---- documents out ---- */

/* Where documents come from: a reader in this thread, or one that is watched. */
struct source {
    struct stage *stage;
    struct reader reader;
    struct isolate *isolate; /* NULL: reader reads */
    struct keep keep;
    int64_t ordinal; /* of the next document */
    struct err *e;
};

static void log_doc(const struct doc *d)
{
    char *name = doc_name(d);
    log_debug("ingest", "document %s type=%s encoding=%s bytes=%llu text=%zu blocks=%zu%s%s",
              name, d->media_type, d->encoding ? d->encoding : "-",
              (unsigned long long)d->bytes, d->text_len, d->n_blocks,
              d->fail.code ? " failed: " : "", d->fail.msg);
    free(name);
}

/* Takes d. */
static int give(struct source *src, struct doc *d)
{
    struct run_stats *stats = src->stage->env->stats;
    d->ordinal = src->ordinal++;
    if (stats)
        atomic_fetch_add(&stats->docs_found, 1);
    if (log_get_level() >= LOG_DEBUG && !d->origin.row)
        log_doc(d);
    struct rec *r = rec_new(REC_DOC, d);
    doc_unref(d);
    return stage_emit(src->stage, r);
}

/* reader_emit_fn */
static int emit_doc(void *to, struct doc *d)
{
    struct source *src = to;
    int rc = keep_doc(&src->keep, d, src->e);
    if (rc == 0)
        return give(src, d);
    doc_unref(d);
    return rc < 0 ? rc : 0;
}

/* ---- files in ---- */

enum { STOPPED = ISOLATE_STOPPED }; /* cancelled between documents: no error */

/* The documents of a file that are kept, after those of the files before it. */
static int give_kept(struct source *src, const struct ledger_source *known, const char *label)
{
    int rc = src->isolate ? isolate_finish(src->isolate, src->e) : 0;
    for (size_t i = 0; rc == 0 && i < known->n; i++)
        rc = reader_cancelled(&src->reader) ? STOPPED : give(src, keep_made(known, i, label));
    return rc;
}

/* isolate_done_fn */
static void end_file(void *to)
{
    struct source *src = to;
    keep_end(&src->keep);
}

static int read_rest(struct source *src, const struct walk_file *f,
                     const struct ledger_source *known)
{
    int fd = f->bad ? -1 : open(f->path, O_RDONLY | O_CLOEXEC);
    const char *why = f->bad ? f->bad : fd < 0 ? strerror(errno) : NULL;
    keep_begin(&src->keep, f, known, src->isolate ? (int64_t)known->n : 0);
    if (src->isolate)
        return isolate_file(src->isolate, f, fd, why, (int64_t)known->n, src->e);
    int rc = reader_file(&src->reader, f, fd, why);
    if (rc == 0 && !reader_cancelled(&src->reader))
        end_file(src);
    return rc;
}

static int read_file(void *to, const struct walk_file *f)
{
    struct source *src = to;
    struct ledger_source known = {0};
    if (reader_cancelled(&src->reader))
        return STOPPED;
    char *label = label_new(f->path, strlen(f->path), NULL);
    int rc = 0;
    if (!label_excluded(src->reader.cfg, label_base(label))) {
        rc = keep_look(&src->keep, f, &known, src->e);
        if (rc == 0 && known.n > 0)
            rc = give_kept(src, &known, label);
        if (rc == 0 && known.whole) {
            keep_whole(&src->keep, &known);
            if (src->reader.bytes_read)
                atomic_fetch_add(src->reader.bytes_read, (long long)f->size);
        } else if (rc == 0) {
            rc = read_rest(src, f, &known);
        }
    }
    ledger_source_release(&known);
    free(label);
    return rc;
}

static int ingest_source(struct stage *s, struct err *e)
{
    const struct stage_env *env = s->env;
    struct source src = {.stage = s, .e = e};
    atomic_llong *bytes = env->stats ? &env->stats->bytes_read : NULL;
    src.reader = (struct reader){.cfg = env->ingest,
                                 .bytes_read = bytes,
                                 .cancel = env->cancel,
                                 .emit = emit_doc,
                                 .to = &src};
    struct isolate_to to = {env->ingest, bytes, env->cancel, emit_doc, end_file, &src};
    struct libraries l;
    keep_init(&src.keep, env->ledger, env->ingest);
    if (env->keeper)
        src.isolate = isolate_new(env->keeper, &to);
    libraries_enter(&l);
    int rc = walk_files(s, read_file, &src, e);
    if (rc == 0 && src.isolate)
        rc = isolate_finish(src.isolate, e);
    libraries_leave(&l);
    if (src.isolate)
        isolate_free(src.isolate);
    spool_release(&src.reader.spool);
    return rc == STOPPED ? 0 : rc;
}

const struct stage_ops ingest_stage = {
    .name = "ingest", .open = ingest_open, .source = ingest_source};

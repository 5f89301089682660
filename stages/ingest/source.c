/* The ingest stage: walks `ingest.from` and emits one record for every document found. */
#include "stages/ingest/charset.h"
#include "stages/ingest/isolate.h"
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
    int64_t ordinal;         /* of the next document */
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

/* reader_emit_fn */
static int emit_doc(void *to, struct doc *d)
{
    struct source *src = to;
    struct run_stats *stats = src->stage->env->stats;
    d->ordinal = src->ordinal++;
    if (stats)
        atomic_fetch_add(&stats->docs_found, 1);
    if (log_get_level() >= LOG_DEBUG)
        log_doc(d);
    struct rec *r = rec_new(REC_DOC, d);
    doc_unref(d);
    return stage_emit(src->stage, r);
}

/* ---- files in ---- */

enum { STOPPED = ISOLATE_STOPPED }; /* cancelled between documents: no error */

static int read_file(void *to, const struct walk_file *f)
{
    struct source *src = to;
    if (reader_cancelled(&src->reader))
        return STOPPED;
    char *label = label_new(f->path, strlen(f->path), NULL);
    bool excluded = label_excluded(src->reader.cfg, label_base(label));
    free(label);
    if (excluded)
        return 0;
    int fd = f->bad ? -1 : open(f->path, O_RDONLY | O_CLOEXEC);
    const char *why = f->bad ? f->bad : fd < 0 ? strerror(errno) : NULL;
    return src->isolate ? isolate_file(src->isolate, f, fd, why, src->e)
                        : reader_file(&src->reader, f, fd, why);
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
    struct isolate_to to = {env->ingest, bytes, env->cancel, emit_doc, &src};
    struct libraries l;
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

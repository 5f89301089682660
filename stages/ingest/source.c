/* The ingest stage: walks `ingest.from` and emits one record for every document found. */
#include "stages/ingest/charset.h"
#include "stages/ingest/reader.h"
#include "stages/ingest/walk.h"
#include "stages/kv/kv_opts.h"
#include "stages/stage.h"
#include "stages/write/write_opts.h"

#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <libxml/parser.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* Documents must not make the parser open files or connections. */
static xmlParserInputPtr load_nothing(const char *url, const char *id, xmlParserCtxtPtr ctxt)
{
    (void)url, (void)id, (void)ctxt;
    return NULL;
}

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
    xmlInitParser();
    xmlSetExternalEntityLoader(load_nothing);
    int rc = check_encoding("encoding", cfg->encoding, e);
    if (rc == 0)
        rc = check_encoding("name_encoding", cfg->name_encoding, e);
    return rc == 0 ? walk_files(s, plan_file, s->env->stats, e) : rc;
}

static int emit_doc(void *to, struct doc *d)
{
    struct rec *r = rec_new(REC_DOC, d);
    doc_unref(d);
    return stage_emit(to, r);
}

enum { STOPPED = 1 }; /* cancelled between documents: no error */

static int read_file(void *to, const struct walk_file *f)
{
    struct reader *r = to;
    return reader_cancelled(r) ? STOPPED : reader_file(r, f);
}

static int ingest_source(struct stage *s, struct err *e)
{
    struct reader r = {.cfg = s->env->ingest,
                       .stats = s->env->stats,
                       .cancel = s->env->cancel,
                       .emit = emit_doc,
                       .to = s};
    /* Names in archives are converted by the locale of the thread; cron's has none. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    if (!utf8)
        log_warn("ingest", "there is no locale C.UTF-8: entry names may be lost");
    int rc = walk_files(s, read_file, &r, e);
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    return rc == STOPPED ? 0 : rc;
}

const struct stage_ops ingest_stage = {
    .name = "ingest", .open = ingest_open, .source = ingest_source};

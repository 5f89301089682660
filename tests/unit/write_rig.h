/* What the tests of the write stage share: a stage with an environment of its own, in a folder of its own. */
#ifndef QUIRE_TESTS_UNIT_WRITE_RIG_H
#define QUIRE_TESTS_UNIT_WRITE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/stage.h"
#include "stages/stats.h"
#include "stages/task.h"
#include "stages/write/manifest.h"
#include "stages/write/markdown.h"
#include "stages/write/output.h"
#include "stages/write/result.h"
#include "stages/write/result_line.h"
#include "stages/write/summaries.h"
#include "stages/write/tally.h"
#include "stages/write/write_opts.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a stage with an environment of its own, in a folder of its own ---- */

struct fixture {
    char folder[64];
    struct write_config write;
    struct task_config task;
    struct run_facts facts;
    struct run_stats stats;
    struct tally tally;
    struct stage_env env;
    struct stage stage;
    int64_t emitted[128];
    int n_emitted;
};

static inline int note_emit(void *runner, struct rec *r)
{
    struct fixture *f = runner;
    f->emitted[f->n_emitted++] = r->doc->ordinal;
    rec_free(r);
    return 0;
}

static inline struct fixture *fixture_new(bool markdown)
{
    static char jsonl[] = "jsonl", pages[] = "markdown", *formats[] = {jsonl, pages};
    struct fixture *f = mem_need(sizeof(*f));
    struct err e = {0};
    snprintf(f->folder, sizeof(f->folder), "/tmp/quire-write-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->write = (struct write_config){.to = f->folder, .formats = {formats, markdown ? 2 : 1}};
    snprintf(f->facts.model_name, sizeof(f->facts.model_name), "null");
    f->env = (struct stage_env){.write = &f->write,
                                .task = &f->task,
                                .job_name = "test",
                                .facts = &f->facts,
                                .stats = &f->stats,
                                .tally = &f->tally};
    assert_int_equal(output_open(&f->env.output, f->folder, &e), 0);
    f->stage =
        (struct stage){.ops = &write_stage, .env = &f->env, .emit = note_emit, .runner = f};
    assert_int_equal(write_stage.open(&f->stage, &e), 0);
    return f;
}

static inline void fixture_free(struct fixture *f)
{
    char command[128];
    write_stage.close(&f->stage);
    output_close(f->env.output);
    tally_release(&f->tally);
    snprintf(command, sizeof(command), "rm -r %s", f->folder);
    assert_int_equal(system(command), 0);
    free(f);
}

static inline char *contents(const struct fixture *f, const char *name)
{
    struct err e = {0};
    struct buf b;
    char *path = file_join(f->folder, name);
    buf_init(&b, 1 << 24);
    int rc = file_read(path, &b, &e);
    free(path);
    if (rc) {
        buf_release(&b);
        return NULL;
    }
    return b.data ? buf_take(&b) : mem_strdup("");
}

static inline void put(const struct fixture *f, const char *name, const char *text)
{
    struct err e = {0};
    char *path = file_join(f->folder, name), *parent = file_parent(path);
    assert_int_equal(file_make_dirs(parent, &e), 0);
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), 0);
    free(path);
    free(parent);
}

static inline bool there(const struct fixture *f, const char *name)
{
    char *path = file_join(f->folder, name);
    bool yes = access(path, F_OK) == 0;
    free(path);
    return yes;
}

static inline struct doc *document(int64_t ordinal)
{
    struct doc *d = doc_new();
    d->ordinal = ordinal;
    snprintf(d->id, sizeof(d->id), "%032llx", (long long)ordinal + 0xabc);
    d->source = mem_strdup("mail.zip");
    d->chain = mem_need(2 * sizeof(char *));
    d->chain[0] = mem_strdup("31.txt");
    d->media_type = mem_strdup("text/plain");
    d->text = mem_strdup("Some text.");
    d->text_len = 10;
    return d;
}

static inline struct rec *answer(struct doc *d, const char *text)
{
    struct rec *r = rec_new(REC_ANSWER, d);
    r->answer.text = mem_strdup(text);
    r->answer.len = strlen(text);
    r->answer.n_tokens = 4;
    r->answer.stopped_by = STOP_EOS;
    if (!*text)
        r->answer.flags = ANSWER_EMPTY;
    r->req.n_tokens = 30;
    r->info = mem_need(sizeof(*r->info));
    *r->info = (struct summary_info){.n_finals = 1,
                                     .n_chunks = 1,
                                     .covered = d->text_len,
                                     .account = {.document = 3, .fed = 3}};
    doc_unref(d);
    return r;
}

static inline void push(struct fixture *f, struct rec *r)
{
    struct err e = {0};
    assert_int_equal(write_stage.push(&f->stage, r, &e), 0);
}

static inline json_t *line(const char *text, int n)
{
    for (; n > 0; n--)
        text = strchr(text, '\n') + 1;
    return json_loadb(text, strcspn(text, "\n"), 0, NULL);
}

static inline void finish(struct fixture *f, bool finished)
{
    struct err e = {0};
    assert_int_equal(write_stage.finish(&f->stage, &e), 0);
    if (finished && f->write.formats.n == 2)
        assert_int_equal(summaries_write(f->env.output, &e), 0);
    if (finished)
        assert_int_equal(output_publish(f->env.output, &e), 0);
}

#endif

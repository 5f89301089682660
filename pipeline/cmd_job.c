/* quire check and quire show: a job file, its model and its prompts, without its documents. */
#include "pipeline/cmd.h"

#include "pipeline/cmd_prompt.h"
#include "pipeline/machine.h"
#include "pipeline/plan.h"
#include "pipeline/survey.h"
#include "stages/base/file.h"
#include "stages/model/prompt.h"

#include <inttypes.h>
#include <stdlib.h>

int cmd_load_job(const struct cmd_line *l, struct job *j, struct err *e)
{
    const char *settings[CMD_GIVEN];
    size_t n = 0;
    for (const char *s; (s = cmd_value(l, "--set", (int)n)) != NULL; n++)
        settings[n] = s;
    return job_load_with(j, l->args[0], settings, n, e);
}

static int print_head(const struct job *j, const struct model *m, const struct chat *chat,
                      struct buf *out, struct err *e)
{
    struct survey s;
    const struct hparams *h = model_hparams(m);
    if (survey_count(&s, &j->ingest.from, e))
        return -(int)e->code;
    int rc = buf_addf(out, e, "job      %s\ninput    %" PRIu64 " file%s, %" PRIu64 " bytes\n",
                      j->name, s.files, s.files == 1 ? "" : "s", s.bytes);
    if (!rc)
        rc = buf_addf(out, e,
                      "model    %s: %s, %d layers, %d wide, trained for %d tokens\nvocab    "
                      "%s, %d tokens\n",
                      h->name, arch_name(h->arch), h->n_layer, h->n_embd, h->context_train,
                      vocab_kind(model_vocab(m)), h->n_vocab);
    if (!rc)
        rc = buf_addf(out, e, "template %s\n", chat_family(chat));
    for (const char *const *note = chat_notes(chat); !rc && *note; note++)
        rc = buf_addf(out, e, "         %s\n", *note);
    return rc ? rc : buf_addf(out, e, "results  %s\n\n", j->write.to);
}

static int print_plan(const struct job *j, const struct model *m, struct buf *out,
                      struct err *e)
{
    struct machine k;
    struct plan p;
    machine_read(&k, "");
    int rc = plan_make(&p, j, m, &k, e);
    if (!rc)
        rc = plan_print(&p, out, e);
    return rc ? rc : plan_fits(&p, e);
}

int cmd_check(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    struct cmd_setup s = {0};
    struct buf out;
    buf_init(&out, CMD_TEXT);
    if (cmd_load_job(l, &j, &e))
        return cmd_fail(&e);
    int rc = cmd_setup_open(&s, &j, &e);
    if (!rc)
        rc = print_head(&j, s.model, s.chat, &out, &e);
    if (!rc)
        rc = print_plan(&j, s.model, &out, &e);
    /* A plan that does not fit is shown all the same: its lines say what is large. */
    struct err none = {0};
    int status = cmd_print(&out, 0, &none);
    cmd_setup_close(&s);
    job_release(&j);
    if (!rc)
        return status;
    cmd_fail(&e);
    return EXIT_USAGE;
}

int cmd_show(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    struct buf out;
    if (cmd_load_job(l, &j, &e))
        return cmd_fail(&e);
    buf_init(&out, CMD_TEXT);
    int rc =
        cmd_value(l, "--prompt", 0) ? cmd_show_prompt(&j, &out, &e) : job_print(&j, &out, &e);
    job_release(&j);
    return cmd_print(&out, rc, &e);
}

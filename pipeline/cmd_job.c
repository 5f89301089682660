/* quire check and quire show: a job file, its model and its prompts, without its documents. */
#include "pipeline/cmd.h"

#include "pipeline/cmd_prompt.h"
#include "pipeline/setup.h"
#include "stages/ingest/walk.h"
#include "stages/write/output.h"

#include <inttypes.h>
#include <string.h>

int cmd_load_job(const struct cmd_line *l, int i, struct job *j, struct err *e)
{
    const char *settings[CMD_GIVEN];
    size_t n = 0;
    for (const char *s; (s = cmd_value(l, "--set", (int)n)) != NULL; n++)
        settings[n] = s;
    if (cmd_value(l, "--verify-model", 0))
        settings[n++] = "model.verify=yes";
    return job_load_with(j, l->args[i], settings, n, e);
}

struct survey {
    uint64_t files, bytes, unreadable;
};

static int count_file(void *to, const struct walk_file *f)
{
    struct survey *s = to;
    s->files++;
    s->bytes += f->size;
    s->unreadable += f->bad != NULL;
    return 0;
}

/* Are the results below a folder of the input? They are left out there. */
static bool results_in_input(const struct job *j)
{
    for (size_t i = 0; i < j->ingest.from.n; i++) {
        const char *from = j->ingest.from.items[i];
        size_t n = strlen(from);
        while (n > 0 && from[n - 1] == '/')
            n--;
        if (strncmp(j->write.to, from, n) == 0 &&
            (j->write.to[n] == '/' || j->write.to[n] == '\0'))
            return true;
    }
    return false;
}

static int print_head(const struct job *j, const struct setup *s, const struct survey *found,
                      struct buf *out, struct err *e)
{
    const struct hparams *h = model_hparams(s->model);
    int rc = buf_addf(out, e, "job      %s\ninput    %" PRIu64 " file%s, %" PRIu64 " bytes",
                      j->name, found->files, found->files == 1 ? "" : "s", found->bytes);
    if (!rc && found->unreadable)
        rc = buf_addf(out, e, "; %" PRIu64 " cannot be read and will fail by name",
                      found->unreadable);
    if (!rc)
        rc = buf_addc(out, '\n', e);
    if (!rc)
        rc = buf_addf(out, e,
                      "model    %s: %s, %d layers, %d wide, trained for %d tokens\nvocab    "
                      "%s, %d tokens\n",
                      h->name, arch_name(h->arch), h->n_layer, h->n_embd, h->context_train,
                      vocab_kind(model_vocab(s->model)), h->n_vocab);
    if (!rc)
        rc = buf_addf(out, e, "template %s\n", chat_family(s->chat));
    for (const char *const *note = chat_notes(s->chat); !rc && *note; note++)
        rc = buf_addf(out, e, "         %s\n", *note);
    if (!rc)
        rc = buf_addf(out, e, "kernels  %s\nresults  %s\n", s->kernels.name, j->write.to);
    if (!rc && j->model.kind == MODEL_NULL && j->model.file)
        rc = buf_adds(out, "note     model.kind is null: model.file is not opened\n", e);
    if (!rc && results_in_input(j))
        rc = buf_adds(out,
                      "note     write.to lies inside ingest.from: that folder is left out of "
                      "the input\n",
                      e);
    return rc ? rc : buf_addc(out, '\n', e);
}

/* Prints nothing for a job that cannot be planned; a plan that does not fit is printed with its error, since its
 * lines say what is large. */
static int check(const struct job *j, struct buf *out, struct err *e)
{
    struct setup s = {0};
    struct survey found = {0};
    const char *own[WALK_SKIPS] = {j->write.to, j->kv.disk};
    int rc = walk(&j->ingest.from, own, count_file, &found, e);
    if (!rc)
        rc = output_check(j->write.to, e);
    if (!rc)
        rc = setup_read(&s, j, e);
    if (!rc)
        rc = print_head(j, &s, &found, out, e);
    if (!rc)
        rc = plan_print(&s.plan, out, e);
    if (!rc)
        rc = plan_fits(&s.plan, e);
    setup_close(&s);
    return rc;
}

int cmd_check(const struct cmd_line *l)
{
    struct err e = {0}, closed = {0};
    struct job j;
    struct buf out;
    buf_init(&out, CMD_TEXT);
    if (cmd_load_job(l, 0, &j, &e))
        return cmd_fail(&e);
    int rc = check(&j, &out, &e);
    int status = cmd_print(&out, 0, &closed);
    if (rc) {
        job_locate(&j, &e);
        e.code = ERR_CONFIG; /* whatever it is in a run: here it is the job that is looked at */
    }
    job_release(&j);
    if (rc == 0)
        return status;
    return cmd_fail(&e);
}

int cmd_show(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    struct buf out;
    if (cmd_load_job(l, 0, &j, &e))
        return cmd_fail(&e);
    buf_init(&out, CMD_TEXT);
    int rc =
        cmd_value(l, "--prompt", 0) ? cmd_show_prompt(&j, &out, &e) : job_print(&j, &out, &e);
    job_release(&j);
    return cmd_print(&out, rc, &e);
}

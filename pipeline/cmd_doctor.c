/* quire doctor: is this machine, and this job, ready? */
#include "pipeline/cmd.h"

#include "pipeline/doctor.h"

#include <string.h>

/* Of ok, warn, fail the worst. */
static int run_checks(const struct patient *p, struct buf *out, enum verdict *worst,
                      struct err *e)
{
    static const char *const words[] = {"ok", "warn", "fail"};
    char text[600];
    int rc = 0;
    *worst = DOCTOR_OK;
    for (size_t i = 0; !rc && i < n_doctor_checks; i++) {
        const struct doctor_check *c = &doctor_checks[i];
        if (c->of_job && !p->job)
            continue;
        enum verdict v = c->run(p, text, sizeof(text));
        *worst = v > *worst ? v : *worst;
        rc = buf_addf(out, e, "%-5s %-9s %s\n", words[v], c->name, text);
    }
    return rc;
}

int cmd_doctor(const struct cmd_line *l)
{
    struct err e = {0};
    struct job job = {0};
    struct patient p = {0};
    struct buf out;
    bool kernels = l->n_args && strcmp(l->args[0], "kernels") == 0;
    int at = kernels ? 1 : 0;
    enum verdict worst = DOCTOR_OK;
    int rc = 0;
    if (l->n_args > at + 1)
        rc = err_set(&e, REACH_JOB, ERR_CONFIG, "too many words: \"%.60s\"", l->args[at + 1]);
    if (!rc && l->n_args == at && cmd_value(l, "--set", 0))
        rc = err_set(&e, REACH_JOB, ERR_CONFIG, "--set needs a JOB");
    if (!rc && l->n_args > at) {
        rc = cmd_load_job(l, at, &job, &e);
        p.job = &job;
        p.kernels = job.model.kernels;
        p.threads = job.limits.threads;
    }
    if (rc)
        return cmd_fail(&e);
    machine_read(&p.machine, "");
    buf_init(&out, CMD_TEXT);
    rc = kernels ? doctor_kernels(&p, &out, &e) : run_checks(&p, &out, &worst, &e);
    job_release(&job);
    int status = cmd_print(&out, rc, &e);
    return status ? status : worst == DOCTOR_FAIL ? EXIT_SOME : EXIT_ALL;
}

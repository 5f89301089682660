/* quire check and quire show: a job file without its documents. */
#include "pipeline/cmd.h"

#include "pipeline/job.h"

int cmd_load_job(const struct cmd_line *l, struct job *j, struct err *e)
{
    const char *settings[CMD_GIVEN];
    size_t n = 0;
    for (const char *s; (s = cmd_value(l, "--set", (int)n)) != NULL; n++)
        settings[n] = s;
    return job_load_with(j, l->args[0], settings, n, e);
}

int cmd_check(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    if (cmd_load_job(l, &j, &e))
        return cmd_fail(&e);
    job_release(&j);
    return EXIT_ALL;
}

int cmd_show(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    struct buf out;
    if (cmd_load_job(l, &j, &e))
        return cmd_fail(&e);
    buf_init(&out, CMD_TEXT);
    int rc = job_print(&j, &out, &e);
    job_release(&j);
    return cmd_print(&out, rc, &e);
}

/* quire run: the whole job. */
#include "pipeline/cmd.h"

#include "pipeline/run.h"
#include "stages/base/log.h"

#include <stdio.h>
#include <string.h>

int cmd_run(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    struct run_result r;
    const char *progress = cmd_value(l, "--progress", 0);
    bool shown = progress ? strcmp(progress, "none") != 0 : log_get_level() >= LOG_INFO;
    struct run_options o = {.signals = true, .progress = shown};
    if (cmd_load_job(l, &j, &e))
        return cmd_fail(&e);
    if (run_job(&j, &o, &r, &e))
        cmd_fail(&e);
    job_release(&j);
    return r.exit_status;
}

/* quire run: the whole job. */
#include "pipeline/cmd.h"

#include "pipeline/exit_guard.h"
#include "pipeline/run.h"
#include "stages/base/log.h"

#include <stdio.h>
#include <string.h>

/* --progress HOW, in the order of enum progress_mode; without it, --quiet means none. */
static enum progress_mode progress_of(const struct cmd_line *l)
{
    static const char *const names[] = {"none", "auto", "bar", "lines"};
    const char *how = cmd_value(l, "--progress", 0);
    for (size_t i = 0; how && i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], how) == 0)
            return (enum progress_mode)i;
    return log_get_level() >= LOG_INFO ? PROGRESS_AUTO : PROGRESS_NONE;
}

int cmd_run(const struct cmd_line *l)
{
    struct err e = {0};
    struct job j;
    struct run_result r;
    struct run_options o = {.signals = true,
                            .progress = progress_of(l),
                            .quiet_if_locked = cmd_value(l, "--quiet-if-locked", 0) != NULL,
                            .restart = cmd_value(l, "--restart", 0) != NULL};
    if (cmd_load_job(l, 0, &j, &e))
        return cmd_fail(&e);
    exit_guard_on();
    if (run_job(&j, &o, &r, &e)) {
        job_locate(&j, &e);
        cmd_fail(&e);
    }
    exit_guard_off();
    job_release(&j);
    return r.exit_status;
}

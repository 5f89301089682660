/* quire help: commands, sections and keys from their tables, and the documents generated from them. */
#include "pipeline/cmd.h"

#include "pipeline/cmd_complete.h"
#include "pipeline/job_docs.h"
#include "pipeline/version.h"

#include <stdio.h>
#include <string.h>

static int on_key(const char *section, size_t section_len, const char *key, int *found,
                  struct buf *out, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < n_job_sections; i++) {
        const struct job_section *s = &job_sections[i];
        bool here = !section || (strlen(s->name) == section_len &&
                                 memcmp(s->name, section, section_len) == 0);
        const struct opt *o = here ? opt_find(s->opts, *s->n_opts, key) : NULL;
        if (!o)
            continue;
        if ((*found)++)
            rc = buf_addc(out, '\n', e);
        if (!rc)
            rc = job_docs_key(s, o, out, e);
    }
    return rc;
}

static int unknown(const char *topic, struct err *e)
{
    struct opt_guess guess = {.wanted = topic};
    char names[512][64];
    size_t n = 0;
    for (size_t i = 0; i < n_cmds; i++)
        opt_guess_add(&guess, cmds[i].name);
    for (size_t i = 0; i < n_job_sections; i++) {
        const struct job_section *s = &job_sections[i];
        opt_guess_add(&guess, s->name);
        for (size_t k = 0; k < *s->n_opts && n < ARRAY_LEN(names); k++) {
            snprintf(names[n], sizeof(names[n]), "%s.%s", s->name, s->opts[k].name);
            opt_guess_add(&guess, s->opts[k].name);
            opt_guess_add(&guess, names[n++]);
        }
    }
    if (guess.best)
        return err_set(e, REACH_JOB, ERR_CONFIG, "no help for \"%.60s\": did you mean \"%s\"?",
                       topic, guess.best);
    return err_set(e, REACH_JOB, ERR_CONFIG,
                   "no help for \"%.60s\": \"quire help\" lists commands and sections", topic);
}

static int on_topic(const char *topic, struct buf *out, struct err *e)
{
    const struct cmd *cmd = cmd_find(topic);
    int rc = cmd ? cmd_usage(cmd, out, e) : 0;
    for (size_t i = 0; i < n_job_sections && !rc; i++) {
        if (strcmp(job_sections[i].name, topic) != 0)
            continue;
        if (cmd) /* kv is both */
            rc = buf_addf(out, e, "\nAnd in a job file, the section %s:\n\n", topic);
        return rc ? rc : job_docs_section(&job_sections[i], out, e);
    }
    if (cmd)
        return rc;
    const char *dot = strchr(topic, '.');
    int found = 0;
    rc = on_key(dot ? topic : NULL, dot ? (size_t)(dot - topic) : 0, dot ? dot + 1 : topic,
                &found, out, e);
    return rc || found ? rc : unknown(topic, e);
}

int cmd_help(const struct cmd_line *l)
{
    struct err e = {0};
    struct buf out;
    buf_init(&out, CMD_TEXT);
    int rc;
    if (cmd_value(l, "--markdown", 0))
        rc = job_docs_markdown(&out, &e);
    else if (cmd_value(l, "--schema", 0))
        rc = job_docs_schema(&out, &e);
    else if (cmd_value(l, "--completion", 0))
        rc = cmd_complete_bash(&out, &e);
    else if (l->n_args == 1)
        rc = on_topic(l->args[0], &out, &e);
    else
        rc = cmd_overview(&out, &e);
    return cmd_print(&out, rc, &e);
}

int cmd_version(const struct cmd_line *l)
{
    (void)l;
    struct err e = {0};
    struct buf out;
    buf_init(&out, CMD_TEXT);
    int rc = buf_adds(&out, "quire " QUIRE_VERSION "\n", &e);
    return cmd_print(&out, rc, &e);
}

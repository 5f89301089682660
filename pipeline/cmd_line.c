/* Words of a command line against the table of a command, and the usage that the table gives. */
#include "pipeline/cmd.h"

#include "pipeline/job_docs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct cmd *cmd_find(const char *name)
{
    for (size_t i = 0; i < n_cmds; i++)
        if (strcmp(cmds[i].name, name) == 0)
            return &cmds[i];
    return NULL;
}

/* The option whose name is the first n bytes of word; -h, -q and -v are short for --help and so on. */
static const struct cmd_option *find_option(const struct cmd *cmd, const char *word, size_t n,
                                            struct opt_guess *guess)
{
    const struct cmd_option *tables[] = {cmd->options, cmd_common};
    size_t counts[] = {cmd->n_options, n_cmd_common};
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (size_t i = 0; i < counts[t]; i++) {
            const struct cmd_option *o = &tables[t][i];
            if (strlen(o->name) == n && memcmp(o->name, word, n) == 0)
                return o;
            if (n == 2 && t == 1 && !o->arg && word[0] == '-' && word[1] == o->name[2])
                return o;
            opt_guess_add(guess, o->name);
        }
    return NULL;
}

static int check_value(const struct cmd_option *o, const char *value, struct err *e)
{
    char names[256] = "";
    if (!o->values)
        return 0;
    for (size_t i = 0, n = 0; o->values[i]; i++) {
        if (strcmp(o->values[i], value) == 0)
            return 0;
        n +=
            (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", o->values[i]);
    }
    return err_set(e, REACH_JOB, ERR_CONFIG, "%s: unknown value \"%.60s\": one of %s", o->name,
                   value, names);
}

/* One option; *i moves past its value when that is the next word. */
static int add_option(struct cmd_line *l, int n, char **words, int *i, struct err *e)
{
    const char *word = words[*i], *equals = strchr(word, '=');
    char name[64];
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    snprintf(name, sizeof(name), "%.*s", len < 60 ? (int)len : 60, word);
    struct opt_guess guess = {.wanted = name};
    const struct cmd_option *o = find_option(l->cmd, word, len, &guess);
    if (!o && guess.best)
        return err_set(e, REACH_JOB, ERR_CONFIG, "unknown option %s: did you mean %s?", name,
                       guess.best);
    if (!o)
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "unknown option %s: \"quire %s --help\" lists them", name, l->cmd->name);
    if (!o->arg && equals)
        return err_set(e, REACH_JOB, ERR_CONFIG, "%s takes no value", o->name);
    if (o->arg && !equals && *i + 1 >= n)
        return err_set(e, REACH_JOB, ERR_CONFIG, "%s needs a value: %s %s", o->name, o->name,
                       o->arg);
    if (l->n_given == CMD_GIVEN)
        return err_set(e, REACH_JOB, ERR_CONFIG, "more than %d options", CMD_GIVEN);
    const char *value = !o->arg ? NULL : equals ? equals + 1 : words[++*i];
    l->given[l->n_given].option = o;
    l->given[l->n_given++].value = value;
    return value ? check_value(o, value, e) : 0;
}

int cmd_parse(struct cmd_line *l, const struct cmd *cmd, int n, char **words, struct err *e)
{
    *l = (struct cmd_line){.cmd = cmd};
    bool plain = false; /* after "--" */
    for (int i = 0; i < n; i++) {
        if (!plain && strcmp(words[i], "--") == 0) {
            plain = true;
        } else if (!plain && words[i][0] == '-' && words[i][1] != '\0') {
            if (add_option(l, n, words, &i, e))
                return -(int)e->code;
        } else if (l->n_args == cmd->max_args) {
            return err_set(e, REACH_JOB, ERR_CONFIG,
                           "too many words: \"%.60s\"; usage: quire %s %s", words[i], cmd->name,
                           cmd->args);
        } else {
            l->args[l->n_args++] = words[i];
        }
    }
    if (l->n_args < cmd->min_args && !cmd_value(l, "--help", 0))
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "usage: quire %s %s; \"quire %s --help\" says more", cmd->name,
                       cmd->args, cmd->name);
    return 0;
}

const char *cmd_value(const struct cmd_line *l, const char *option, int i)
{
    for (int k = 0; k < l->n_given; k++)
        if (strcmp(l->given[k].option->name, option) == 0 && i-- == 0)
            return l->given[k].value ? l->given[k].value : "";
    return NULL;
}

int cmd_fail(const struct err *e)
{
    bool placed = e->code == ERR_CONFIG && strstr(e->msg, ": ") &&
                  strchr(e->msg, ':') < strstr(e->msg, ": ");
    fflush(stdout);
    fprintf(stderr, "%s%s\n", placed ? "" : "quire: ", e->msg);
    return e->code == ERR_CONFIG ? EXIT_USAGE : EXIT_STOPPED;
}

int cmd_print(struct buf *text, int rc, struct err *e)
{
    if (rc == 0 && text->len && fwrite(text->data, 1, text->len, stdout) != text->len)
        rc = err_set(e, REACH_JOB, ERR_IO, "cannot write to standard output: %s",
                     strerror(errno));
    if (rc == 0 && fflush(stdout) != 0)
        rc = err_set(e, REACH_JOB, ERR_IO, "cannot write to standard output: %s",
                     strerror(errno));
    buf_release(text);
    return rc ? cmd_fail(e) : EXIT_ALL;
}

static int add_options(const struct cmd_option *o, size_t n, struct buf *out, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        char left[64];
        snprintf(left, sizeof(left), "%s%s%s", o[i].name, o[i].arg ? " " : "",
                 o[i].arg ? o[i].arg : "");
        rc = buf_addf(out, e, "  %-24s %s\n", left, o[i].help);
    }
    return rc;
}

int cmd_usage(const struct cmd *cmd, struct buf *out, struct err *e)
{
    int rc = buf_addf(out, e, "quire %s%s%s - %s\n\n%s\n\n", cmd->name, *cmd->args ? " " : "",
                      cmd->args, cmd->summary, cmd->text);
    if (!rc)
        rc = buf_adds(out, "Options:\n", e);
    if (!rc)
        rc = add_options(cmd->options, cmd->n_options, out, e);
    return rc ? rc : add_options(cmd_common, n_cmd_common, out, e);
}

int cmd_overview(struct buf *out, struct err *e)
{
    int rc = buf_adds(
        out,
        "quire - ask the same thing of many long documents with a local language model\n\n"
        "usage: quire COMMAND [OPTIONS] ...\n\n",
        e);
    for (size_t i = 0; !rc && i < n_cmds; i++) {
        char left[64];
        snprintf(left, sizeof(left), "%s %s", cmds[i].name, cmds[i].args);
        rc = buf_addf(out, e, "  %-26s %s\n", left, cmds[i].summary);
    }
    if (!rc)
        rc = buf_adds(
            out, "\nSections of a job file (\"quire help SECTION\" lists the keys):\n\n", e);
    if (!rc)
        rc = job_docs_sections(out, e);
    if (!rc)
        rc = buf_adds(out,
                      "\nExit status: 0 all documents answered; 1 finished, some failed; 2 the "
                      "command line or the\n"
                      "job file is wrong; 3 the run had to stop; 4 limits.deadline came; 75 "
                      "another run of this\n"
                      "job is at work; 130 or 143 stopped by a signal.\n",
                      e);
    return rc;
}

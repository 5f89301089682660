/* pipeline/cmd.h - a command of the program: its words, its options, what it prints.
 *
 * What:   one table (cmd_table.c) feeds dispatch, `quire help`, and shell completion. A command is one
 *         function in a cmd_*.c file.
 * Rules:  1. stdout carries data only; what is wrong goes to stderr.
 *         2. The result is an exit status. Errors of a job file print as "file:line:column: message",
 *            all others as "quire: message".
 */
#ifndef QUIRE_PIPELINE_CMD_H
#define QUIRE_PIPELINE_CMD_H

#include "stages/base/buf.h"

enum exit_status {
    EXIT_ALL = 0,      /* every document has an answer; or the command did what it says */
    EXIT_SOME = 1,     /* finished, some documents failed */
    EXIT_USAGE = 2,    /* the command line or the job file is wrong */
    EXIT_STOPPED = 3,  /* input/output, memory, device */
    EXIT_DEADLINE = 4, /* limits.deadline */
    EXIT_LOCKED = 75,  /* another run of this job is at work */
};

enum { CMD_GIVEN = 64, CMD_TEXT = 8 << 20 };

enum cmd_words {
    WORDS_NONE,
    WORDS_JOB,
    WORDS_MODEL,
    WORDS_TOPIC
}; /* what completion offers for an argument */

struct cmd_option {
    const char *name; /* "--set" */
    const char *arg;  /* "KEY=VALUE"; NULL: a switch */
    const char *help;
    const char *const *values; /* the only values; NULL-terminated; NULL: any */
};

struct cmd_line;
struct job;

struct cmd {
    const char *name, *args, *summary;
    const char *text; /* what it does, with an example */
    int min_args, max_args;
    enum cmd_words words;
    const struct cmd_option *options;
    size_t n_options;
    int (*run)(const struct cmd_line *l);
};

/* A parsed command line. */
struct cmd_line {
    const struct cmd *cmd;
    const char *args[CMD_GIVEN];
    int n_args;
    struct {
        const struct cmd_option *option;
        const char *value; /* NULL for a switch */
    } given[CMD_GIVEN];
    int n_given;
};

extern const struct cmd cmds[];
extern const size_t n_cmds;
/* Options that every command takes. */
extern const struct cmd_option cmd_common[];
extern const size_t n_cmd_common;

const struct cmd *cmd_find(const char *name);

/* Parse what follows the command's name. -ERR_CONFIG with a message. */
int cmd_parse(struct cmd_line *l, const struct cmd *cmd, int n, char **words,
              struct err *e) MUST_CHECK;
/* The i-th value of an option ("" for a switch), or NULL. */
const char *cmd_value(const struct cmd_line *l, const char *option, int i);

/* Print the error and return the exit status that belongs to it. */
int cmd_fail(const struct err *e);
/* Write a text to stdout, release it, and return 0; or fail when rc is an error or stdout is closed. */
int cmd_print(struct buf *text, int rc, struct err *e);

/* Load the job that the i-th argument names, with the --set options. */
int cmd_load_job(const struct cmd_line *l, int i, struct job *j, struct err *e) MUST_CHECK;

/* The usage of one command, of the whole program. */
int cmd_usage(const struct cmd *cmd, struct buf *out, struct err *e) MUST_CHECK;
int cmd_overview(struct buf *out, struct err *e) MUST_CHECK;

/* Commands. */
int cmd_run(const struct cmd_line *l);
int cmd_check(const struct cmd_line *l);
int cmd_show(const struct cmd_line *l);
int cmd_status(const struct cmd_line *l);
int cmd_retry(const struct cmd_line *l);
int cmd_diff(const struct cmd_line *l);
int cmd_help(const struct cmd_line *l);
int cmd_inspect(const struct cmd_line *l);
int cmd_tokenize(const struct cmd_line *l);
int cmd_kv(const struct cmd_line *l);
int cmd_doctor(const struct cmd_line *l);
int cmd_bench(const struct cmd_line *l);
int cmd_version(const struct cmd_line *l);

#endif

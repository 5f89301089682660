/* The list of commands, as `quire help` prints it. */
#include "pipeline/cmd.h"

static const char *const log_levels[] = {"error", "warn", "info", "debug", "trace", NULL};

const struct cmd_option cmd_common[] = {
    {"--help", NULL, "print this (also -h)", NULL},
    {"--quiet", NULL, "log errors only, no progress (also -q)", NULL},
    {"--verbose", NULL, "log a line per document (also -v)", NULL},
    {"--log-level", "LEVEL", "error, warn, info, debug (per document) or trace (per chunk)",
     log_levels},
};
const size_t n_cmd_common = ARRAY_LEN(cmd_common);

#define SET_OPTION                                                                             \
    {                                                                                          \
        "--set", "KEY=VALUE", "set a key for this time; may be repeated", NULL                 \
    }

static const struct cmd_option job_options[] = {SET_OPTION};
static const struct cmd_option show_options[] = {
    SET_OPTION,
    {"--prompt", NULL, "print the prompt of an example, and its tokens, instead", NULL},
};
static const struct cmd_option help_options[] = {
    {"--markdown", NULL, "print docs/job-file.md", NULL},
    {"--schema", NULL, "print docs/job.schema.json", NULL},
    {"--completion", NULL, "print docs/completion/quire.bash", NULL},
};

#define OPTIONS(table) table, ARRAY_LEN(table)

const struct cmd cmds[] = {
    {"check", "JOB", "parse and plan a job, touch nothing",
     "Reads the job file, counts the documents' files, reads the model's metadata, proves the "
     "chat template,\n"
     "and prints how much memory the run will take. Nothing is written and no document is "
     "opened.\n\n"
     "  quire check jobs/summarize.yaml\n"
     "  quire check jobs/summarize.yaml --set model.context=4096",
     1, 1, WORDS_JOB, OPTIONS(job_options), cmd_check},
    {"show", "JOB", "print the job with every default filled in",
     "The output is a job file that runs the same from any folder.\n\n"
     "  quire show jobs/summarize.yaml > resolved.yaml\n"
     "  quire show --prompt jobs/summarize.yaml      what the model will be given, token by "
     "token",
     1, 1, WORDS_JOB, OPTIONS(show_options), cmd_show},
    {"help", "[COMMAND|KEY]", "explain a command, a section of the job file, or a key",
     "  quire help run\n"
     "  quire help decode\n"
     "  quire help decode.max_tokens\n"
     "  quire help max_tokens",
     0, 1, WORDS_TOPIC, OPTIONS(help_options), cmd_help},
    {"version", "", "print the version", "  quire version", 0, 0, WORDS_NONE, NULL, 0,
     cmd_version},
};
const size_t n_cmds = ARRAY_LEN(cmds);

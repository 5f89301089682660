/* The list of commands, as `quire help` prints it. */
#include "pipeline/cmd.h"

static const char *const log_levels[] = {"error", "warn", "info", "debug", "trace", NULL};

static const char *const progress_values[] = {"auto", "bar", "lines", "none", NULL};

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

static const struct cmd_option run_options[] = {
    SET_OPTION,
    {"--restart", NULL, "begin anew: forget what earlier runs of the job have done", NULL},
    {"--verify-model", NULL, "compute the model's digest anew: the same as model.verify=yes",
     NULL},
    {"--quiet-if-locked", NULL,
     "say nothing when another run of this job is at work; the status is 75 all the same",
     NULL},
    {"--progress", "HOW", "auto (bar on a terminal, else lines), bar, lines or none",
     progress_values},
};
static const struct cmd_option job_options[] = {SET_OPTION};
static const struct cmd_option show_options[] = {
    SET_OPTION,
    {"--prompt", NULL, "print the prompt of an example, and its tokens, instead", NULL},
};
static const struct cmd_option status_options[] = {
    SET_OPTION,
    {"--json", NULL, "print JSON", NULL},
};
static const struct cmd_option retry_options[] = {
    SET_OPTION,
    {"--failed", NULL, "documents that failed", NULL},
};
static const struct cmd_option inspect_options[] = {
    {"--context", "TOKENS", "plan for this context", NULL},
    {"--batch", "N", "plan for this many answers side by side", NULL},
};
static const struct cmd_option tokenize_options[] = {
    {"--ids", NULL, "print the ids only", NULL},
    {"--special", NULL, "read <|im_start|> and the like in the text as special tokens", NULL},
};
static const struct cmd_option kv_options[] = {
    {"--json", NULL, "list, stats, trace: print JSON lines", NULL},
    {"--context", "DIGITS", "list, gc, pin, unpin: records whose context begins so", NULL},
    {"--key", "DIGITS", "list, pin, unpin: records whose key begins so", NULL},
    {"--all", NULL, "gc, pin, unpin: every record (gc: that is not pinned)", NULL},
    {"--older-than", "TIME", "gc: what was not used for so long: 30d, 12h", NULL},
    {"--limit", "BYTES", "gc: what is worth least, until the rest fits: 5GiB", NULL},
    {"--dry-run", NULL, "gc: say what would go, and change nothing", NULL},
    {"--last", "N", "trace: the last N events only", NULL},
};
static const struct cmd_option bench_options[] = {
    {"--json", NULL, "print JSON", NULL},
    {"--what", "LIST", "of load, prefill, decode, gemm, attention, codecs, spill; default: all",
     NULL},
    {"--quick", NULL, "some 20 seconds instead of two minutes", NULL},
    {"--threads", "N", "default: what `quire doctor` says", NULL},
    {"--kernels", "TABLE", "as model.kernels", NULL},
    {"--depth", "TOKENS", "of the deep prefill; default 6000, quick: 2048", NULL},
    {"--folder", "FOLDER", "where pages are spilled to; default: $TMPDIR or /tmp", NULL},
};
static const struct cmd_option help_options[] = {
    {"--markdown", NULL, "print docs/job-file.md", NULL},
    {"--schema", NULL, "print docs/job.schema.json", NULL},
    {"--completion", NULL, "print docs/completion/quire.bash", NULL},
};

#define OPTIONS(table) table, ARRAY_LEN(table)

const struct cmd cmds[] = {
    {"run", "JOB", "run a job: one record for every document",
     "Reads the documents, asks the model, and writes the results to the folder that write.to "
     "names. What cannot\n"
     "be answered is a record with a reason. SIGINT and SIGTERM finish what is in flight.\n"
     "A run that ended early, in whatever way, is gone on with by the next one; documents that "
     "are finished and\n"
     "unchanged are kept. With other settings a job is refused, unless --restart says so.\n\n"
     "  quire run jobs/summarize.yaml\n"
     "  quire run jobs/summarize.yaml --set ingest.from=inbox --set write.to=out",
     1, 1, WORDS_JOB, OPTIONS(run_options), cmd_run},
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
    {"status", "JOB", "what is done of a job, while it runs or after",
     "Reads the ledger in the folder that write.to names; a run that is at work is not "
     "disturbed.\n"
     "States: not begun, running, stopped (run it again to go on), finished.\n\n"
     "  quire status jobs/summarize.yaml\n"
     "  quire status jobs/summarize.yaml --json | jq .documents",
     1, 1, WORDS_JOB, OPTIONS(status_options), cmd_status},
    {"retry", "JOB", "have documents that failed done again",
     "Marks them in the ledger; the next run of the job does them again and keeps the others.\n"
     "Exits with 75 while a run is at work.\n\n"
     "  quire retry --failed jobs/summarize.yaml && quire run jobs/summarize.yaml",
     1, 1, WORDS_JOB, OPTIONS(retry_options), cmd_retry},
    {"diff", "RUN RUN", "which documents two runs answered differently",
     "Each RUN is an output folder or a results.jsonl. Documents are paired by their id. A "
     "line for "
     "each that only\n"
     "one run has, that ended in another way, or whose answer differs. Exits with 0 when there "
     "is "
     "none, else 1.\n\n"
     "  quire diff out/before out/after",
     2, 2, WORDS_NONE, NULL, 0, cmd_diff},
    {"help", "[COMMAND|KEY]", "explain a command, a section of the job file, or a key",
     "  quire help run\n"
     "  quire help decode\n"
     "  quire help decode.max_tokens\n"
     "  quire help max_tokens",
     0, 1, WORDS_TOPIC, OPTIONS(help_options), cmd_help},
    {"inspect", "MODEL.gguf", "what a model file holds and the memory it takes",
     "Metadata, tensors, vocabulary, chat template, and the memory plan of a job with this "
     "model.\n\n"
     "  quire inspect model.gguf\n"
     "  quire inspect model.gguf --context 32768 --batch 4",
     1, 1, WORDS_MODEL, OPTIONS(inspect_options), cmd_inspect},
    {"tokenize", "MODEL.gguf [FILE]", "print the tokens of a text",
     "Reads FILE, or standard input, and prints a line per token: its id and its bytes.\n"
     "The text is read as a document is: what looks like a special token stays text.\n\n"
     "  echo \"The bridge.\" | quire tokenize model.gguf\n"
     "  quire tokenize model.gguf notes.txt --ids | wc -l",
     1, 2, WORDS_MODEL, OPTIONS(tokenize_options), cmd_tokenize},
    {"kv", "WORD FILE|FOLDER", "look into the KV store",
     "list, stats     what a folder of KV pages holds\n"
     "verify          read every record and check it; what is damaged is not used any more\n"
     "gc              remove what killed runs have left, and what the options say\n"
     "pin, unpin      records that are never given up for others, and those before them; or "
     "may be again\n"
     "trace           the events of KV pages that a run left in the folder of its store, or is "
     "writing\n\n"
     "A folder of KV pages may be deleted at any time: its pages are then computed again. "
     "docs/kv-store.md and\n"
     "docs/kv-tracing.md say more.\n\n"
     "  quire kv list kv/ --context 1f3a\n"
     "  quire kv gc kv/ --older-than 30d --limit 5GiB\n"
     "  quire kv trace kv/ --last 20\n"
     "  quire kv trace kv/events.ring --json",
     2, 2, WORDS_NONE, OPTIONS(kv_options), cmd_kv},
    {"doctor", "[kernels] [JOB]", "is this machine, and this job, ready?",
     "Prints a line per check: ok, warn (the run works, but not as it could) or fail, and what "
     "to "
     "do. Nothing is\n"
     "written. The exit status is 1 when a check failed.\n"
     "With \"kernels\": which table of kernels computes and why, how many threads, and what "
     "the "
     "machine can do\n"
     "at most, which takes three seconds.\n\n"
     "  quire doctor\n"
     "  quire doctor jobs/summarize.yaml\n"
     "  quire doctor kernels",
     0, 2, WORDS_JOB, OPTIONS(job_options), cmd_doctor},
    {"bench", "MODEL.gguf", "how fast a model runs here",
     "Loads the model and times pieces of work as a run does them: reading prompts, writing "
     "answers side by\n"
     "side, products of every type of weights, attention, the codecs of KV pages, a prefix "
     "that goes to\n"
     "disk and comes back. Beside each speed stands its share of what the machine could do at "
     "most, measured\n"
     "in the same minutes. docs/speed.md says more.\n\n"
     "  quire bench model.gguf\n"
     "  quire bench model.gguf --quick --what prefill,decode\n"
     "  quire bench model.gguf --json > bench.json",
     1, 1, WORDS_MODEL, OPTIONS(bench_options), cmd_bench},
    {"version", "", "print the version", "  quire version", 0, 0, WORDS_NONE, NULL, 0,
     cmd_version},
};
const size_t n_cmds = ARRAY_LEN(cmds);

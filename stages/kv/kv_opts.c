#include "stages/kv/kv_opts.h"

static const char *const codecs[] = {"raw", "split", "q8", "k8v4", "q4", "layered", NULL};
static const char *const keeps[] = {"auto", "all", "none", NULL};

#define AT(field) offsetof(struct kv_config, field)

const struct opt kv_opts[] = {
    {"memory", OPT_BYTES, AT(memory), "0", 0, 0x1p50, NULL, OPT_LIMIT,
     "Memory of the KV page pool. 0: what decode.batch sequences need, at most half of the "
     "free memory."},
    {"reuse", OPT_BOOL, AT(reuse), "yes", 0, 0, NULL, OPT_FREE,
     "Compute a prefix that requests share once. Never changes an answer."},
    {"disk", OPT_PATH, AT(disk), NULL, 0, 0, NULL, OPT_ENV | OPT_FREE,
     "Folder for KV pages: what is computed tonight is found by the next run, and prompts that "
     "wait make room "
     "in memory. Jobs and processes can share it; deleting it costs only time. Unset: memory "
     "alone."},
    {"disk_limit", OPT_BYTES, AT(disk_limit), "20GiB", 0, 0x1p50, NULL, OPT_FREE,
     "Most that the folder may occupy on disk; what is worth least makes room. 0: no limit."},
    {"codec", OPT_ENUM, AT(codec), "split", 0, 0, codecs, OPT_FREE,
     "How pages are stored. raw and split are exact. q8, k8v4, q4 and layered take a half to a "
     "quarter of the "
     "space and round every page, also those in memory: answers are the same on each run, but "
     "not those of "
     "an exact run (docs/kv-codecs.md has what each costs). q8 halves the memory of prompts, "
     "too."},
    {"keep", OPT_ENUM, AT(keep), "auto", 0, 0, keeps, OPT_FREE,
     "What is kept on disk for the next run. auto: what this job's prompts share, and what an "
     "earlier run has "
     "used; text that comes once is not stored. all: every prompt. none: nothing."},
    {"ahead", OPT_INT, AT(ahead), "8", 0, 64, NULL, OPT_FREE,
     "Prompts that prefill may be ahead of decode, with their pages on disk where memory is "
     "short. Needs kv.disk."},
};
const size_t n_kv_opts = sizeof(kv_opts) / sizeof(kv_opts[0]);

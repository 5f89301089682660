#include "pipeline/limits_opts.h"

#define AT(field) offsetof(struct limits_config, field)

const struct opt limits_opts[] = {
    {"memory", OPT_BYTES, AT(memory), "0", 0, 0x1p50, NULL, 0,
     "Memory of the whole run. A plan that needs more is refused before anything is opened. 0: "
     "what the "
     "machine has free, or what the control group allows if that is less."},
    {"threads", OPT_INT, AT(threads), "0", 0, 1024, NULL, 0,
     "Threads that compute. 0: one per CPU that this process may use. Never changes an "
     "answer."},
    {"queue", OPT_INT, AT(queue), "8", 1, 1024, NULL, 0,
     "Records that may wait between two stages; a slow stage stops the fast ones. Never "
     "changes an answer."},
    {"queue_bytes", OPT_BYTES, AT(queue_bytes), "32MiB", 65536, 0x1p40, NULL, 0,
     "Bytes that the records between all stages may hold; one record is always let through."},
    {"drain", OPT_SECONDS, AT(drain), "20s", 0, 86400, NULL, 0,
     "After SIGINT or SIGTERM: how long answers that were begun may take to finish. What is "
     "not "
     "finished then has no record; the next run begins anew."},
};
const size_t n_limits_opts = sizeof(limits_opts) / sizeof(limits_opts[0]);

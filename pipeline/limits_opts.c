#include "pipeline/limits_opts.h"

#define AT(field) offsetof(struct limits_config, field)

const struct opt limits_opts[] = {
    {"memory", OPT_BYTES, AT(memory), "0", 0, 0x1p50, NULL, OPT_FREE,
     "Memory of the whole run. A plan that needs more is refused before anything is opened. 0: "
     "what the "
     "machine has free, or what the control group allows if that is less."},
    {"threads", OPT_INT, AT(threads), "0", 0, 1024, NULL, OPT_FREE,
     "Threads that compute. 0: one per CPU that this process may use. Never changes an "
     "answer."},
    {"queue", OPT_INT, AT(queue), "8", 1, 1024, NULL, OPT_FREE,
     "Records that may wait between two stages; a slow stage stops the fast ones. Never "
     "changes an answer."},
    {"queue_bytes", OPT_BYTES, AT(queue_bytes), "32MiB", 65536, 0x1p40, NULL, OPT_FREE,
     "Bytes that the records between all stages may hold; one record is always let through."},
    {"drain", OPT_SECONDS, AT(drain), "20s", 0, 86400, NULL, OPT_FREE,
     "After SIGINT or SIGTERM: how long answers that were begun may take to finish. The next "
     "run goes on where this one ended."},
    {"deadline", OPT_STRING, AT(deadline), NULL, 0, 0, NULL, OPT_ENV | OPT_FREE,
     "When the run has to be over: a time of day (06:00, the next one, local time), a duration "
     "from its start (8h), or a moment in seconds of Unix time (${SLURM_JOB_END_TIME}). No "
     "document is begun that cannot be done by then, judged by the speed so far; the run ends "
     "with status 4, and the next one goes on. Texts with a colon and two digits need no "
     "quotes."},
    {"deadline_margin", OPT_SECONDS, AT(deadline_margin), "30s", 0, 86400, NULL, OPT_FREE,
     "So long before limits.deadline all is to be done. What is not has limits.drain more, but "
     "not beyond the deadline."},
    {"per_document", OPT_SECONDS, AT(per_document), "0s", 0, 864000, NULL, OPT_LIMIT,
     "How long the model may work for one document, from its first prompt to its last answer; "
     "longer is a failure (limit). Documents are worked on side by side, and each waits for "
     "the others in this time. 0: no limit. Reading has its own, ingest.timeout."},
    {"max_failures", OPT_STRING, AT(max_failures), NULL, 0, 0, NULL, OPT_FREE,
     "More failed documents than this end the run in order, with status 3: something is wrong "
     "with more than a document. A number (20), or a share of those that are done (5%, from "
     "the 20th on). Unset: no limit."},
};
const size_t n_limits_opts = sizeof(limits_opts) / sizeof(limits_opts[0]);

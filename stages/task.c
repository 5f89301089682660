#include "stages/task.h"

static const char *const kinds[] = {"summarize", "ask", "complete", NULL};
static const char *const strategies[] = {"auto", "single", "map_reduce", NULL};

#define AT(field) offsetof(struct task_config, field)

const struct opt task_opts[] = {
    {"kind", OPT_ENUM, AT(kind), "summarize", 0, 0, kinds, 0,
     "What to do with each document: summarize it, ask it one or more questions, or complete "
     "it as it is "
     "(the document is the prompt, without a chat template)."},
    {"strategy", OPT_ENUM, AT(strategy), "auto", 0, 0, strategies, 0,
     "How a document meets the context. single: one prompt, and a document that does not fit "
     "fails. "
     "map_reduce: every document is cut into chunks, each is answered, and the partial answers "
     "are "
     "combined level by level. auto: single when it fits, else map_reduce."},
    {"questions", OPT_STRINGS, AT(questions), NULL, 0, 0, NULL, 0,
     "For ask: the questions. Each gets its own answer; the document is read once for all of "
     "them."},
    {"max_levels", OPT_INT, AT(max_levels), "6", 1, 32, NULL, 0,
     "Levels of combining before a document fails with the reason that its partial answers do "
     "not shrink."},
    {"partial_tokens", OPT_TOKENS, AT(partial_tokens), "0", 0, 1 << 20, NULL, 0,
     "Longest partial answer of map_reduce, in tokens. 0: the same as decode.max_tokens."},
};
const size_t n_task_opts = sizeof(task_opts) / sizeof(task_opts[0]);

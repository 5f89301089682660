/* stages/task.h - what is asked of each document: the `task` section of the job file. */
#ifndef QUIRE_TASK_H
#define QUIRE_TASK_H

#include "stages/base/opt.h"

enum task_kind { TASK_SUMMARIZE, TASK_ASK, TASK_COMPLETE };
enum task_strategy { STRATEGY_AUTO, STRATEGY_SINGLE, STRATEGY_MAP_REDUCE };

struct task_config {
    int kind;                  /* enum task_kind */
    int strategy;              /* enum task_strategy */
    struct opt_list questions; /* ask */
    int max_levels;            /* reduce levels before the document fails */
    int partial_tokens;        /* max_tokens of level-0 answers; 0: as decode.max_tokens */
};

extern const struct opt task_opts[];
extern const size_t n_task_opts;

#endif

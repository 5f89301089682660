/* pipeline/stage_table.h - the order of the stages, and which of them share a thread.
 *
 * Read:   this table is the only place that knows the order; flow.h runs it.
 */
#ifndef QUIRE_PIPELINE_STAGE_TABLE_H
#define QUIRE_PIPELINE_STAGE_TABLE_H

#include "stages/stage.h"

struct stage_row {
    const struct stage_ops *ops;
    int thread;   /* rows with the same number share one; rising from 0 without gaps */
    bool compute; /* its thread leads the compute team */
    int loop_to;  /* row that its ANSWER_REDUCE records go back to, 0: none */
};

extern const struct stage_row stage_table[];
extern const int n_stages;

#endif

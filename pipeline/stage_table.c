#include "pipeline/stage_table.h"

/* Prefill and decode share a thread because they share the device: while one computes, the other
 * could only wait, and the page pool then has one owner and no lock. */
const struct stage_row stage_table[] = {
    {&ingest_stage, .thread = 0},
    {&chunk_stage, .thread = 1},
    {&tokenize_stage, .thread = 2},
    {&prefill_stage, .thread = 3, .compute = true},
    {&decode_stage, .thread = 3, .compute = true, .loop_to = 2},
    {&write_stage, .thread = 4},
};
const int n_stages = sizeof(stage_table) / sizeof(stage_table[0]);

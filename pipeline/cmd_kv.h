/* pipeline/cmd_kv.h - what `quire kv` can do: one function in a cmd_kv_*.c file for each of its words. */
#ifndef QUIRE_PIPELINE_CMD_KV_H
#define QUIRE_PIPELINE_CMD_KV_H

#include "pipeline/cmd.h"

/* args[0] of the line is the word itself; args[1] is there, and no option that the word does not take. */
int cmd_kv_trace(const struct cmd_line *l);

#endif

/* pipeline/cmd_prompt.h - prompts and tokens as lines of text. */
#ifndef QUIRE_PIPELINE_CMD_PROMPT_H
#define QUIRE_PIPELINE_CMD_PROMPT_H

#include "pipeline/job.h"
#include "stages/model/vocab.h"

/* The prompts over an example text, token by token. */
int cmd_show_prompt(const struct job *j, struct buf *out, struct err *e) MUST_CHECK;

/* One token as a line: id, its bytes escaped and quoted, and marks for special and end tokens. */
int cmd_print_token(const struct vocab *v, int32_t id, struct buf *out,
                    struct err *e) MUST_CHECK;

#endif

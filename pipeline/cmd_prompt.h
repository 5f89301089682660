/* pipeline/cmd_prompt.h - a job's model and prompts, opened without its weights, and the prompt of an example. */
#ifndef QUIRE_PIPELINE_CMD_PROMPT_H
#define QUIRE_PIPELINE_CMD_PROMPT_H

#include "pipeline/job.h"
#include "stages/model/model.h"
#include "stages/model/prompt.h"

struct cmd_setup {
    struct model *model;
    struct chat *chat;
    struct prompts *prompts;
};

/* Reads metadata only. On failure *s is closed. */
int cmd_setup_open(struct cmd_setup *s, const struct job *j, struct err *e) MUST_CHECK;
void cmd_setup_close(struct cmd_setup *s); /* safe on a zeroed struct */

/* The prompts over an example text, token by token. */
int cmd_show_prompt(const struct job *j, struct buf *out, struct err *e) MUST_CHECK;

/* One token as a line: id, its bytes escaped and quoted, and marks for special and end tokens. */
int cmd_print_token(const struct vocab *v, int32_t id, struct buf *out,
                    struct err *e) MUST_CHECK;

#endif

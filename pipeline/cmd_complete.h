/* pipeline/cmd_complete.h - shell completion, made from the tables of commands and sections.
 * docs/completion/quire.bash is this output; a test compares them. */
#ifndef QUIRE_PIPELINE_CMD_COMPLETE_H
#define QUIRE_PIPELINE_CMD_COMPLETE_H

#include "stages/base/buf.h"

/* A script for bash; zsh reads it after `autoload bashcompinit && bashcompinit`. */
int cmd_complete_bash(struct buf *out, struct err *e) MUST_CHECK;

#endif

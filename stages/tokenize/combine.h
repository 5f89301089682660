/* stages/tokenize/combine.h - from a complete level of partial answers to the requests of the next.
 *
 * What:   one final request when all of them fit into one prompt, else one request per group (group.h).
 * Rules:  1. Levels are bounded by task.max_levels, the last one included.
 *         2. A level that does not fit into one prompt must have left at most three quarters of the tokens
 *            that went into it; else "partial answers do not shrink".
 *         3. A partial answer that is too long for a prompt alone fails by name.
 */
#ifndef QUIRE_TOKENIZE_COMBINE_H
#define QUIRE_TOKENIZE_COMBINE_H

#include "stages/stage.h"
#include "stages/tokenize/reduce.h"

/* The level of question i of d is complete. *out becomes a heap array of *n_out records to emit in order, and
 * the state stands at the next level. -ERR_LIMIT, -ERR_NOMEM (reach DOC): the question has failed. */
int combine_level(const struct stage_env *env, struct doc_state *d, int i, struct rec ***out,
                  int *n_out, struct err *e) MUST_CHECK;

#endif

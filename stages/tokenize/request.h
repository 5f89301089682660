/* stages/tokenize/request.h - one request: a prompt as tokens, checked against the context as it really is.
 *
 * Rules:  1. n_tokens + max_tokens <= context holds for every request that is made.
  *         2. A request that an earlier run has answered is a record with that answer (REC_ANSWER); one that it
 *            has begun to answer has those tokens behind its prompt.
 *         3. The seed comes from the job's seed, the document's id, question, level and index, never from
 *            time or order.
 */
#ifndef QUIRE_TOKENIZE_REQUEST_H
#define QUIRE_TOKENIZE_REQUEST_H

#include "stages/model/prompt.h"
#include "stages/stage.h"

/* A record for the request q, of which use, max_tokens, question, level and index are set. v.title and
 * v.question are filled in here. -ERR_LIMIT with both numbers when it does not fit; -ERR_NOMEM; reach DOC. */
int request_make(const struct stage_env *env, struct doc *d, enum prompt_kind kind,
                 struct prompt_values v, struct request q, struct rec **out,
                 struct err *e) MUST_CHECK;

/* *room: tokens of text that fit into a prompt of this kind beside an answer of max_tokens; may be negative.
 * -ERR_NOMEM. */
int request_room(const struct stage_env *env, const struct doc *d, enum prompt_kind kind,
                 int question, int max_tokens, int64_t *room, struct err *e) MUST_CHECK;

/* max_tokens of a partial answer. */
int request_partial_tokens(const struct stage_env *env);

#endif

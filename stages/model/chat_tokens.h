/* stages/model/chat_tokens.h - from a rendered conversation to tokens, run by run.
 *
 * Rules:  1. A run of equal marks is tokenised on its own; only template text may become special tokens.
 *         2. A lone space that the template ends with before a user text is tokenised with that text, as it belongs
 *            to the first word; but not before segment first_own, whose tokens are counted on their own by those
 *            who cut it.
 *         3. Only the start of the prompt gets the space that a SentencePiece vocabulary puts in front, and only if
 *            it is text that begins without one.
 */
#ifndef QUIRE_MODEL_CHAT_TOKENS_H
#define QUIRE_MODEL_CHAT_TOKENS_H

#include "stages/model/marked.h"
#include "stages/model/vocab.h"

/* Append the tokens of t. own_mark: the first mark of a text that is not the same in all prompts; n_shared (may be
 * NULL) gets the length of out before it, or after the last shared user text when there is none. */
int chat_tokens(const struct vocab *v, struct mtext t, int own_mark, struct token_list *out,
                int *n_shared, struct err *e) MUST_CHECK;

#endif

/* stages/model/null_model.h - no model at all: each answer spells a hash of its prompt.
 *
 * What:   logits that put one byte token far above the rest: the 16 hexadecimal digits of a hash of the
 *         prompt (the tokens up to the last <turn>), then <eos>. Drives tests of the whole pipeline in
 *         milliseconds, and lets a user try a job file without a model. Prompts that hold the text
 *         "@fail@" make the pass fail for that sequence, "@loop@" repeats one sentence without end,
 *         "@long@" never ends.
 */
#ifndef QUIRE_MODEL_NULL_MODEL_H
#define QUIRE_MODEL_NULL_MODEL_H

#include "stages/model/model.h"

void null_model_hparams(struct hparams *h);
/* Logits of the token after tokens[0, n): [n_vocab]. False: fail this sequence. */
bool null_model_logits(const int32_t *tokens, int n, float *logits);

#endif

/* stages/model/null_model.h - no model at all: each answer spells a hash of its prompt.
 *
 * What:   logits that put one byte token far above the rest: the 16 hexadecimal digits of a hash of the
 *         prompt (the tokens up to the last <turn>), then <eos>. Drives tests of the whole pipeline in
 *         milliseconds, and lets a user try a job file without a model. Prompts that hold the text
 *         "@fail@" make the pass fail for that sequence, "@loop@" repeats one sentence without end,
 *         "@long@" never ends, "@slow@" takes 20 s for each token. A prompt without <turn> ends where what follows begins to spell its hash.
 * Pages:  64 token ids in one slice. Each pass checks that the pages of the sequence hold the tokens
 *         before its rows, so that a page shared or kept by mistake fails a test that has no model.
 */
#ifndef QUIRE_MODEL_NULL_MODEL_H
#define QUIRE_MODEL_NULL_MODEL_H

#include "stages/model/model.h"

enum { NULL_MODEL_SLICE_BYTES = 64 * 4 };

void null_model_hparams(struct hparams *h);
/* Logits of the token after tokens[0, n): [n_vocab]. False: fail this sequence. */
bool null_model_logits(const int32_t *tokens, int n, float *logits);
/* The part of a pass that belongs to one sequence: checks and fills its pages, writes its logits. */
void null_model_forward(struct forward_rows *s);

#endif

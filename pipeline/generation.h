/* pipeline/generation.h - all that the bytes of a record depend on, beside its document.
 *
 * What:   a list of keys and values: settings of the job, the model, the template, versions of quire itself. A run
 *         goes on with what earlier ones have done only where all of them are the same (stages/ledger/ledger.h).
 */
#ifndef QUIRE_PIPELINE_GENERATION_H
#define QUIRE_PIPELINE_GENERATION_H

#include "pipeline/setup.h"
#include "stages/ledger/ledger.h"

/* Version of how records are made from answers, and answers from tokens: grows when one of them changes. */
enum { RECORD_VERSION = 1 };

/* Of a setup that is open. */
int generation_settings(struct ledger_settings *out, const struct setup *s,
                        const struct job *job, struct err *e) MUST_CHECK;

/* A digest of all but those that only are limits. */
void generation_digest(const struct ledger_settings *s, char hex[HASH_HEX]);

#endif

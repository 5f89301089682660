/* pipeline/resume.h - where a run begins: what earlier runs of the job have left in the output folder.
 *
 *     results.jsonl.partial --adopted--> ledger <--compared-- settings of this job
 */
#ifndef QUIRE_PIPELINE_RESUME_H
#define QUIRE_PIPELINE_RESUME_H

#include "pipeline/setup.h"
#include "stages/write/output.h"

/* Open the ledger of the output folder and begin a run in it. Records of the results that it does not know are adopted.
 * restart: what is there is dropped, but for the results of a finished run, which stay until the new ones are published.
 * -ERR_CONFIG: what is there was made with other settings; each is named in the log. */
int resume_open(struct ledger **out, struct output *o, const struct setup *s,
                const struct job *job, bool restart, struct err *e) MUST_CHECK;

#endif

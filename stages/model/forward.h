/* stages/model/forward.h - the pass through the layers, written once for all architectures.
 *
 * What:   docs/model.md in code: rows of any mix of sequences go through embedding, layers and head.
 * Rules:  1. All memory is had by forward_new(); a pass allocates nothing.
 *         2. Every step works row by row, or on the rows of one sequence: no row sees another sequence.
 */
#ifndef QUIRE_MODEL_FORWARD_H
#define QUIRE_MODEL_FORWARD_H

#include "stages/model/model.h"
#include "stages/model/weights.h"

struct forward;

struct forward_limits {
    int rows, logits; /* of one pass */
    int context;      /* longest sequence */
};

/* Bytes that forward_new() takes. */
uint64_t forward_bytes(const struct hparams *h, struct forward_limits limits);
/* Most bytes of the embedding that are in memory through the map of the file. */
uint64_t forward_mapped_bytes(struct forward_limits limits);
/* h, w and k must outlive it. -ERR_NOMEM, reach JOB. */
int forward_new(struct forward **out, const struct hparams *h, const struct weights *w,
                const struct kernels *k, struct forward_limits limits,
                struct err *e) MUST_CHECK;
void forward_free(struct forward *f);

/* As model_forward(), which has checked the limits. */
int forward_run(struct forward *f, struct forward_rows *seqs, int n_seqs,
                struct err *e) MUST_CHECK;

#endif

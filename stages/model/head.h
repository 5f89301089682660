/* stages/model/head.h - the last product: from rows to logits, or only to the greatest of them.
 *
 * What:   logits are products with inputs in 16 bits: of the first 8 bits and of the other 8, added. For the greatest few the
 *         second part, half of the work, is computed only where it can matter.
 * Rules:  1. head_leading() gives what would be found in what head_logits() gives, always: what is left out is proven to be
 *            less (head.c).
 *         2. Nothing is allocated.
 * Thread: one, which may use a team.
 */
#ifndef QUIRE_MODEL_HEAD_H
#define QUIRE_MODEL_HEAD_H

#include "kernels/kernels.h"
#include "stages/model/leading.h"

enum {
    HEAD_ROWS = 24, /* rows that are worked on at once */
};

struct head {
    const struct kernels *k;
    const struct kern_weights *w;
    bool bounded; /* norms are known; else all is computed always */
    float most;   /* of norms */
    /* The caller's: */
    float *out;       /* [2 * rows of a call][n_vocab] */
    float *norms;     /* [panels] bounds of the norms of their rows */
    uint8_t *marks;   /* [rows of a call][panels] */
    float *maxima;    /* likewise */
    bool *exact;      /* [panels] */
    void *rest_input; /* kern_input_bytes(rows of a call, n_embd) */
    void *scratch;    /* of products */
};

static inline int head_panels(const struct kern_weights *w)
{
    return (w->n_out + 15) / 16;
}

/* Read all weights once, on all threads, for their norms. */
void head_measure(struct head *h);

/* in: n rows, prepared, n <= HEAD_ROWS; with rest the rows n .. 2n-1 are their remainders, and in->rows is 2n.
 * out[r]: [n_vocab]. ok[r]: they are all finite. */
void head_logits(struct head *h, const struct kern_input *in, bool rest, float *const *out,
                 bool *ok);
/* in as above, with remainders. lists[r], which is empty, gets as many as it has room for, in order. ok[r] is false where
 * a logit is not finite; the list is then left empty. */
void head_leading(struct head *h, const struct kern_input *in, struct leading *lists, bool *ok);
/* The same, of logits [n_vocab] that are all there, and finite. */
void head_find_leading(struct head *h, const float *logits, struct leading *list);

#endif

/* stages/tokenize/reduce.h - what is known of one document while its requests are on their way.
 *
 * What:   the state of a document: its chunks, the partial answers of each question, level by level, and
 *         its token account. tokenize.c moves it, combine.c makes the next level; this keeps it.
 * Rules:  1. It hangs on doc->task and holds a reference of its own to the document.
 *         2. It is over when every chunk has come and no request with use ANSWER_REDUCE is out.
 *         3. Partial answers lie at their index, and of several failures of a question the one with the
 *            lowest index is kept: the order in which things come never matters.
 *         4. A question that failed makes no more requests; the others go on, so that which failure the
 *            document reports (the lowest question's) does not depend on the order either.
 * Thread: the tokenize stage's.
 */
#ifndef QUIRE_TOKENIZE_REDUCE_H
#define QUIRE_TOKENIZE_REDUCE_H

#include "stages/rec.h"

/* One level of one question. */
struct level {
    int number;        /* 0: over chunks */
    struct answer *at; /* [n]; text NULL: not there yet */
    int n, have;
    int64_t
        tokens_before; /* that went into this level; level 0: the document's, known when it is complete */
};

struct question_state {
    struct level level;
    struct token_account account; /* prompt, reused, generated of its partial answers */
    struct timings timings;
    unsigned flags;
    int n_levels;              /* levels of combining, the last one included */
    struct part_answer *parts; /* [n_chunks] kept level-0 answers, or NULL */
    struct err why;            /* it failed */
    int why_index;
};

struct doc_state {
    struct doc_state *prev, *next; /* of the stage's list */
    struct doc *doc;
    struct chunk *chunks; /* [n_chunks], filled as they come; heading paths are owned */
    int n_chunks, chunks_seen;
    struct question_state *questions; /* [n_questions] */
    int n_questions;
    int in_flight;  /* requests with use ANSWER_REDUCE that have not come back */
    int64_t tokens; /* of all chunks seen */
    size_t covered; /* bytes of them */
};

/* A state for a document of n_chunks chunks, hung on d->task; with n_chunks > 1 level 0 of each question has
 * begun, and keep says whether its answers are kept for the record. NULL: no memory. */
struct doc_state *doc_state_new(struct doc *d, int n_chunks, int n_questions, bool keep);
/* Takes it off the document. */
void doc_state_free(struct doc_state *s);

/* Take over a chunk (its heading path moves). */
struct chunk *doc_state_chunk(struct doc_state *s, struct chunk *c);
/* Take over the answer of a record with use ANSWER_REDUCE, or note its failure. True when it completed its
 * level and the question has not failed. */
bool doc_state_answer(struct doc_state *s, struct rec *r);
/* Note that question i failed at an index of its level. */
void doc_state_fail(struct doc_state *s, int i, int index, const struct err *why);
/* The failure that the document reports, or NULL. */
const struct err *doc_state_why(const struct doc_state *s);
bool doc_state_over(const struct doc_state *s);

/* Begin a level of n answers; the one before is dropped. -ERR_NOMEM, reach DOC. */
int level_begin(struct level *l, int number, int n, int64_t tokens_before,
                struct err *e) MUST_CHECK;
void level_release(struct level *l);

/* What the final request of question i carries; the kept answers move out. Heap. */
struct summary_info *doc_state_info(struct doc_state *s, int i);

#endif

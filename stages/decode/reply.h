/* stages/decode/reply.h - one answer while it is written: from token ids to text, and when to stop.
 *
 * What:   collects tokens and their bytes, follows the thinking in front, looks for stop strings and loops,
 *         and makes the answer when it ends.
 * Rules:  1. What ends an answer, in this order when several do at once: an end token, a stop string, a
 *            loop, max_tokens.
 *         2. Every token that was sampled counts, the end token too.
 *         3. After a loop, the text keeps one instance of what was repeated, up to the end of its sentence.
 *         4. Dropped thinking that never closes leaves an empty answer, flagged.
 *         5. After reply_open(), nothing is allocated but the growth of the bytes.
 * Thread: one owner; rules are immutable.
 * Read:   docs/tasks.md, How an answer ends; stop.h, repetition.h.
 */
#ifndef QUIRE_DECODE_REPLY_H
#define QUIRE_DECODE_REPLY_H

#include "stages/decode/decode_opts.h"
#include "stages/decode/repetition.h"
#include "stages/model/chat.h"
#include "stages/rec.h"

/* What all answers of a job have in common. */
struct reply_rules {
    const struct decode_config *config;
    const struct vocab *vocab;
    const char *think_open, *think_close; /* NULL: the model has no thinking marks */
    int32_t open_id, close_id;            /* tokens that spell the marks, -1: none */
};

/* chat may be NULL: no thinking marks. */
void reply_rules_init(struct reply_rules *r, const struct decode_config *c,
                      const struct vocab *v, const struct chat *chat);

enum reply_thinking { REPLY_UNDECIDED, REPLY_THINKS, REPLY_ANSWERS };

struct reply {
    const struct reply_rules *rules;
    int32_t *tokens; /* [max_tokens], the caller's */
    size_t *ends;    /* [max_tokens] bytes after each token; heap */
    int n, max_tokens;
    struct buf raw;  /* bytes of all tokens */
    size_t visible;  /* first byte after the thinking */
    size_t searched; /* stop strings were looked for up to here */
    size_t cut;      /* the answer ends here */
    int n_thinking;
    enum reply_thinking thinking;
    enum stopped_by stopped_by;
    struct repetition repetition;
};

/* Begin an answer to prompt[0, n_prompt), whose tokens go to tokens[max_tokens]. -ERR_NOMEM, reach DOC. */
int reply_open(struct reply *r, const struct reply_rules *rules, const int32_t *prompt,
               int n_prompt, int32_t *tokens, int max_tokens, struct err *e) MUST_CHECK;
void reply_close(struct reply *r); /* safe on a zeroed struct */

/* Take the next token. Returns 0 and sets stopped_by when it ends the answer (else STOP_NONE); -ERR_NOMEM. */
int reply_add(struct reply *r, int32_t id, struct err *e) MUST_CHECK;

/* The answer as it stands; text is heap. -ERR_NOMEM, reach DOC. */
int reply_answer(const struct reply *r, struct answer *out, struct err *e) MUST_CHECK;

#endif

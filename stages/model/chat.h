/* stages/model/chat.h - from a system text and turns to prompt tokens, by the model's chat template.
 *
 * What:   finds the template's family (by digest, by marks proven with a rendering of the file's own
 *         template, or as the job says), and renders conversations as segments: template text (tokenised
 *         with specials) and user text (tokenised as plain text; a border is a token border).
 * Rules:  1. Exactly one BOS, by token id, when the vocabulary or the template asks for one.
 *         2. A family without a system role puts the system text in front of the first user turn.
 *         3. Nothing a document says can become a special token.
 * Read:   docs/prompts.md. jinja.h is the interpreter that proves a guess.
 */
#ifndef QUIRE_MODEL_CHAT_H
#define QUIRE_MODEL_CHAT_H

#include "stages/model/model_opts.h"
#include "stages/model/vocab.h"

struct chat;

/* Choose and prove the template. g: the model file's metadata, or NULL; base: folder for a template file.
 * -ERR_CONFIG (reach JOB) with the families and how to set one when it cannot be proven. */
int chat_open(struct chat **out, const struct vocab *v, const struct gguf *g,
              const struct prompt_config *p, const char *base, struct err *e) MUST_CHECK;
/* The null model's: <bos>, texts, <turn>. */
struct chat *chat_null(const struct vocab *v);
void chat_free(struct chat *c);

const char *chat_family(const struct chat *c); /* "chatml", ..., "none" */
/* Lines for `quire check`: what was recognised, and how a system text travels. NULL-terminated. */
const char *const *chat_notes(const struct chat *c);

/* A piece of the user turn: plain text, whatever it spells. */
struct chat_segment {
    const char *text;
    size_t len;
};

/* Append the tokens of one prompt: [system] + one user turn made of n <= 250 segments (their texts joined; each
 * tokenised on its own) + the assistant header. n_shared (may be NULL): how many leading tokens come before
 * segment `first_own`. system NULL: the template's default. -ERR_LIMIT / -ERR_NOMEM, reach DOC; with a
 * template file also what its text raises. */
int chat_encode(const struct chat *c, const char *system, const struct chat_segment *turn,
                int n, int first_own, struct token_list *out, int *n_shared,
                struct err *e) MUST_CHECK;

/* The thinking marks of the model's answers, for decode.thinking; false when it has none. */
bool chat_thinking(const struct chat *c, const char **open_mark, const char **close_mark);

/* Digest of the template and family, for records. */
void chat_digest(const struct chat *c, uint8_t out[32]);

#endif

/* stages/model/prompt.h - the job's own texts with their placeholders filled in.
 *
 * What:   {{text}} {{title}} {{headings}} {{question}} in prompt.document and prompt.reduce, parsed once; the
 *         fixed cost of a prompt in tokens; prompts as token lists through chat.h.
 * Rules:  {{text}} appears exactly once in document and reduce; an unknown {{name}} is an error; "\{{" is "{{".
 *         Values are user text: never specials. A space before {{title}}, {{headings}} or {{question}} is tokenised
 *         with the value; newlines at the end of a text are dropped. What comes before the first value is the shared prefix.
 */
#ifndef QUIRE_MODEL_PROMPT_H
#define QUIRE_MODEL_PROMPT_H

#include "stages/model/chat.h"

struct prompts;

struct prompt_values {
    const char *text;
    size_t text_len;
    const char *title, *headings, *question; /* NULL: empty */
};

enum prompt_kind { PROMPT_DOCUMENT, PROMPT_REDUCE };

/* Parse the job's texts, with defaults for the task ("summarize", "ask", "complete"). `complete` has no template:
 * the document is the prompt. reach JOB. */
int prompts_open(struct prompts **out, const struct prompt_config *c, int task_kind,
                 const struct chat *chat, const struct vocab *v, struct err *e) MUST_CHECK;
void prompts_free(struct prompts *p);

/* Tokens of the prompt but for those of {{text}}, with the given other values: the fixed cost. -1: no memory. */
int prompt_fixed_tokens(const struct prompts *p, enum prompt_kind kind,
                        const struct prompt_values *v);

/* The whole prompt. n_shared: leading tokens equal for all documents (and questions, where the text comes first). */
int prompt_build(const struct prompts *p, enum prompt_kind kind, const struct prompt_values *v,
                 struct token_list *out, int *n_shared, struct err *e) MUST_CHECK;

/* Digest of texts and template, for records and cache decisions. */
void prompts_digest(const struct prompts *p, uint8_t out[32]);

#endif

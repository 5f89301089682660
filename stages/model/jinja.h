/* stages/model/jinja.h - a small interpreter for chat templates, safe to run on any text.
 *
 * What:   compiles the text of a Jinja template and renders a conversation with it, as Hugging Face's
 *         tokenizers do: trim_blocks and lstrip_blocks on, tools and documents none, messages,
 *         add_generation_prompt true, bos_token, eos_token, raise_exception() and strftime_now().
 * Not:    no files, no include, import or inheritance, no clock: the date is the job's.
 * Rules:  1. Limits on template size, nesting, steps, memory and output; reaching one is -ERR_LIMIT.
 *         2. User text keeps its marks (marked.h) through every operation.
 *         3. What is not known here is -ERR_UNSUPPORTED with its name and line, when it is reached.
 * Thread: a compiled template is immutable; each rendering has its own memory.
 * Read:   docs/prompts.md lists what is understood.
 */
#ifndef QUIRE_MODEL_JINJA_H
#define QUIRE_MODEL_JINJA_H

#include "stages/model/chat_message.h"

enum {
    JINJA_TEMPLATE_MAX = 256 * 1024, /* bytes; the longest in use has about 17 KB */
    JINJA_NESTING_MAX = 200,         /* brackets, operands, blocks */
    JINJA_DEPTH_MAX = 200,        /* expressions and calls within each other while rendering */
    JINJA_STEPS_MAX = 100 * 1000, /* plus one for every 16 bytes of the conversation */
};

struct jinja;

/* Compile len bytes. -ERR_FORMAT, -ERR_UNSUPPORTED or -ERR_LIMIT, reach JOB, with the line. */
int jinja_open(struct jinja **out, const char *text, size_t len, struct err *e) MUST_CHECK;
void jinja_free(struct jinja *j);

struct jinja_input {
    const struct chat_message *msgs;
    int n;
    const char *bos, *eos;        /* "" when there is none */
    const struct chat_date *date; /* NULL: strftime_now() is refused */
};

/* Append the rendering. Errors have reach JOB: as above, -ERR_FORMAT also for raise_exception() with its text and for
 * whatever else Python would raise; -ERR_CONFIG when a date is printed that is not set. out then holds a part. */
int jinja_render(const struct jinja *j, const struct jinja_input *in, struct marked *out,
                 struct err *e) MUST_CHECK;

#endif

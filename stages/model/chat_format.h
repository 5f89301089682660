/* stages/model/chat_format.h - the families of chat templates, as data, and how one is rendered.
 *
 * What:   what a family writes around a system text, a user turn and an answer; the quirks in which one
 *         model's template differs from its family's; a conversation rendered with both.
 * Not:    does not choose (chat.c), prove (chat_prove.h) or tokenise (chat.c).
 * Rules:  BOS is not part of a rendering: the quirk says that the template writes one.
 */
#ifndef QUIRE_MODEL_CHAT_FORMAT_H
#define QUIRE_MODEL_CHAT_FORMAT_H

#include "stages/model/chat_message.h"

#define CHAT_EOS "\003" /* in the strings below: the text of the vocabulary's EOS */

struct chat_format {
    const char *family;
    const char *sign;                       /* what a template of the family contains */
    const char *system_open, *system_close; /* NULL: no system role */
    const char *user_open, *user_close;
    const char *answer_open, *answer_close;
    const char *header; /* opens the answer that is to be written */
    bool trims;         /* the family's usual quirk */
    bool bos;
};

/* Where one template differs from the next of its family. */
struct chat_quirks {
    bool bos;          /* the template writes BOS at the start */
    bool trim_turns;   /* white space around a user turn is taken off */
    bool trim_system;  /* and around a system text */
    bool trim_answers; /* and around an answer */
    bool no_system;    /* a system text goes in front of the first user turn */
    /* heap; in front of every system text, such as a date, or NULL */
    char *system_before;
    /* heap; the system text when none is given, or NULL: then there is no system turn */
    char *system_default;
};
void chat_quirks_release(struct chat_quirks *q);

/* All rows; several may share a family name: the first of them is the one a job gets by that name. */
extern const struct chat_format chat_formats[];
extern const size_t n_chat_formats;

/* The first row of a family, NULL when there is none. */
const struct chat_format *chat_format_find(const char *family);
/* The usual quirks of a row. */
struct chat_quirks chat_format_quirks(const struct chat_format *f);
/* "chatml, gemma, ..." into out, each family once. */
void chat_format_names(char *out, size_t cap);

/* Append the conversation and the header of an answer. A system message may only come first. */
int chat_format_render(const struct chat_format *f, const struct chat_quirks *q,
                       const char *eos, const struct chat_message *msgs, int n,
                       struct marked *out, struct err *e) MUST_CHECK;

#endif

/* stages/model/chat_prove.h - a guess at a template's family, proven by rendering the template itself.
 *
 * What:   renders fixed conversations (user; system and user; user, assistant, user), whose texts begin and end with
 *         white space, with the template; looks for the family and quirks that give the same bytes.
 * Rule:   nothing is taken for granted: a quirk is read off one rendering and must then explain all of them.
 */
#ifndef QUIRE_MODEL_CHAT_PROVE_H
#define QUIRE_MODEL_CHAT_PROVE_H

#include "stages/model/chat_format.h"
#include "stages/model/jinja.h"

/* text: of the template, for the signs of families. 0: *f and *q (release it) are set; 1: no family gives the same;
 * negative: what the template raises for a plain user turn, or a limit. */
int chat_prove(const struct jinja *j, const char *text, size_t len, const char *bos,
               const char *eos, const struct chat_date *date, const struct chat_format **f,
               struct chat_quirks *q, struct err *e) MUST_CHECK;

/* Take the text of BOS off the front of a rendering; true when it was there. */
bool chat_strip_bos(struct mtext *t, const char *bos);

#endif

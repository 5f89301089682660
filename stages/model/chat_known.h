/* stages/model/chat_known.h - templates that were read and proven once, by the digest of their text. */
#ifndef QUIRE_MODEL_CHAT_KNOWN_H
#define QUIRE_MODEL_CHAT_KNOWN_H

#include "stages/model/chat_format.h"

struct chat_known {
    const char *digest;         /* SHA-256 of the template without white space around it */
    const char *name;           /* of the model it came with */
    const char *family;         /* with its usual quirks, and: */
    const char *system_default; /* NULL: none */
};

/* The row of a template, NULL when it is not known. */
const struct chat_known *chat_known_find(const char *text, size_t len);

#endif

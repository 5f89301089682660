/* stages/model/chat_message.h - one message of a conversation. */
#ifndef QUIRE_MODEL_CHAT_MESSAGE_H
#define QUIRE_MODEL_CHAT_MESSAGE_H

#include "stages/model/marked.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };

struct chat_message {
    enum chat_role role;
    struct mtext text;
};

#endif

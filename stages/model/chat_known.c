#include "stages/model/chat_known.h"

#include "stages/base/hash.h"

#include <string.h>

static const struct chat_known known[] = {
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", "SmolLM2", "chatml",
     "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", "Qwen2.5", "chatml",
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", "Qwen3", "chatml",
     NULL},
    {"ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6", "Gemma 2", "gemma",
     NULL},
    {"78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90", "Phi-3.5", "phi3",
     NULL},
    {"e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e", "Mistral Nemo",
     "mistral-v3-tekken", NULL},
};

const struct chat_known *chat_known_find(const char *text, size_t len)
{
    struct mtext t = mtext_strip((struct mtext){text, NULL, len});
    uint8_t digest[HASH_BYTES];
    char hex[HASH_HEX];
    hash_bytes(t.s, t.len, digest);
    hash_hex(digest, hex);
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i].digest, hex) == 0)
            return &known[i];
    return NULL;
}

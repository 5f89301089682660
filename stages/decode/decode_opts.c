#include "stages/decode/decode_opts.h"

static const char *const thinking_names[] = {"drop", "keep", NULL};

#define AT(field) offsetof(struct decode_config, field)

const struct opt decode_opts[] = {
    {"max_tokens", OPT_TOKENS, AT(max_tokens), "256", 1, 1 << 20, NULL, 0,
     "Longest answer. One that is cut here is marked truncated in its record."},
    {"batch", OPT_INT, AT(batch), "8", 1, 256, NULL, OPT_FREE,
     "Answers written side by side; they share each pass over the weights. Never changes an "
     "answer."},
    {"temperature", OPT_FLOAT, AT(temperature), "0", 0, 100, NULL, 0,
     "0 takes the most likely token each time; higher values draw from the distribution."},
    {"top_k", OPT_INT, AT(top_k), "0", 0, 1 << 20, NULL, 0,
     "Draw from the k most likely tokens. 0: all."},
    {"top_p", OPT_FLOAT, AT(top_p), "1", 0, 1, NULL, 0,
     "Draw from the most likely tokens that together have this probability. 1: all."},
    {"min_p", OPT_FLOAT, AT(min_p), "0", 0, 1, NULL, 0,
     "Drop tokens less likely than this share of the most likely one. 0: none."},
    {"repetition_penalty", OPT_FLOAT, AT(repetition_penalty), "1", 0.1, 10, NULL, 0,
     "Divides the logit (multiplies a negative one) of tokens that the answer already has. 1: "
     "off."},
    {"seed", OPT_INT, AT(seed), "0", 0, 2147483647, NULL, 0,
     "With temperature: another seed gives another draw. Each document has its own stream of "
     "random "
     "numbers from this seed and its id, so the order of work never matters."},
    {"stop", OPT_STRINGS, AT(stop), NULL, 0, 0, NULL, 0,
     "Texts that end an answer; they are not part of it."},
    {"stop_repetition", OPT_BOOL, AT(stop_repetition), "yes", 0, 0, NULL, 0,
     "Stop an answer that has begun to repeat itself without end; its record says stopped_by "
     "repetition."},
    {"thinking", OPT_ENUM, AT(thinking), "drop", 0, 0, thinking_names, 0,
     "What happens to the text between <think> and </think> of models that think aloud."},
};
const size_t n_decode_opts = sizeof(decode_opts) / sizeof(decode_opts[0]);

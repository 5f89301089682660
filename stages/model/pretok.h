/* stages/model/pretok.h - cuts text into the words inside which byte-level BPE merges.
 *
 * What:   hand-written scanners that give what the published regular expressions give:
 *           gpt-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *           smollm   \p{N} first, each on its own; what is between them as gpt-2
 *           llama-3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *                    ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *           qwen2    the same with \p{N}
 *           default  [\p{P}$+<=>^~|]+ first; what is between them as gpt-2, then numbers in threes
 * Rules:  1. Words concatenate to the text.  2. Linear in the text: every byte is looked at a bounded number of
 *         times, whatever it is.  3. Bytes that are not UTF-8 count as symbols (like U+FFFD).
 * Thread: pure.
 * Source: the tokenizer.json files of the models named; categories from libutf8proc.
 */
#ifndef QUIRE_MODEL_PRETOK_H
#define QUIRE_MODEL_PRETOK_H

#include "stages/base/err.h"

#include <stddef.h>

enum pretok {
    PRETOK_GPT2,
    PRETOK_SMOLLM,
    PRETOK_LLAMA3,
    PRETOK_QWEN2,
    PRETOK_DEFAULT,
    PRETOK_COUNT
};

/* What a name in tokenizer.ggml.pre stands for. */
struct pretok_info {
    const char *name;
    enum pretok kind;
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
    bool adds_bos;      /* unless the file says otherwise */
};
/* NULL when the name is unknown. */
const struct pretok_info *pretok_named(const char *name, size_t len);
/* "gpt-2, smollm, ..." for messages. */
void pretok_list(char *out, size_t cap);

struct pretok_scan {
    enum pretok kind;
    const char *text;
    size_t len;
    size_t pos;   /* start of the next word */
    size_t limit; /* end of the part that is being cut (some kinds cut in two steps) */
};

void pretok_start(struct pretok_scan *p, enum pretok kind, const char *text, size_t len);
/* The next word; false at the end of the text. */
bool pretok_next(struct pretok_scan *p, const char **word, size_t *len);

#endif

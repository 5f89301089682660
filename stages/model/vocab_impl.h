/* stages/model/vocab_impl.h - inside a vocabulary; for the files that make one up.
 *
 *   vocab.c        the public face: cuts special tokens out of the text, hands the rest to one of
 *   bpe.c spm.c    one file per kind: words, then merges (merge.h)
 *   vocab_load.c   builds all this from a file's metadata
 */
#ifndef QUIRE_MODEL_VOCAB_IMPL_H
#define QUIRE_MODEL_VOCAB_IMPL_H

#include "stages/model/merge.h"
#include "stages/model/pretok.h"
#include "stages/model/special_tree.h"
#include "stages/model/text_index.h"
#include "stages/model/vocab.h"

enum vocab_type { VOCAB_BYTES, VOCAB_BPE, VOCAB_SPM };

enum token_type { /* the file's numbers */
                  TOKEN_UNDEFINED,
                  TOKEN_NORMAL,
                  TOKEN_UNKNOWN,
                  TOKEN_CONTROL,
                  TOKEN_USER_DEFINED,
                  TOKEN_UNUSED,
                  TOKEN_BYTE,
                  TOKEN_TYPE_COUNT
};

enum { TOKEN_BYTES_MAX = 1024, ENDS_MAX = 32 };

struct vocab {
    enum vocab_type type;
    enum pretok pre;
    char kind[48];
    struct strings names;       /* as the file spells them */
    struct strings pieces;      /* the bytes that they stand for */
    uint8_t *types;             /* [n] enum token_type */
    uint32_t *ranks;            /* [n] SentencePiece: smaller merges first */
    struct text_index by_name;  /* all tokens */
    struct text_index by_piece; /* those that text can become by itself, by their bytes */
    struct pair_index merges;   /* byte-level BPE */
    struct special_tree special;
    int32_t byte_ids[256];
    size_t longest; /* bytes of the longest text in by_piece */
    bool joins
        [256]; /* SentencePiece: some token has a space after this byte, which is not a space */
    bool ignore_merges, adds_bos, adds_space;
    int32_t bos, eos;
    int32_t ends[ENDS_MAX];
    int n_ends;
    uint8_t digest[32];
};

/* A vocabulary of n tokens with room for `bytes` of names; NULL when there is no memory. */
struct vocab *vocab_new(int n, size_t bytes) MUST_CHECK;
/* Takes part in merging: text becomes this token without being asked for. */
bool vocab_is_mergeable(const struct vocab *v, int32_t id);

/* One call of vocab_encode. */
struct encoder {
    const struct vocab *v;
    struct token_list *out; /* NULL: only count */
    int64_t n;
    struct merger merger;
    char *
        copy; /* SentencePiece: a free byte, then the text with its spaces as they are looked up */
    struct err *e;
};

int encoder_emit(struct encoder *c, int32_t id) MUST_CHECK;
/* Merge the symbols that were added, and emit what is left of them. */
int encoder_merge(struct encoder *c, const char *text, merge_find_fn *find) MUST_CHECK;

/* Encode text without special tokens. */
int bpe_encode(struct encoder *c, const char *text, size_t len) MUST_CHECK;
/* text is in the copy that spm_prepare() made of the whole; prefix: with a space in front. */
int spm_encode(struct encoder *c, const char *text, size_t len, bool prefix) MUST_CHECK;
int spm_prepare(struct encoder *c, const char *text, size_t len, const char **copy,
                size_t *n) MUST_CHECK;
/* Copies with each U+2581 as a space; returns the length. */
size_t spm_unmark(const char *s, size_t len, char *out);

/* What a NORMAL token of each kind stands for: written to out (never longer than the name); returns its length,
 * or -1 when the name is none that merging can make. */
int bpe_piece(const char *name, size_t len, char *out);
int spm_piece(const char *name, size_t len, char *out);
/* How a byte is spelt in the names of byte-level BPE: 1 or 2 bytes. */
int bpe_byte_name(unsigned byte, char out[4]);

#endif

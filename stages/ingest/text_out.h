/* stages/ingest/text_out.h - the canonical text of a document and its table of blocks.
 *
 *     text    Title\n\nFirst paragraph.\n\na | b\nc | d\n\nEnd.
 *     blocks  [H1]     [P            ]    [R  ] [R  ]   [P ]
 *
 * What:   markup extractors add text to an open block; closing it normalises the text and appends
 *         it. Plain formats keep their text as it is and mark blocks in it with text_mark().
 * Rules:  1. Blocks are disjoint and rising; between them is white space only.
 *         2. Text is NFC, without U+00AD, with U+00A0 as a blank; UTF-8 and no NUL come in.
 *         3. Both the text and the table are bounded; past the table's bound the last block grows.
 * Thread: one owner.
 */
#ifndef QUIRE_INGEST_TEXT_OUT_H
#define QUIRE_INGEST_TEXT_OUT_H

#include "stages/base/buf.h"
#include "stages/rec.h"

struct text_out {
    struct buf text;
    struct block *blocks;
    size_t n_blocks, blocks_cap;
    struct buf open; /* text of the open block, not yet normalised */
    enum block_kind kind;
    int level;
    bool pre; /* the open block keeps its white space */
};

/* cap: most bytes of text. */
void text_out_init(struct text_out *t, size_t cap);
void text_out_release(struct text_out *t);
/* Most bytes of the table of blocks. */
size_t text_blocks_bytes(size_t cap);

/* Closes the open block, if any, and says what the next text belongs to. */
int text_open(struct text_out *t, enum block_kind kind, int level, bool pre,
              struct err *e) MUST_CHECK;
/* Adds text to the open block; white space is folded unless the block is pre. */
int text_add(struct text_out *t, const char *s, size_t n, struct err *e) MUST_CHECK;
/* A line end inside the open block. */
int text_break(struct text_out *t, struct err *e) MUST_CHECK;
/* Appends the open block when it holds more than white space. */
int text_close(struct text_out *t, struct err *e) MUST_CHECK;

/* A block over text[begin, end) that is already there; white space at its ends is left out, and
 * nothing is added when nothing remains. */
int text_mark(struct text_out *t, enum block_kind kind, int level, size_t begin, size_t end,
              int page, struct err *e) MUST_CHECK;

/* Appends s[0, n) to out by rule 2. */
int text_normalise(struct buf *out, const char *s, size_t n, struct err *e) MUST_CHECK;

static inline bool text_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\f' || c == '\v' || c == '\r';
}

#endif

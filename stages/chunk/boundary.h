/* stages/chunk/boundary.h - where a text may be cut, and how much each place hurts.
 *
 * What:   a rank for every offset of a text with a block table, and the best offset in a range.
 * Rules:  1. Pure. Blocks are disjoint and rising; text is valid UTF-8.
 *         2. A heading belongs to what follows: the begin of a block after a heading is worth a word only.
 *         3. A boundary is the begin of what follows it: white space stays with the text before it.
 *         4. A line end inside a paragraph is no boundary of its own (hard-wrapped text), one inside code,
 *            a list item or a table row is.
 * Source: the order of boundaries follows the common text splitters; grapheme clusters are UAX 29.
 */
#ifndef QUIRE_CHUNK_BOUNDARY_H
#define QUIRE_CHUNK_BOUNDARY_H

#include "stages/rec.h"

struct cut_text {
    const char *text;
    size_t len;
    const struct block *blocks; /* [n_blocks] */
    size_t n_blocks;
};

/* Rising: a cut at a higher one hurts less. */
enum boundary {
    BOUNDARY_NONE,       /* inside a code point */
    BOUNDARY_CODE_POINT, /* inside a grapheme cluster, or not known to be outside of one */
    BOUNDARY_GRAPHEME,
    BOUNDARY_WORD,
    BOUNDARY_CLAUSE,
    BOUNDARY_SENTENCE,
    BOUNDARY_LINE, /* line of code, list item, table row */
    BOUNDARY_PARAGRAPH,
    BOUNDARY_HEADING, /* + 9 - level: level 1 is the highest */
    BOUNDARY_TOP = BOUNDARY_HEADING + 8
};

/* Rank of offset p, 0 < p < len. Never BOUNDARY_GRAPHEME, which needs all of the text before p.
 * Cost: constant, and a binary search in the blocks. */
enum boundary boundary_rank(const struct cut_text *t, size_t p);

/* The best cut of the text from `begin` in (begin, limit], limit < len:
 *   the highest rank in the second half of the range, the last of equals, if it is a sentence or more;
 *   else a sentence or more in the part from an eighth on; else the highest there down to a word;
 *   else the last border of a grapheme cluster; else the last code point.
 * Returns `begin` when the range holds no whole code point. Cost: linear in limit - begin. */
size_t boundary_choose(const struct cut_text *t, size_t begin, size_t limit,
                       enum boundary *rank);

/* The highest rank in (after, limit], the last of equals; BOUNDARY_NONE and 0 when there is none. */
enum boundary boundary_best(const struct cut_text *t, size_t after, size_t limit, size_t *at);

#endif

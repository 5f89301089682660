/* stages/chunk/cuts.h - cut a text into pieces that a token budget allows.
 *
 * What:   pieces that cover text[0, len) exactly once, each at most its room in tokens as counted by the
 *         caller's counter over that very piece, ending at the best boundary near the end of its room.
 * Rules:  1. Pure but for the counter: the same text, blocks, counter and room give the same cuts.
 *         2. No piece is empty or splits a code point.
 *         3. A count need not grow with the text by one token at a time, nor grow at every step: every
 *            piece is counted as it is, and a longer one never stands in for it.
 * Cost:   about three counts of each byte: the length that fills the room is found by interpolation from the
 *         bytes per token so far, with bisection when that fails (a few more counts where the text changes
 *         its nature). Nothing is counted twice at full length, so a text of any size is linear.
 */
#ifndef QUIRE_CHUNK_CUTS_H
#define QUIRE_CHUNK_CUTS_H

#include "stages/chunk/boundary.h"

#define ROOM_NO_MEMORY INT64_MIN

struct cut_rules {
    void *ctx;
    /* Tokens of text[0, len) encoded alone; -1: no memory. */
    int64_t (*count)(void *ctx, const char *text, size_t len);
    /* Largest piece that begins at `begin`, in tokens; below 1 fails the text. ROOM_NO_MEMORY. */
    int64_t (*room)(void *ctx, size_t begin);
    int min_tokens; /* a last piece below this is joined or evened out with the one before it */
};

struct piece {
    size_t begin, end;
    int tokens;
    enum boundary rank; /* of the end; BOUNDARY_TOP at the end of the text */
};

struct piece_list {
    struct piece *items; /* heap */
    size_t n, cap;
};

void piece_list_release(struct piece_list *l);

/* Cut all of the text (len >= 1), appending to out (empty). limit > 0: stop after so many pieces; the last
 * then may end before the text does. -ERR_LIMIT when one character alone is over its room; -ERR_NOMEM. */
int cuts_make(const struct cut_text *t, const struct cut_rules *r, size_t limit,
              struct piece_list *out, struct err *e) MUST_CHECK;

#endif

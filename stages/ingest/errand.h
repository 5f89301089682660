/* stages/ingest/errand.h - what ties a reader to a process that watches it.
 *
 *     reader:   "I am at entry 3 of entry 17"  ->  board (shared memory)  ->  watcher, when the reader died
 *     watcher:  "entry 3 of entry 17 kills; documents 0..40 are known"  ->  errand  ->  the next reader
 *
 * What:   a reader posts where it is before it touches anything; when it dies, the watcher knows whose
 *         fault it was and starts another, which goes the same way, gives nothing twice and leaves the
 *         spoilt places alone.
 * Rules:  1. A spot is posted before the work on it begins. An update that is cut by death leaves the
 *            spot before it: there are two places, and the turn says which one is valid.
 *         2. The board is written by a process that may be hostile: board_read() checks what it finds.
 * Thread: one writer; board_turn() and board_read() from another process.
 */
#ifndef QUIRE_INGEST_ERRAND_H
#define QUIRE_INGEST_ERRAND_H

#include "stages/base/err.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { SPOT_DEPTH = 18 }; /* ingest.max_depth is 16 at most, a line of JSON is one more */

/* A place in a file: the numbers of the entries that lead to it. */
struct spot {
    int n;     /* 0: the file itself */
    bool head; /* only on the way to entry path[n - 1]: its name is not known yet */
    int64_t path[SPOT_DEPTH];
};

bool spot_equal(const struct spot *a, const struct spot *b);

/* A place that ended a reader, and how. */
struct blame {
    struct spot spot;
    struct err why;
};

struct board {
    atomic_uint turn; /* the spot at [turn % 2] is valid; grows with each */
    struct {
        uint64_t file; /* number of the file; 0: none yet */
        struct spot spot;
    } posts[2];
    char said[160]; /* last words: why the reader had to end */
};

/* How often the reader has moved. */
static inline unsigned board_turn(const struct board *b)
{
    return atomic_load_explicit(&b->turn, memory_order_acquire);
}

void board_post(struct board *b, uint64_t file, const struct spot *s);
/* Where the reader is, after it has ended. False: nowhere, or what is there makes no sense. */
bool board_read(const struct board *b, uint64_t *file, struct spot *s) MUST_CHECK;
/* Last words. */
void board_say(struct board *b, const char *why);
/* Copies them; "" when there are none. */
void board_said(const struct board *b, char *out, size_t cap);
void board_clear(struct board *b);

struct errand {
    struct board *board;
    uint64_t file;
    double cpu_seconds;         /* that each spot may take; 0: no limit */
    const struct blame *blames; /* [n_blames] */
    int n_blames;
    int64_t known; /* documents of the file, from the first on, that nobody needs again */
};

/* The reader is about to work on s. Returns why it must not, or NULL. */
const struct err *errand_at(const struct errand *x, const struct spot *s);

#endif

/* stages/model/marked.h - text in which every byte says where it came from.
 *
 *     text   <|im_start|>user\nSummarise:\n\nFrom the minutes ...<|im_end|>\n
 *     marks  0000000000000000002222222222222233333333333333333333000000000000
 *
 * What:   a borrowed view (struct mtext) and a growing buffer (struct marked) of bytes with one mark each.
 *         A prompt is rendered into a struct marked; runs of equal marks are then tokenised one by one.
 * Rules:  bytes from a template have mark 0, all others are user text, which never becomes a special token.
 *         The mark travels with the byte through slices, trims and concatenation.
 */
#ifndef QUIRE_MODEL_MARKED_H
#define QUIRE_MODEL_MARKED_H

#include "stages/base/buf.h"

#include <stdint.h>

enum {
    MARK_TEMPLATE = 0,
    MARK_SYSTEM = 1,
    MARK_TURN = 2,       /* segment i of the user turn has MARK_TURN + i */
    MARK_SEGMENTS = 250, /* most segments of a turn */
};

struct mtext {
    const char *s;
    const uint8_t *marks; /* [len]; NULL: all MARK_TEMPLATE */
    size_t len;
};

struct marked {
    struct buf text, marks; /* equally long */
};

void marked_init(struct marked *m, size_t cap);
void marked_release(struct marked *m);
void marked_clear(struct marked *m);

/* Append n bytes that all have one mark / the bytes of a view. Errors as buf_add(). */
int marked_add(struct marked *m, const char *s, size_t n, uint8_t mark,
               struct err *e) MUST_CHECK;
int marked_join(struct marked *m, struct mtext t, struct err *e) MUST_CHECK;
int marked_adds(struct marked *m, const char *s, uint8_t mark, struct err *e) MUST_CHECK;

/* Valid until m changes. */
struct mtext marked_view(const struct marked *m);

/* Bytes [from, to) of a view; white space off the front and the end (what Python's str.strip() takes:
 * Unicode white space and the separators U+001C..U+001F). */
struct mtext mtext_slice(struct mtext t, size_t from, size_t to);
struct mtext mtext_lstrip(struct mtext t);
struct mtext mtext_rstrip(struct mtext t);
struct mtext mtext_strip(struct mtext t);
struct mtext mtext_of(const char *s);

bool mtext_starts(struct mtext t, const char *s);
/* Where the first copy of `what` begins; t.len when there is none. Linear. An empty one is at 0. */
size_t mtext_find(struct mtext t, struct mtext what);
/* True for what mtext_strip() takes off. */
bool is_space_cp(uint32_t cp);

#endif

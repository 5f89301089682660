/* stages/model/special_tree.h - which special token starts here?
 *
 *   <|im_end|>  <|im_start|>     '<' - '|' - 'i' - 'm' - '_' -+- 's' ...
 *                                                             `- 'e' ...
 *
 * What:   a tree of bytes over the texts of control, unknown and user-defined tokens.
 * Rules:  the longest match wins; a look-up reads at most as many bytes as the longest text has.
 * Thread: immutable after it is built.
 */
#ifndef QUIRE_MODEL_SPECIAL_TREE_H
#define QUIRE_MODEL_SPECIAL_TREE_H

#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct special_node {
    int32_t child, sibling; /* -1: none */
    int32_t id;             /* the token that ends here, -1: none */
    uint8_t byte;
    bool control; /* matches only when the caller asks for special tokens */
};

struct special_tree {
    struct special_node *nodes;
    int32_t n, cap;
    int32_t roots[256]; /* by first byte, -1: none */
    bool has_plain;     /* some token matches in any text */
};

void special_tree_init(struct special_tree *t);
void special_tree_release(struct special_tree *t);
/* text must not be empty. False when there is no memory. */
bool special_tree_add(struct special_tree *t, const char *text, size_t len, int32_t id,
                      bool control) MUST_CHECK;
/* The longest token at the start of text and its length, or -1. Control tokens only with `control`. */
int32_t special_tree_match(const struct special_tree *t, const char *text, size_t len,
                           bool control, size_t *n);

#endif

#include "stages/model/special_tree.h"

#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>

void special_tree_init(struct special_tree *t)
{
    *t = (struct special_tree){0};
    memset(t->roots, 0xff, sizeof(t->roots));
}

void special_tree_release(struct special_tree *t)
{
    free(t->nodes);
    special_tree_init(t);
}

/* A new node, or -1. */
static int32_t new_node(struct special_tree *t, uint8_t byte, int32_t sibling)
{
    if (t->n == t->cap) {
        if (t->cap > INT32_MAX / 2)
            return -1;
        int32_t cap = t->cap ? 2 * t->cap : 256;
        void *p = mem_resize(t->nodes, (size_t)cap * sizeof(*t->nodes));
        if (!p)
            return -1;
        t->nodes = p;
        t->cap = cap;
    }
    t->nodes[t->n] =
        (struct special_node){.child = -1, .sibling = sibling, .id = -1, .byte = byte};
    return t->n++;
}

static int32_t find_sibling(const struct special_tree *t, int32_t node, uint8_t byte)
{
    while (node >= 0 && t->nodes[node].byte != byte)
        node = t->nodes[node].sibling;
    return node;
}

bool special_tree_add(struct special_tree *t, const char *text, size_t len, int32_t id,
                      bool control)
{
    const uint8_t *s = (const uint8_t *)text;
    int32_t node = t->roots[s[0]];
    if (node < 0 && (node = t->roots[s[0]] = new_node(t, s[0], -1)) < 0)
        return false;
    for (size_t i = 1; i < len; i++) {
        int32_t next = find_sibling(t, t->nodes[node].child, s[i]);
        if (next < 0) {
            next = new_node(t, s[i], t->nodes[node].child);
            if (next < 0)
                return false;
            t->nodes[node].child = next;
        }
        node = next;
    }
    t->nodes[node].id = id;
    t->nodes[node].control = control;
    t->has_plain = t->has_plain || !control;
    return true;
}

int32_t special_tree_match(const struct special_tree *t, const char *text, size_t len,
                           bool control, size_t *n)
{
    const uint8_t *s = (const uint8_t *)text;
    int32_t best = -1;
    int32_t node = t->roots[s[0]];
    for (size_t i = 1; node >= 0; i++) {
        const struct special_node *x = &t->nodes[node];
        if (x->id >= 0 && (control || !x->control)) {
            best = x->id;
            *n = i;
        }
        node = i < len ? find_sibling(t, x->child, s[i]) : -1;
    }
    return best;
}

/* The smallest expressions: literals, names, brackets, and what follows them: dots, items, calls. */
#include "stages/model/jinja_parse.h"

#include <string.h>

/* Arguments up to the closing parenthesis, which is taken. */
int jparse_args(struct jparser *p, struct jnode **out, struct err *e)
{
    struct jnode **tail = out;
    *out = NULL;
    while (!jparse_is_op(p, ')')) {
        struct jnode *arg, *value;
        int rc = jparse_node(p, JN_ARG, &arg, e);
        if (rc == 0)
            rc = jparse_expr(p, true, false, &value, e);
        if (rc == 0 && jparse_is_op(p, '=') && value->kind == JN_NAME) {
            arg->text = value->text;
            rc = jparse_advance(p, e);
            if (rc == 0)
                rc = jparse_expr(p, true, false, &value, e);
        }
        if (rc < 0)
            return rc;
        arg->a = value;
        *tail = arg;
        tail = &arg->next;
        if (!jparse_is_op(p, ','))
            break;
        rc = jparse_advance(p, e);
        if (rc < 0)
            return rc;
    }
    return jparse_expect_op(p, ')', e);
}

/* Items up to `close`, which is taken. */
static int parse_items(struct jparser *p, int close, struct jnode **out, bool *comma,
                       struct err *e)
{
    struct jnode **tail = out;
    *out = NULL;
    *comma = false;
    while (!jparse_is_op(p, close)) {
        int rc = jparse_expr(p, true, false, tail, e);
        if (rc < 0)
            return rc;
        tail = &(*tail)->next;
        if (!jparse_is_op(p, ','))
            break;
        *comma = true;
        rc = jparse_advance(p, e);
        if (rc < 0)
            return rc;
    }
    return jparse_expect_op(p, close, e);
}

static int parse_map(struct jparser *p, struct jnode **out, struct err *e)
{
    struct jnode **tail = out;
    while (!jparse_is_op(p, '}')) {
        int rc = jparse_expr(p, true, false, tail, e);
        if (rc == 0)
            rc = jparse_expect_op(p, ':', e);
        struct jnode *entry;
        if (rc == 0)
            rc = jparse_node(p, JN_ARG, &entry, e);
        if (rc == 0) {
            entry->b = *tail; /* the key */
            *tail = entry;
            tail = &entry->next;
            rc = jparse_expr(p, true, false, &entry->a, e);
        }
        if (rc == 0 && !jparse_is_op(p, ','))
            break;
        if (rc == 0)
            rc = jparse_advance(p, e);
        if (rc < 0)
            return rc;
    }
    return jparse_expect_op(p, '}', e);
}

/* ( [ { */
static int parse_bracket(struct jparser *p, struct jnode **out, struct err *e)
{
    int open = p->tok.op;
    bool comma;
    struct jnode *node = NULL;
    int rc = jparse_enter(p, e);
    if (rc == 0)
        rc = jparse_node(p, open == '{' ? JN_MAP : JN_LIST, &node, e);
    if (rc == 0)
        rc = jparse_advance(p, e);
    if (rc < 0)
        return rc;
    if (open == '{') {
        rc = parse_map(p, &node->a, e);
    } else {
        rc = parse_items(p, open == '(' ? ')' : ']', &node->a, &comma, e);
        if (rc == 0 && open == '(' && node->a && !comma)
            node = node->a;
    }
    p->depth--;
    *out = node;
    return rc;
}

static int parse_name(struct jparser *p, struct jnode *node)
{
    static const struct {
        const char *name;
        enum jkind kind;
    } words[] = {{"true", JN_TRUE},   {"True", JN_TRUE}, {"false", JN_FALSE},
                 {"False", JN_FALSE}, {"none", JN_NONE}, {"None", JN_NONE}};
    node->kind = JN_NAME;
    node->text = p->tok.text;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (jparse_is_name(p, words[i].name))
            node->kind = words[i].kind;
    return 0;
}

int jparse_primary(struct jparser *p, struct jnode **out, struct err *e)
{
    struct jnode *node;
    int rc = 0;
    if (p->tok.type == JTOK_OP && (p->tok.op == '(' || p->tok.op == '[' || p->tok.op == '{'))
        return parse_bracket(p, out, e);
    rc = jparse_node(p, JN_STRING, &node, e);
    if (rc < 0)
        return rc;
    *out = node;
    switch (p->tok.type) {
    case JTOK_NAME:
        parse_name(p, node);
        break;
    case JTOK_INT:
        node->kind = JN_INT;
        node->i = p->tok.i;
        break;
    case JTOK_FLOAT:
        node->kind = JN_FLOAT;
        node->f = p->tok.f;
        break;
    case JTOK_STRING:
        node->text = p->tok.text;
        rc = jparse_advance(p, e);
        while (rc == 0 && p->tok.type == JTOK_STRING) { /* "a" "b" is "ab" */
            size_t n = node->text.len + p->tok.text.len;
            char *joined = arena_alloc(p->arena, n + 1);
            if (!joined)
                return err_set(e, REACH_JOB, ERR_LIMIT, "chat template line %d: too large",
                               p->tok.line);
            memcpy(joined, node->text.s, node->text.len);
            memcpy(joined + node->text.len, p->tok.text.s, p->tok.text.len);
            node->text = (struct mtext){joined, NULL, n};
            rc = jparse_advance(p, e);
        }
        return rc;
    default:
        return jparse_fail(p, e, "an expression");
    }
    return jparse_advance(p, e);
}

/* After "[": an index or a slice. */
static int parse_subscript(struct jparser *p, struct jnode *node, struct err *e)
{
    int rc = jparse_advance(p, e), part = 0;
    struct jnode **parts[3] = {&node->b, &node->c, &node->d};
    while (rc == 0 && !jparse_is_op(p, ']')) {
        if (jparse_is_op(p, ':')) {
            node->kind = JN_SLICE;
            if (++part > 2)
                return jparse_fail(p, e, "]");
            rc = jparse_advance(p, e);
        } else if (*parts[part]) {
            return jparse_fail(p, e, "]");
        } else {
            rc = jparse_expr(p, true, false, parts[part], e);
        }
    }
    if (rc == 0 && node->kind == JN_INDEX && !node->b)
        return jparse_fail(p, e, "an index");
    return rc < 0 ? rc : jparse_expect_op(p, ']', e);
}

/* .name .0 [index] (arguments) */
int jparse_postfix(struct jparser *p, struct jnode **node, struct err *e)
{
    for (;;) {
        bool dot = jparse_is_op(p, '.'), index = jparse_is_op(p, '['),
             call = jparse_is_op(p, '(');
        if (!dot && !index && !call)
            return 0;
        struct jnode *outer;
        int rc = jparse_node(p, dot ? JN_ATTR : index ? JN_INDEX : JN_CALL, &outer, e);
        if (rc < 0)
            return rc;
        outer->a = *node;
        if (index) {
            rc = jparse_enter(p, e);
            if (rc == 0)
                rc = parse_subscript(p, outer, e);
            p->depth--;
        } else if (call) {
            rc = jparse_enter(p, e);
            if (rc == 0)
                rc = jparse_advance(p, e);
            if (rc == 0)
                rc = jparse_args(p, &outer->b, e);
            p->depth--;
        } else {
            rc = jparse_advance(p, e);
            outer->text = p->tok.text;
            if (rc == 0 && p->tok.type == JTOK_INT) {
                outer->kind = JN_INDEX;
                rc = jparse_node(p, JN_INT, &outer->b, e);
                if (rc == 0)
                    outer->b->i = p->tok.i;
            } else if (rc == 0 && p->tok.type != JTOK_NAME) {
                return jparse_fail(p, e, "a name after \".\"");
            }
            if (rc == 0)
                rc = jparse_advance(p, e);
        }
        if (rc < 0)
            return rc;
        *node = outer;
    }
}

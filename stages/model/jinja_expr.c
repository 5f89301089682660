/* Expressions by precedence climbing, from weak to strong:
 * if else · or · and · not · comparisons, in · + - · ~ · * / // % · ** · unary - + · filters, tests, calls, dots. */
#include "stages/model/jinja_parse.h"

enum {
    PREC_OR = 1,
    PREC_AND,
    PREC_NOT,
    PREC_COMPARE,
    PREC_ADD,
    PREC_CONCAT,
    PREC_MUL,
    PREC_POW
};

static int parse_binary(struct jparser *p, int least, struct jnode **out, struct err *e);

/* The argument of "is name argument" without parentheses. */
static bool starts_test_argument(const struct jparser *p)
{
    if (p->tok.type == JTOK_OP)
        return p->tok.op == '[' || p->tok.op == '{';
    if (p->tok.type == JTOK_NAME)
        return !jparse_is_name(p, "else") && !jparse_is_name(p, "or") &&
               !jparse_is_name(p, "and") && !jparse_is_name(p, "is") &&
               !jparse_is_name(p, "if") && !jparse_is_name(p, "not") &&
               !jparse_is_name(p, "in");
    return p->tok.type == JTOK_STRING || p->tok.type == JTOK_INT || p->tok.type == JTOK_FLOAT;
}

/* After "is". */
static int parse_test(struct jparser *p, struct jnode **node, struct err *e)
{
    struct jnode *test, *negated;
    bool no = jparse_is_name(p, "not");
    int rc = no ? jparse_advance(p, e) : 0;
    if (rc == 0)
        rc = jparse_node(p, JN_TEST, &test, e);
    if (rc < 0)
        return rc;
    if (p->tok.type != JTOK_NAME)
        return jparse_fail(p, e, "the name of a test");
    test->a = *node;
    test->text = p->tok.text;
    rc = jparse_advance(p, e);
    if (rc == 0 && jparse_is_op(p, '(')) {
        rc = jparse_advance(p, e);
        if (rc == 0)
            rc = jparse_args(p, &test->b, e);
    } else if (rc == 0 && starts_test_argument(p)) {
        rc = jparse_node(p, JN_ARG, &test->b, e);
        if (rc == 0)
            rc = jparse_primary(p, &test->b->a, e);
        if (rc == 0)
            rc = jparse_postfix(p, &test->b->a, e);
    }
    *node = test;
    if (rc == 0 && no) {
        rc = jparse_node(p, JN_NOT, &negated, e);
        if (rc == 0) {
            negated->a = test;
            *node = negated;
        }
    }
    return rc;
}

/* | filter(...), is test, (call) */
static int parse_filters(struct jparser *p, struct jnode **node, struct err *e)
{
    for (;;) {
        int rc = 0;
        struct jnode *outer;
        if (jparse_is_name(p, "is")) {
            rc = jparse_advance(p, e);
            if (rc == 0)
                rc = parse_test(p, node, e);
        } else if (jparse_is_op(p, '|')) {
            rc = jparse_node(p, JN_FILTER, &outer, e);
            if (rc == 0)
                rc = jparse_advance(p, e);
            if (rc == 0 && p->tok.type != JTOK_NAME)
                return jparse_fail(p, e, "the name of a filter");
            if (rc < 0)
                return rc;
            outer->a = *node;
            outer->text = p->tok.text;
            rc = jparse_advance(p, e);
            if (rc == 0 && jparse_is_op(p, '(')) {
                rc = jparse_advance(p, e);
                if (rc == 0)
                    rc = jparse_args(p, &outer->b, e);
            }
            *node = outer;
        } else if (jparse_is_op(p, '(')) {
            rc = jparse_postfix(p, node, e);
        } else {
            return 0;
        }
        if (rc < 0)
            return rc;
    }
}

static int parse_unary(struct jparser *p, bool filters, struct jnode **out, struct err *e)
{
    int rc = jparse_enter(p, e);
    if (rc < 0)
        return rc;
    if (jparse_is_op(p, '-') || jparse_is_op(p, '+')) {
        struct jnode *sign;
        rc = jparse_node(p, jparse_is_op(p, '-') ? JN_NEG : JN_POS, &sign, e);
        if (rc == 0)
            rc = jparse_advance(p, e);
        if (rc == 0)
            rc = parse_unary(p, false, &sign->a, e);
        if (rc == 0)
            *out = sign;
    } else {
        rc = jparse_primary(p, out, e);
    }
    if (rc == 0)
        rc = jparse_postfix(p, out, e);
    if (rc == 0 && filters)
        rc = parse_filters(p, out, e);
    p->depth--;
    return rc;
}

/* The binary operator looked at: its precedence, 0 when there is none. */
static int operator_here(const struct jparser *p, enum jkind *kind, int *op)
{
    *kind = JN_BINARY;
    *op = p->tok.op;
    if (p->tok.type == JTOK_NAME) {
        *kind = jparse_is_name(p, "or") ? JN_OR : jparse_is_name(p, "and") ? JN_AND : JN_BINARY;
        *op = JOP_IN;
        if (*kind != JN_BINARY)
            return *kind == JN_OR ? PREC_OR : PREC_AND;
        return jparse_is_name(p, "in") || jparse_is_name(p, "not") ? PREC_COMPARE : 0;
    }
    if (p->tok.type != JTOK_OP)
        return 0;
    switch (p->tok.op) {
    case JOP_EQ:
    case JOP_NE:
    case JOP_LE:
    case JOP_GE:
    case '<':
    case '>':
        return PREC_COMPARE;
    case '+':
    case '-':
        return PREC_ADD;
    case '~':
        return PREC_CONCAT;
    case '*':
    case '/':
    case '%':
    case JOP_FLOORDIV:
        return PREC_MUL;
    case JOP_POW:
        return PREC_POW;
    default:
        return 0;
    }
}

static int join(struct jparser *p, enum jkind kind, int op, struct jnode *a, struct jnode *b,
                struct jnode **out, struct err *e)
{
    int rc = jparse_node(p, kind, out, e);
    if (rc == 0) {
        (*out)->op = op;
        (*out)->a = a;
        (*out)->b = b;
    }
    return rc;
}

static int parse_operand(struct jparser *p, int least, struct jnode **out, struct err *e)
{
    if (!jparse_is_name(p, "not") || least > PREC_NOT)
        return parse_unary(p, true, out, e);
    struct jnode *node;
    int rc = jparse_enter(p, e);
    if (rc == 0)
        rc = jparse_node(p, JN_NOT, &node, e);
    if (rc == 0)
        rc = jparse_advance(p, e);
    if (rc == 0)
        rc = parse_binary(p, PREC_NOT, &node->a, e);
    p->depth--;
    if (rc == 0)
        *out = node;
    return rc;
}

static int parse_binary(struct jparser *p, int least, struct jnode **out, struct err *e)
{
    struct jnode *left = NULL, *right,
                 *compared = NULL; /* the right side of a comparison before */
    int rc = parse_operand(p, least, &left, e);
    while (rc == 0) {
        enum jkind kind;
        int op, prec = operator_here(p, &kind, &op);
        if (prec == 0 || prec < least)
            break;
        bool no = jparse_is_name(p, "not");
        rc = jparse_advance(p, e);
        if (rc == 0 && no && !jparse_is_name(p, "in"))
            return jparse_fail(p, e, "in");
        if (rc == 0 && no)
            rc = jparse_advance(p, e);
        if (rc == 0)
            rc = parse_binary(p, prec + 1, &right, e);
        if (rc < 0)
            return rc;
        /* a < b < c is a < b and b < c */
        struct jnode *node;
        bool chained = prec == PREC_COMPARE && compared;
        rc = join(p, kind, op, chained ? compared : left, right, &node, e);
        if (rc == 0 && no)
            rc = join(p, JN_NOT, 0, node, NULL, &node, e);
        if (rc == 0 && chained)
            rc = join(p, JN_AND, 0, left, node, &node, e);
        compared = prec == PREC_COMPARE ? right : NULL;
        left = node;
    }
    *out = left;
    return rc;
}

int jparse_expr(struct jparser *p, bool cond, bool tuple, struct jnode **out, struct err *e)
{
    int rc = jparse_enter(p, e);
    if (rc == 0)
        rc = parse_binary(p, PREC_OR, out, e);
    while (rc == 0 && cond && jparse_is_name(p, "if")) {
        struct jnode *node;
        rc = jparse_node(p, JN_COND, &node, e);
        if (rc == 0)
            rc = jparse_advance(p, e);
        if (rc == 0)
            rc = parse_binary(p, PREC_OR, &node->b, e);
        if (rc == 0 && jparse_is_name(p, "else")) {
            rc = jparse_advance(p, e);
            if (rc == 0)
                rc = jparse_expr(p, true, false, &node->c, e);
        }
        if (rc == 0) {
            node->a = *out;
            *out = node;
        }
    }
    if (rc == 0 && tuple && jparse_is_op(p, ',')) {
        struct jnode *list;
        rc = jparse_node(p, JN_LIST, &list, e);
        if (rc == 0) {
            list->a = *out;
            struct jnode **tail = &(*out)->next;
            *out = list;
            while (rc == 0 && jparse_is_op(p, ',')) {
                rc = jparse_advance(p, e);
                if (rc == 0 && (p->tok.type == JTOK_BLOCK_END || p->tok.type == JTOK_PRINT_END))
                    break;
                if (rc == 0)
                    rc = jparse_expr(p, cond, false, tail, e);
                if (rc == 0)
                    tail = &(*tail)->next;
            }
        }
    }
    p->depth--;
    return rc;
}

int jparse_target(struct jparser *p, struct jnode **out, struct err *e)
{
    struct jnode *first = NULL, **tail = &first;
    bool bracket = jparse_is_op(p, '(');
    int rc = bracket ? jparse_advance(p, e) : 0, n = 0;
    while (rc == 0) {
        if (p->tok.type != JTOK_NAME)
            return jparse_fail(p, e, "a name");
        rc = jparse_node(p, JN_NAME, tail, e);
        if (rc < 0)
            return rc;
        (*tail)->text = p->tok.text;
        rc = jparse_advance(p, e);
        if (rc == 0)
            rc = jparse_postfix(p, tail, e); /* namespace.name */
        if (rc < 0)
            return rc;
        tail = &(*tail)->next;
        n++;
        if (!jparse_is_op(p, ','))
            break;
        rc = jparse_advance(p, e);
    }
    if (rc == 0 && bracket)
        rc = jparse_expect_op(p, ')', e);
    *out = first;
    if (rc == 0 && n > 1) {
        rc = jparse_node(p, JN_LIST, out, e);
        if (rc == 0)
            (*out)->a = first;
    }
    return rc;
}

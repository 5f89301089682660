#include "stages/model/jinja_parse.h"

#include "stages/model/jinja.h"

#include <stdio.h>
#include <string.h>

/* ---- shared ---- */

int jparse_advance(struct jparser *p, struct err *e)
{
    return jlex_next(&p->lex, &p->tok, e);
}

int jparse_enter(struct jparser *p, struct err *e)
{
    if (++p->depth > JINJA_NESTING_MAX)
        return err_set(e, REACH_JOB, ERR_LIMIT, "chat template line %d: nested over %d deep",
                       p->tok.line, JINJA_NESTING_MAX);
    return 0;
}

int jparse_node(struct jparser *p, enum jkind kind, struct jnode **out, struct err *e)
{
    struct jnode *node = arena_alloc(p->arena, sizeof(*node));
    if (!node)
        return err_set(e, REACH_JOB, ERR_LIMIT, "chat template line %d: too large",
                       p->tok.line);
    node->kind = kind;
    node->line = p->tok.line;
    *out = node;
    return 0;
}

int jparse_fail(const struct jparser *p, struct err *e, const char *expected)
{
    static const char *const names[] = {
        [JTOK_END] = "the end",     [JTOK_DATA] = "text",      [JTOK_BLOCK_BEGIN] = "{%",
        [JTOK_BLOCK_END] = "%}",    [JTOK_PRINT_BEGIN] = "{{", [JTOK_PRINT_END] = "}}",
        [JTOK_STRING] = "a string", [JTOK_INT] = "a number",   [JTOK_FLOAT] = "a number"};
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    char found[64];
    const struct jtoken *t = &p->tok;
    if (t->type == JTOK_NAME)
        snprintf(found, sizeof(found), "%.*s", (int)(t->text.len < 40 ? t->text.len : 40),
                 t->text.s);
    else if (t->type == JTOK_OP && t->op < JOP_EQ)
        snprintf(found, sizeof(found), "%c", t->op);
    else
        snprintf(found, sizeof(found), "%s",
                 t->type == JTOK_OP ? two[t->op - JOP_EQ] : names[t->type]);
    return err_set(e, REACH_JOB, ERR_FORMAT, "chat template line %d: expected %s, found %s",
                   t->line, expected, found);
}

bool jparse_is_op(const struct jparser *p, int op)
{
    return p->tok.type == JTOK_OP && p->tok.op == op;
}

bool jparse_is_name(const struct jparser *p, const char *name)
{
    return p->tok.type == JTOK_NAME && p->tok.text.len == strlen(name) &&
           mtext_starts(p->tok.text, name);
}

int jparse_expect_op(struct jparser *p, int op, struct err *e)
{
    char what[2] = {(char)op, '\0'};
    return jparse_is_op(p, op) ? jparse_advance(p, e) : jparse_fail(p, e, what);
}

/* ---- statements ---- */

static int parse_body(struct jparser *p, const char *const *ends, struct jnode **out,
                      struct err *e);

static int expect_block_end(struct jparser *p, struct err *e)
{
    return p->tok.type == JTOK_BLOCK_END ? jparse_advance(p, e) : jparse_fail(p, e, "%}");
}

/* After the tag that opened it: its end, the body, and the name that closes it, which is taken. */
static int parse_until(struct jparser *p, const char *const *ends, struct jnode **out,
                       struct err *e)
{
    int rc = expect_block_end(p, e);
    return rc < 0 ? rc : parse_body(p, ends, out, e);
}

static int parse_closed(struct jparser *p, const char *end, struct jnode **out, struct err *e)
{
    const char *const ends[] = {end, NULL};
    int rc = parse_until(p, ends, out, e);
    if (rc == 0)
        rc = jparse_advance(p, e);
    return rc < 0 ? rc : expect_block_end(p, e);
}

/* After "if". A chain of elifs grows by a loop, so that its length is no nesting. */
static int parse_if(struct jparser *p, struct jnode *node, struct err *e)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        int rc = jparse_expr(p, true, false, &node->a, e);
        if (rc == 0)
            rc = parse_until(p, ends, &node->b, e);
        if (rc < 0)
            return rc;
        bool elif = jparse_is_name(p, "elif"), end = jparse_is_name(p, "endif");
        rc = jparse_advance(p, e);
        if (rc < 0)
            return rc;
        if (end)
            return expect_block_end(p, e);
        if (!elif)
            return parse_closed(p, "endif", &node->c, e);
        rc = jparse_node(p, JN_IF, &node->c, e);
        if (rc < 0)
            return rc;
        node = node->c;
    }
}

/* After "for". */
static int parse_for(struct jparser *p, struct jnode *node, struct err *e)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    int rc = jparse_target(p, &node->a, e);
    if (rc == 0 && !jparse_is_name(p, "in"))
        return jparse_fail(p, e, "in");
    if (rc == 0)
        rc = jparse_advance(p, e);
    if (rc == 0)
        rc = jparse_expr(p, false, true, &node->b, e);
    if (rc == 0 && jparse_is_name(p, "if")) {
        rc = jparse_advance(p, e);
        if (rc == 0)
            rc = jparse_expr(p, true, false, &node->filter, e);
    }
    if (rc == 0 && jparse_is_name(p, "recursive"))
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                       "chat template line %d: recursive loops are not known here",
                       p->tok.line);
    if (rc == 0)
        rc = parse_until(p, ends, &node->c, e);
    if (rc < 0)
        return rc;
    bool has_else = jparse_is_name(p, "else");
    rc = jparse_advance(p, e);
    if (rc == 0 && has_else)
        return parse_closed(p, "endfor", &node->d, e);
    return rc < 0 ? rc : expect_block_end(p, e);
}

/* After "set": target = value, or a body whose text is the value. */
static int parse_set(struct jparser *p, struct jnode *node, struct err *e)
{
    int rc = jparse_target(p, &node->a, e);
    if (rc < 0)
        return rc;
    if (!jparse_is_op(p, '='))
        return parse_closed(p, "endset", &node->c, e);
    rc = jparse_advance(p, e);
    if (rc == 0)
        rc = jparse_expr(p, true, true, &node->b, e);
    return rc < 0 ? rc : expect_block_end(p, e);
}

/* After "macro": name(parameter, parameter=default). */
static int parse_macro(struct jparser *p, struct jnode *node, struct err *e)
{
    if (p->tok.type != JTOK_NAME)
        return jparse_fail(p, e, "the name of the macro");
    node->text = p->tok.text;
    int rc = jparse_advance(p, e);
    if (rc == 0)
        rc = jparse_expect_op(p, '(', e);
    struct jnode **tail = &node->a;
    while (rc == 0 && !jparse_is_op(p, ')')) {
        if (p->tok.type != JTOK_NAME)
            return jparse_fail(p, e, "the name of a parameter");
        rc = jparse_node(p, JN_NAME, tail, e);
        if (rc < 0)
            return rc;
        (*tail)->text = p->tok.text;
        rc = jparse_advance(p, e);
        if (rc == 0 && jparse_is_op(p, '=')) {
            rc = jparse_advance(p, e);
            if (rc == 0)
                rc = jparse_expr(p, true, false, &(*tail)->a, e);
        }
        tail = &(*tail)->next;
        if (rc == 0 && !jparse_is_op(p, ','))
            break;
        if (rc == 0)
            rc = jparse_advance(p, e);
    }
    if (rc == 0)
        rc = jparse_expect_op(p, ')', e);
    return rc < 0 ? rc : parse_closed(p, "endmacro", &node->b, e);
}

/* The tag looked at, whose name is known not to close anything. */
static int parse_statement(struct jparser *p, struct jnode **out, struct err *e)
{
    static const struct {
        const char *name;
        enum jkind kind;
    } tags[] = {{"if", JN_IF},
                {"for", JN_FOR},
                {"set", JN_SET},
                {"macro", JN_MACRO},
                {"generation", JN_BLOCK},
                {"break", JN_BREAK},
                {"continue", JN_CONTINUE}};
    size_t i = 0;
    while (i < ARRAY_LEN(tags) && !jparse_is_name(p, tags[i].name))
        i++;
    if (i == ARRAY_LEN(tags))
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED,
                       "chat template line %d: the tag {%% %.*s %%} is not known here",
                       p->tok.line, (int)(p->tok.text.len < 40 ? p->tok.text.len : 40),
                       p->tok.text.s);
    int rc = jparse_node(p, tags[i].kind, out, e);
    if (rc == 0)
        rc = jparse_advance(p, e);
    if (rc < 0)
        return rc;
    switch (tags[i].kind) {
    case JN_IF:
        return parse_if(p, *out, e);
    case JN_FOR:
        return parse_for(p, *out, e);
    case JN_SET:
        return parse_set(p, *out, e);
    case JN_MACRO:
        return parse_macro(p, *out, e);
    case JN_BLOCK:
        return parse_closed(p, "endgeneration", &(*out)->b, e);
    default:
        return expect_block_end(p, e);
    }
}

static int parse_print(struct jparser *p, struct jnode **out, struct err *e)
{
    int rc = jparse_node(p, JN_PRINT, out, e);
    if (rc == 0)
        rc = jparse_advance(p, e);
    if (rc == 0)
        rc = jparse_expr(p, true, true, &(*out)->a, e);
    if (rc == 0 && p->tok.type != JTOK_PRINT_END)
        return jparse_fail(p, e, "}}");
    return rc < 0 ? rc : jparse_advance(p, e);
}

/* Statements up to a tag named in ends (NULL: up to the end of the template). The name is then looked at. */
static int parse_body(struct jparser *p, const char *const *ends, struct jnode **out,
                      struct err *e)
{
    int rc = jparse_enter(p, e);
    while (rc == 0) {
        if (p->tok.type == JTOK_END) {
            if (ends)
                return jparse_fail(p, e, ends[0]);
            break;
        }
        if (p->tok.type == JTOK_DATA) {
            rc = jparse_node(p, JN_DATA, out, e);
            if (rc < 0)
                return rc;
            (*out)->text = p->tok.text;
            rc = jparse_advance(p, e);
        } else if (p->tok.type == JTOK_PRINT_BEGIN) {
            rc = parse_print(p, out, e);
        } else {
            rc = jparse_advance(p, e);
            if (rc == 0 && p->tok.type != JTOK_NAME)
                return jparse_fail(p, e, "the name of a tag");
            for (int i = 0; rc == 0 && ends && ends[i]; i++) {
                if (jparse_is_name(p, ends[i])) {
                    p->depth--;
                    return 0;
                }
            }
            if (rc == 0)
                rc = parse_statement(p, out, e);
        }
        if (rc == 0)
            out = &(*out)->next;
    }
    p->depth--;
    return rc;
}

int jparse_template(const char *s, size_t n, struct arena *arena, struct jnode **out,
                    struct err *e)
{
    struct jparser p = {.arena = arena};
    jlex_init(&p.lex, s, n, arena);
    *out = NULL;
    int rc = jparse_advance(&p, e);
    return rc < 0 ? rc : parse_body(&p, NULL, out, e);
}

/* stages/model/jinja_parse.h - from tokens to a tree: statements (jinja_parse.c), expressions (jinja_expr.c,
 * jinja_primary.c). */
#ifndef QUIRE_MODEL_JINJA_PARSE_H
#define QUIRE_MODEL_JINJA_PARSE_H

#include "stages/model/jinja_ast.h"

struct jparser {
    struct jlex lex;
    struct jtoken tok; /* the token looked at */
    struct arena *arena;
    int depth; /* nesting, at most JINJA_NESTING_MAX */
};

/* Parse a whole template (already normalised; s outlives the tree). *out is the list of its statements. */
int jparse_template(const char *s, size_t n, struct arena *arena, struct jnode **out,
                    struct err *e) MUST_CHECK;

/* ---- shared by the two files ---- */

int jparse_advance(struct jparser *p, struct err *e) MUST_CHECK;
int jparse_enter(struct jparser *p, struct err *e) MUST_CHECK; /* p->depth-- leaves */
int jparse_node(struct jparser *p, enum jkind kind, struct jnode **out,
                struct err *e) MUST_CHECK;
int jparse_fail(const struct jparser *p, struct err *e, const char *expected);
bool jparse_is_op(const struct jparser *p, int op);
bool jparse_is_name(const struct jparser *p, const char *name);
int jparse_expect_op(struct jparser *p, int op, struct err *e) MUST_CHECK;

/* An expression, with "if ... else ..." when cond is set; `tuple` also takes "a, b". */
int jparse_expr(struct jparser *p, bool cond, bool tuple, struct jnode **out,
                struct err *e) MUST_CHECK;
/* A name, attribute or tuple of names to assign to. */
int jparse_target(struct jparser *p, struct jnode **out, struct err *e) MUST_CHECK;

/* A literal, name or bracket; then .name [index] (arguments) after *node; arguments up to ")". */
int jparse_primary(struct jparser *p, struct jnode **out, struct err *e) MUST_CHECK;
int jparse_postfix(struct jparser *p, struct jnode **node, struct err *e) MUST_CHECK;
int jparse_args(struct jparser *p, struct jnode **out, struct err *e) MUST_CHECK;

#endif

/* stages/model/jinja_ast.h - a compiled template: a tree of nodes, all in one arena. */
#ifndef QUIRE_MODEL_JINJA_AST_H
#define QUIRE_MODEL_JINJA_AST_H

#include "stages/model/jinja_lex.h"

enum jkind {
    /* expressions */
    JN_STRING, /* text */
    JN_INT,
    JN_FLOAT,
    JN_TRUE,
    JN_FALSE,
    JN_NONE,
    JN_NAME,  /* text */
    JN_LIST,  /* a: items; also tuples */
    JN_MAP,   /* a: JN_ARG entries, key in ->b, value in ->a */
    JN_ATTR,  /* a.text */
    JN_INDEX, /* a[b] */
    JN_SLICE, /* a[b:c:d], each may be NULL */
    JN_CALL,  /* a(b...), b: arguments; one with text is a keyword argument, its value in ->a */
    JN_FILTER, /* a | text(b...) */
    JN_TEST,   /* a is text(b...) */
    JN_NOT,    /* a */
    JN_NEG,    /* a */
    JN_POS,    /* a */
    JN_AND,    /* a, b */
    JN_OR,
    JN_BINARY, /* a op b; op is a jtoken op, or JOP_IN */
    JN_COND,   /* a if b else c; c may be NULL */
    JN_ARG,    /* an argument: text: keyword or empty, a: value */
    /* statements, in lists by ->next */
    JN_DATA,  /* text */
    JN_PRINT, /* a */
    JN_IF,    /* a: condition, b: body, c: else; an elif is a JN_IF alone in c */
    JN_FOR,   /* a: target, b: iterable, c: body, d: else, filter: condition or NULL */
    JN_SET,   /* a: target, b: value; without b: c is the body whose text is the value */
    JN_MACRO, /* text: name, a: parameters (JN_NAME, default in ->a), b: body */
    JN_BLOCK, /* b: body, nothing else */
    JN_BREAK,
    JN_CONTINUE,
};

enum { JOP_IN = 300 };

struct jnode {
    enum jkind kind;
    int line;
    int op;
    struct mtext text;
    int64_t i;
    double f;
    struct jnode *a, *b, *c, *d, *filter;
    struct jnode *next;
};

#endif

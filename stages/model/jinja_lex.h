/* stages/model/jinja_lex.h - the text of a template as tokens, white space control included. */
#ifndef QUIRE_MODEL_JINJA_LEX_H
#define QUIRE_MODEL_JINJA_LEX_H

#include "stages/base/arena.h"
#include "stages/model/marked.h"

enum jtoken_type {
    JTOK_END,
    JTOK_DATA,
    JTOK_BLOCK_BEGIN, /* {% */
    JTOK_BLOCK_END,
    JTOK_PRINT_BEGIN, /* {{ */
    JTOK_PRINT_END,
    JTOK_NAME,
    JTOK_STRING, /* text is unescaped */
    JTOK_INT,
    JTOK_FLOAT,
    JTOK_OP,
};

/* Operators of two characters; single ones are their character. */
enum { JOP_EQ = 256, JOP_NE, JOP_LE, JOP_GE, JOP_FLOORDIV, JOP_POW };

struct jtoken {
    enum jtoken_type type;
    int line;
    int op;            /* JTOK_OP */
    struct mtext text; /* JTOK_DATA, JTOK_NAME, JTOK_STRING */
    int64_t i;
    double f;
};

struct jlex {
    const char *s; /* newlines normalised */
    size_t n, at;
    int line;
    enum jtoken_type
        mode; /* JTOK_DATA, JTOK_BLOCK_BEGIN or JTOK_PRINT_BEGIN: what we are inside of */
    int brackets;
    bool line_start;     /* the last tag took a newline with it */
    struct arena *arena; /* for unescaped strings */
};

/* s must outlive the tokens. */
void jlex_init(struct jlex *l, const char *s, size_t n, struct arena *arena);
/* The next token; JTOK_END for ever after the last. -ERR_FORMAT or -ERR_LIMIT, reach JOB, with the line. */
int jlex_next(struct jlex *l, struct jtoken *t, struct err *e) MUST_CHECK;

/* Copy of a template with \n for \r\n and \r, and without one newline at its end; *n is updated. NULL: no memory. */
char *jlex_normalise(struct arena *a, const char *s, size_t *n);

#endif

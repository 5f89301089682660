/* stages/model/jinja_eval.h - the parts of the interpreter for each other: expressions (jinja_eval.c), statements
 * and macros (jinja_exec.c), filters (jinja_filter.c), tests (jinja_test.c), methods and functions
 * (jinja_call.c). All fail as jrun_fail() does. */
#ifndef QUIRE_MODEL_JINJA_EVAL_H
#define QUIRE_MODEL_JINJA_EVAL_H

#include "stages/model/jinja_value.h"

enum { JARGS_MAX = 16 };

/* Arguments of a call, filter or test. */
struct jargs {
    struct jvalue pos[JARGS_MAX];
    int n;
    struct mtext names[JARGS_MAX]; /* keyword arguments */
    struct jvalue named[JARGS_MAX];
    int n_named;
};

/* Names, looked up from the innermost scope outwards. */
struct jscope {
    struct jscope *outer;
    struct jmap names;
};

struct jmacro {
    const struct jnode *node;
    struct jscope *scope; /* where it was defined */
};

int jeval(struct jrun *r, const struct jnode *n, struct jvalue *out) MUST_CHECK;
int jeval_args(struct jrun *r, const struct jnode *list, struct jargs *args) MUST_CHECK;

/* Argument i, or the keyword argument `name`; NULL when neither is given. */
const struct jvalue *jargs_get(const struct jargs *args, int i, const char *name);

int jcall_macro(struct jrun *r, const struct jmacro *m, const struct jargs *args,
                struct jvalue *out) MUST_CHECK;
int jcall_function(struct jrun *r, struct mtext name, const struct jargs *args,
                   struct jvalue *out) MUST_CHECK;
int jcall_method(struct jrun *r, const struct jvalue *self, struct mtext name,
                 const struct jargs *args, struct jvalue *out) MUST_CHECK;
/* True when name is one of the functions that every template has. */
bool jfunction_known(struct mtext name);
int jfilter(struct jrun *r, struct mtext name, const struct jvalue *in,
            const struct jargs *args, struct jvalue *out) MUST_CHECK;
int jtest(struct jrun *r, struct mtext name, const struct jvalue *in, const struct jargs *args,
          bool *out) MUST_CHECK;
/* a op b, for + - * / // % **. (jinja_op.c) */
int jarithmetic(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b,
                struct jvalue *out) MUST_CHECK;
/* in.name, as an attribute or key. */
int jattribute(struct jrun *r, const struct jvalue *in, struct mtext name,
               struct jvalue *out) MUST_CHECK;

/* Text operations that are filters and methods both. (jinja_text.c) */
int jtext_case(struct jrun *r, struct mtext s, char how,
               struct mtext *out) MUST_CHECK; /* u l c t */
int jtext_replace(struct jrun *r, struct mtext s, struct mtext from, struct mtext to,
                  int64_t most, struct mtext *out) MUST_CHECK;
/* sep with len 0: runs of white space. most < 0: no limit. */
int jtext_split(struct jrun *r, struct mtext s, struct mtext sep, int64_t most,
                struct jvalue *out) MUST_CHECK;
/* Characters of `set` off the left and the right; NULL: white space. */
struct mtext jtext_strip(struct mtext s, const struct mtext *set, bool left, bool right);
int jtext_join_list(struct jrun *r, const struct jlist *list, struct mtext sep,
                    struct mtext *out) MUST_CHECK;

#endif
